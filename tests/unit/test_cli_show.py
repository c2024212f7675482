"""What reaches the terminal: aligned, and harmless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from myapp.client import show
from myapp.client.errors import ClientError, problem_line


def test_a_table_is_as_wide_as_its_widest_cell() -> None:
    text = show.table([[1, "digits", True], [23, "数字", None]], ["ID", "NAME", "OK"])
    assert text.splitlines() == ["ID  NAME    OK", "1   digits  yes", "23  数字"]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\x1b]0;title\x07", "�]0;title�"),
        ("\x00nul", "�nul"),
        ("right\u202eleft", "right�left"),
    ],
)
def test_names_cannot_steer_the_terminal(text: str, safe: str) -> None:
    assert show.safe(text) == safe


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("a\nb\tc", "a\nb\tc"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[2Jcleared", "�[2Jcleared"),
        ("\x1b[3", "�[3"),
        ("10%\r20%\r\n", "10%\n20%\r\n"),
        ("\x1b]52;c;aGk=\x07", "�]52;c;aGk=�"),
    ],
)
def test_a_log_keeps_colours_and_loses_everything_else(log: str, shown: str) -> None:
    assert show.log_text(log) == shown
    assert show.log_text(log, raw=True) == log


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (12, "12s"), (59.6, "1m00s"), (185, "3m05s"), (7800, "2h10m"), (-5, "0.0s")],
)
def test_durations(seconds: float, text: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert show.duration(start.isoformat(), (start + timedelta(seconds=seconds)).isoformat()) == text
    assert show.duration(start.timestamp(), start.timestamp() + seconds) == text


def test_details_leave_out_what_is_not_known() -> None:
    assert show.details([("A", 1), ("Long", "x"), ("B", None), ("C", {})]) == "A:    1\nLong: x"


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ({"message": "is wrong"}, "is wrong"),
        (
            {
                "message": "is unknown",
                "field": "spec.tasks[0].template",
                "node": "train",
                "line": 7,
                "resolution": "did you mean 'python'?",
            },
            "line 7, spec.tasks[0].template (task train): is unknown -> did you mean 'python'?",
        ),
    ],
)
def test_problems_name_the_place_and_the_remedy(problem: dict[str, object], line: str) -> None:
    assert problem_line(problem) == line


def test_an_error_with_several_problems_shows_each() -> None:
    error = ClientError("bad", "one remedy", detail=[{"message": "first"}, {"message": "second"}])
    assert error.lines() == ["error: bad", "  first", "  second"]
    assert ClientError("bad", "one remedy", detail=[{"message": "first"}]).lines() == ["error: bad", "  one remedy"]


def test_a_wrapped_table_keeps_every_word() -> None:
    text = show.table([["a", "one two three four five six"], ["b", "short"]], ["N", "WHAT"], wrap=23)
    assert text.splitlines() == ["N  WHAT", "a  one two three four", "   five six", "b  short"]
