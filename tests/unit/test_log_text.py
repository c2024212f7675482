"""Log bytes as text: nothing lost, nothing dangerous, however they are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.services.log_text import complete, safe_text

ESC = b"\x1b"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\n\ttext\r\n", "plain\n\ttext\r\n"),
        ("Grüße 😀 世界".encode(), "Grüße 😀 世界"),
        (b"a\0b", "a\u2400b"),
        (b"bell\x07 back\x08 del\x7f", "bell\u2407 back\u2408 del\u2421"),
        (b"bad\xff\xfe utf8", "bad\ufffd\ufffd utf8"),
        (ESC + b"[1;31mred" + ESC + b"[0m", "\x1b[1;31mred\x1b[0m"),
        (ESC + b"[38:2::1:2:3mx", "\x1b[38:2::1:2:3mx"),
        (b"a" + ESC + b"[2Jb" + ESC + b"[1;1Hc", "abc"),
        (ESC + b"]0;title\x07x", "x"),
        (ESC + b"]52;c;cm0gLXJm" + ESC + b"\\x", "x"),
        (ESC + b"]8;;http://evil" + ESC + b"\\link" + ESC + b"]8;;" + ESC + b"\\", "link"),
        (ESC + b"]never closed\nnext line", "\nnext line"),
        (ESC + b"P1$qm" + ESC + b"\\x", "x"),
        (ESC + b"cx" + ESC + b"7y" + ESC + b"(Bz", "xyz"),
        ("a\x9b2Jb\x9d0;t\x9cc".encode(), "abc"),
        (b"a" + ESC, "a"),
        (ESC + b"[?25lx", "x"),
        (ESC + b"[31" + ESC + b"[32mx", "\x1b[32mx"),
    ],
)
def test_what_is_shown(data: bytes, text: str) -> None:
    assert safe_text(data) == text


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (b"abc", 3),
        ("ü".encode()[:1], 0),
        (b"a" + "😀".encode()[:3], 1),
        ("😀".encode(), 4),
        (b"\x80\x80\x80\x80", 4),
        (b"a\xff", 2),
        (b"a" + ESC, 1),
        (b"a" + ESC + b"[31", 1),
        (b"a" + ESC + b"[31m", 6),
        (b"a" + ESC + b"]0;ti", 1),
        (b"a" + ESC + b"]0;t\n", 7),
        (ESC + b"[3", 0),
        (b"", 0),
    ],
)
def test_where_a_piece_may_be_cut(data: bytes, kept: int) -> None:
    assert complete(data, final=False, full=False) == kept
    assert complete(data, final=True, full=False) == len(data)


def test_a_full_piece_always_gets_on() -> None:
    assert complete(ESC + b"]" + b"x" * 62, final=False, full=True) == 64


PARTS = st.sampled_from(
    [b"a", "ü".encode(), "😀".encode(), b"\xff", b"\0", b"\n", ESC + b"[31m", ESC + b"[2J", ESC + b"]0;t\x07", ESC]
)


@given(st.lists(PARTS, max_size=40).map(b"".join), st.integers(64, 100))
def test_pieces_together_are_the_whole_and_nothing_dangerous_is_left(data: bytes, limit: int) -> None:
    whole = safe_text(data)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]", whole)
    assert whole.count("\x1b") == len(re.findall(r"\x1b\[[0-9;:]*m", whole))
    offset, text = 0, ""
    while offset < len(data):
        piece = data[offset : offset + limit]
        used = complete(piece, final=offset + len(piece) >= len(data), full=len(piece) >= limit)
        assert used > 0
        text += safe_text(piece[:used])
        offset += used
    assert text == whole
