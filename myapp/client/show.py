"""How answers look on a terminal: tables, details, safe text."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_NARROWEST = 20  # the least that a wrapped column has
_COLOURS = {
    "succeeded": "32",
    "failed": "31",
    "lost": "31",
    "running": "36",
    "active": "36",
    "stopped": "33",
    "skipped": "90",
}


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[Any]], heads: Sequence[str], *, wrap: int = 0) -> str:
    """Columns as wide as their widest cell; the last one is not padded, and wrapped so that lines have `wrap` columns.
    """
    cells = [list(heads), *([safe(_text(cell)) for cell in row] for row in rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(heads))]
    lines = []
    for number, row in enumerate(cells):
        padded = [_paint(cell, number) + " " * (widths[i] - _width(cell)) for i, cell in enumerate(row)]
        if wrap:
            before = sum(widths[:-1]) + 2 * (len(widths) - 1)
            last = textwrap.wrap(row[-1], max(_NARROWEST, wrap - before)) or [""]
            padded[-1] = f"\n{' ' * before}".join(last)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def columns() -> int:
    """Of the terminal; 0 when nobody looks at one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def details(pairs: Iterable[tuple[str, Any]], indent: str = "") -> str:
    """`name:  value` lines; pairs without a value are left out."""
    known = [(name, safe(_text(value))) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in known), default=0) + 1
    return "\n".join(f"{indent}{name + ':':<{width}} {_paint(value, 1)}" for name, value in known)


def safe(text: str) -> str:
    """One line without control characters: what a job or another user wrote must not steer this terminal."""
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "\N{REPLACEMENT CHARACTER}" for c in text)


def log_text(data: str, *, raw: bool = False) -> str:
    """A log for a terminal: lines, tabs and colours stay; what moves the cursor or sets the title does not."""
    if raw:
        return data
    kept: list[str] = []
    index = 0
    while index < len(data):
        char = data[index]
        if char == "\x1b":
            end = _colour_end(data, index)
            if end:
                kept.append(data[index:end])
                index = end
                continue
        if char in "\n\t" or (char == "\r" and data[index + 1 : index + 2] == "\n") or char.isprintable():
            kept.append(char)
        elif char == "\r":
            kept.append("\n")
        else:
            kept.append("\N{REPLACEMENT CHARACTER}")
        index += 1
    return "".join(kept)


def _colour_end(data: str, start: int) -> int:
    """The end of `ESC [ digits ; ... m` that begins at `start`; 0 when it is another sequence."""
    if data[start + 1 : start + 2] != "[":
        return 0
    end = start + 2
    while end < len(data) and data[end] in "0123456789;":
        end += 1
    return end + 1 if data[end : end + 1] == "m" else 0


def moment(value: Any) -> str:
    """An ISO time (or Unix seconds) in this machine's zone, to the second."""
    at = parse_time(value)
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def moments(values: Iterable[Any], zone: str) -> str:
    """Times in a zone, to the minute, with its name: `2026-12-01 02:00, 2026-12-02 02:00 (Europe/Berlin)`."""
    try:
        shown: tzinfo = ZoneInfo(zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        shown, zone = UTC, "UTC"
    found = [at.astimezone(shown).strftime("%Y-%m-%d %H:%M") for value in values if (at := parse_time(value))]
    return f"{', '.join(found)} ({zone})" if found else ""


def duration(start: Any, end: Any) -> str:
    """`0.4s`, `12s`, `3m05s`, `2h10m`; up to now when there is no end."""
    began = parse_time(start)
    if began is None:
        return ""
    seconds = ((parse_time(end) or datetime.now(UTC)) - began).total_seconds()
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def parse_time(value: Any) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str) and value:
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return None


def pick(row: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that has a value; `a.b` looks into `a`."""
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value not in (None, ""):
            return value
    return None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _paint(text: str, row: int) -> str:
    colour = _COLOURS.get(text) if row else None
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and sys.stdout.isatty() else text


def _width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)
