"""Log bytes as text that is safe to show: whole characters, no control sequences but colours."""

from __future__ import annotations

import re

_MAX_SEQUENCE = 4096  # an unfinished control sequence longer than this is not waited for

# OSC, DCS, SOS, PM, APC: text up to BEL or ST, or the end of the line when it is never closed. Then CSI, then the rest.
_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)(?:(?P<csi>[0-?]*[ -/]*[@-~])|[0-?]*[ -/]*)"
    r"|\x1b[ -/]*[0-~]?"
)
_SGR = re.compile(r"\A[0-9;:]{0,64}m\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_UNFINISHED = re.compile(rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*)\Z")


def complete(data: bytes, *, final: bool, full: bool) -> int:
    """How many of the bytes form whole characters and control sequences.

    All of them when nothing more will come (`final`). When the piece is as large as was asked for (`full`) at least
    one, so that a reader gets on.
    """
    if final or not data:
        return len(data)
    end = len(data) - _cut_character(data)
    if (match := _UNFINISHED.search(data, max(0, end - _MAX_SEQUENCE), end)) is not None:
        end = match.start()
    return len(data) if end == 0 and full else end


def safe_text(data: bytes) -> str:
    """UTF-8 with what is invalid replaced, NUL and other controls made visible, control sequences but SGR removed."""
    text = data.decode("utf-8", "replace")
    return _CONTROL.sub(_picture, _SEQUENCE.sub(_keep_colour, text))


def _cut_character(data: bytes) -> int:
    """How many bytes at the end begin a character that is not whole yet."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return back if length > back else 0
    return 0


def _keep_colour(match: re.Match[str]) -> str:
    csi = match["csi"]
    return f"\x1b[{csi}" if csi is not None and _SGR.match(csi) else ""


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
