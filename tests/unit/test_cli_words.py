"""What the commands say: once, with the reason, and nothing that is not so."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from myapp.client import commands, find, follow, manage, reading, show
from myapp.client.documents import Document
from myapp.client.errors import ClientError
from myapp.client.options import one_of
from tests.unit.test_cli_http import Script, Server, says, server

__all__ = ["server"]
DOCUMENT = Document("p.yaml", 1, "", "Pipeline", "p")


def event(to: str, *, before: str = "active", reason: str = "", entity: str = "task") -> dict[str, Any]:
    return {"entity": entity, "task": "train", "from": before, "to": to, "reason": reason}


def test_a_retried_task_says_that_its_attempt_failed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = follow.Progress()
    for one in (
        event("ready", before="blocked"), event("active", before="admitted"),
        event("failed", entity="attempt", reason="exit code 3"),
        event("ready", reason="exit code 3; tried again in 1 s"), event("active", before="admitted"),
        event("failed", reason="exit code 4"),
    ):
        progress(one)
    assert capsys.readouterr().err.splitlines() == [
        "  train  active", "  train  attempt failed  exit code 3; tried again in 1 s", "  train  active",
        "  train  failed  exit code 4",
    ]
    assert progress.failed == {"train"}


FAILED = {"key": "train", "phase": "failed", "reason": "exit code 3", "attempts": [{}]}


@pytest.mark.parametrize(
    ("reason", "tasks", "said", "lines"),
    [
        ("train: exit code 3", [FAILED], {"train"}, ["  its log: cube logs 7 train"]),
        ("train: exit code 3", [FAILED], set(), ["  train: exit code 3", "  its log: cube logs 7 train"]),
        ("train: bad", [{**FAILED, "attempts": []}], {"train"}, []),
        ("the run's timeout passed", [], set(), ["  the run's timeout passed"]),
    ],
)
def test_a_failure_is_said_once(
    reason: str, tasks: list[dict[str, Any]], said: set[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    commands._say_why({"id": 7, "reason": reason, "tasks": tasks}, said)
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(
    ("detail", "resolution", "lines"),
    [
        ([{"field": "params.seed", "message": "is 9; the most is 5"}], None, []),
        ([{"field": "params.seed", "message": "is 9; the most is 5", "line": 4}], "choose less",
         ["  line 4: choose less"]),
        ([{"message": "something else"}], None, ["  something else"]),
        ([{"message": "is 9"}, {"message": "two"}], None, ["  is 9", "  two"]),
        (None, "do this", ["  do this"]),
    ],
)
def test_one_problem_is_said_once(detail: Any, resolution: str | None, lines: list[str]) -> None:
    message = "the run's parameters are wrong: params.seed: is 9; the most is 5"
    error = ClientError(message, resolution, detail=detail)
    assert error.lines() == [f"error: {message}", *lines]


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ({"created": True, "version": 1}, "created (version 1)"),
        ({"created": True, "version": 2, "changes": []}, "updated (version 2)"),
        ({"created": True, "version": 2, "changes": ["schedule removed"]}, "updated (version 2), schedule removed"),
        ({"created": False, "version": 2, "changes": []}, "unchanged (version 2)"),
        ({"created": False, "version": 2, "changes": ["schedule changed", "title changed"]},
         "schedule changed, title changed (version 2)"),
    ],
)
def test_apply_says_what_changed(server: Server, reply: dict[str, Any], line: str) -> None:
    server.script = [says(201, {"id": 1, **reply})]
    assert commands._about(DOCUMENT, commands._apply_one(server.client(), DOCUMENT)) == line


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Europe/Berlin", "2026-12-01 02:00, 2026-07-01 03:00 (Europe/Berlin)"),
        ("UTC", "2026-12-01 01:00, 2026-07-01 01:00 (UTC)"),
        ("No/Where", "2026-12-01 01:00, 2026-07-01 01:00 (UTC)"),
    ],
)
def test_times_of_a_schedule_are_in_its_zone(zone: str, text: str) -> None:
    assert show.moments(["2026-12-01T01:00:00Z", "2026-07-01T01:00:00Z"], zone) == text
    assert show.moments([], zone) == ""


# ---- artifacts ------------------------------------------------------------------------------------------------------


def file(body: bytes, kind: str = "text/csv", size: int | None = None) -> Script:
    return says(200, body, Content_Type=kind, Content_Length=str(len(body) if size is None else size),
                Connection="close")


def get(server: Server, output: str | None, name: str = "data.csv") -> int:
    return manage.artifact_get(argparse.Namespace(url=server.url, run="7", task="load", name=name, output=output))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUBE_TOKEN", "t")
    return tmp_path


def test_an_artifact_is_saved_under_its_name(server: Server, here: Path) -> None:
    server.script = [file(b"a,b\n")]
    assert get(server, None, "tables/data.csv") == 0
    assert (here / "data.csv").read_bytes() == b"a,b\n"
    assert server.asked[0][1] == "/api/v1/run/7/artifact/load/tables/data.csv"
    assert server.asked[0][2]["Authorization"] == "Bearer t"


def test_a_folder_is_saved_as_an_archive_and_nothing_is_overwritten_unasked(
    server: Server, here: Path
) -> None:
    server.script = [file(b"PK", "application/zip"), file(b"PK2", "application/zip"), file(b"x"), file(b"y")]
    assert get(server, None, "model") == 0
    assert (here / "model.zip").read_bytes() == b"PK"
    with pytest.raises(ClientError, match=r"model\.zip is there already"):
        get(server, None, "model")
    for text in ("x", "y"):
        assert get(server, "out") == 0
        assert (here / "out").read_text() == text
    assert sorted(path.name for path in here.iterdir()) == ["model.zip", "out"]


def test_a_download_that_breaks_off_leaves_nothing(server: Server, here: Path) -> None:
    server.script = [file(b"abc", size=10)]
    with pytest.raises(ClientError):
        get(server, None)
    assert list(here.iterdir()) == []


def test_what_the_server_says_of_a_missing_artifact(server: Server, here: Path) -> None:
    server.script = [says(404, {"message": "no such artifact"}, Connection="close")]
    with pytest.raises(ClientError, match="no such artifact"):
        get(server, None)
    assert list(here.iterdir()) == []


def test_a_folder_that_is_not_there(server: Server, here: Path) -> None:
    with pytest.raises(ClientError, match="cannot be written"):
        get(server, "nowhere/x")
    assert json.dumps(server.asked) == "[]"


# ---- hints ----------------------------------------------------------------------------------------------------------


def ends(status: int, body: Any) -> Script:
    return says(status, body, Connection="close")


def wants(server: Server, **more: Any) -> argparse.Namespace:
    return argparse.Namespace(url=server.url, json=False, **more)


def test_apply_words_a_problem_as_validate_does(
    server: Server, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.yaml").write_text("# mine\nkind: Pipeline\nmetadata: {name: p}\n")
    problems = [{"line": 2, "field": "spec.a", "message": "is bad", "resolution": "mend it"}, {"message": "two"}]
    server.script = [
        ends(422, {"message": "the pipeline is wrong: spec.a: is bad (and 1 more)", "detail": problems}),
        ends(200, {"result": {"problems": problems}}),
        ends(403, {"message": "you may not", "resolution": "ask"}),
    ]
    lines = ["  line 3, spec.a: is bad -> mend it", "  two"]
    assert commands.apply(wants(server, file=["p.yaml"])) == 1
    assert capsys.readouterr().err.splitlines() == ["error: p.yaml, line 2: Pipeline p: refused", *lines]
    assert commands.validate(wants(server, file=["p.yaml"])) == 1
    assert capsys.readouterr().out.splitlines()[1:] == lines
    assert commands.apply(wants(server, file=["p.yaml"])) == 1
    assert capsys.readouterr().err.splitlines() == ["error: p.yaml, line 2: Pipeline p: you may not", "  ask"]


@pytest.mark.parametrize(
    ("phase", "text", "rank", "said"),
    [
        ("active", "hi\n", 0, ["run 7 is still running; cube logs 7 -f follows it"]),
        ("active", "", 1, ["rank 1 of task a has written nothing yet",
                           "run 7 is still running; cube logs 7 --rank 1 -f follows it"]),
        ("succeeded", "hi\n", 0, []),
        ("succeeded", "", 0, ["task a has written nothing"]),
    ],
)
def test_a_log_tells_what_is_not_in_it(
    server: Server, here: Path, capsys: pytest.CaptureFixture[str], phase: str, text: str, rank: int, said: list[str]
) -> None:
    piece = {"text": text, "next_offset": len(text), "eof": phase != "active", "attempt": 1}
    server.script = [ends(200, {"result": {"id": 7, "phase": "running", "tasks": [{"key": "a", "phase": phase}]}}),
                     ends(200, {"result": piece}), ends(200, {"result": {**piece, "text": ""}})]
    args = wants(server, run="7", task=None, attempt=None, rank=rank, follow=False, raw=False)
    assert commands.logs(args) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == (text, said)


def test_a_wrong_name_brings_the_nearest(server: Server, here: Path) -> None:
    known = [{"id": 1, "name": "wine"}, {"id": 2, "name": "digits"}]
    for word, hint in (("winee", "Did you mean 'wine'?"), ("zzz", "Known: digits, wine")):
        server.script = [ends(200, {"result": []}), ends(200, {"result": known})]
        with pytest.raises(ClientError, match=f"no pipeline {word}") as caught:
            find.pipeline_id(server.client(), word, None)
        assert caught.value.resolution == hint
    with pytest.raises(argparse.ArgumentTypeError, match=r"there is no 'run'\. Did you mean 'runs'"):
        one_of(("runs", "pipelines"))("run")


def test_a_token_of_the_environment_is_named_when_it_is_refused(server: Server, here: Path) -> None:
    server.script = [ends(401, {"message": "the token is not valid"})]
    with pytest.raises(ClientError, match="the token in CUBE_TOKEN is not accepted") as caught:
        commands.whoami(wants(server))
    assert "CUBE_TOKEN" in str(caught.value.resolution)


def test_nobody_is_signed_in_only_where_somebody_answers(
    server: Server, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBE_TOKEN")
    server.script = [ends(401, {"message": "sign in"})]
    with pytest.raises(ClientError, match="nobody is signed in"):
        commands.whoami(wants(server))
    with pytest.raises(ClientError, match="cannot be reached"):
        commands.whoami(argparse.Namespace(url="http://127.0.0.1:9", json=False))


# ---- descriptions ---------------------------------------------------------------------------------------------------


def task(phase: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {"key": "a", "phase": phase, "attempts": [{"no": i + 1, **a} for i, a in enumerate(attempts)]}


BAD: dict[str, Any] = {"phase": "failed", "diagnosis": {"summary": "was interrupted because the platform stopped"}}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (task("succeeded", BAD, {"phase": "succeeded"}),
         ["#1 failed: was interrupted because the platform stopped; tried again"]),
        (task("ready", {"phase": "lost", "message": "gone"}), ["#1 lost: gone"]),
        (task("failed", BAD), []),  # its diagnosis is shown
        (task("succeeded", {"phase": "succeeded"}), []),
        (task("skipped"), []),
    ],
)
def test_why_a_task_was_tried_again_stays_visible(one: dict[str, Any], said: list[str]) -> None:
    assert [text for _, text in reading._lost_attempts([one])] == said


def test_the_ranks_of_a_distributed_task() -> None:
    assert list(reading._ranks(7, [task("active", {"phase": "released", "ranks": [{}, {}]})])) == [
        ("a", "2; the log of one: cube logs 7 a --rank 0 (to 1)")]
    assert list(reading._ranks(7, [task("active", {"phase": "released", "ranks": [{}]}), task("blocked")])) == []


@pytest.mark.parametrize(
    ("row", "about"),
    [
        ({"description": "Trees", "min": 1.0, "max": 0.5e3}, "Trees (1 to 500)"),
        ({"min": 0.5}, "(at least 0.5)"),
        ({"description": "Which", "choices": ["a", 2], "max": 9}, "Which (one of: a, 2; at most 9)"),
        ({"description": "x" * 200}, "x" * 200),
        ({"pattern": "^a+$"}, "(like ^a+$)"),
    ],
)
def test_what_an_argument_may_be(row: dict[str, Any], about: str) -> None:
    assert reading._about(row) == about
