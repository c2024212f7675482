"""What a YAML parser's error means to the person who wrote the text: in words, with the line and a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

WIDTH = 100  # of the line that is shown
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_BEFORE = 70  # characters of it before the place, at most
_CHECK = "check indentation, quotes and brackets at that place"
_ALIKE = "is it indented like the line above?"


@dataclass(frozen=True)
class Explained:
    """`line` and `column` are 1-based. `excerpt` is the line and, below it, a caret; `at` the same within one line."""

    line: int
    column: int
    message: str
    remedy: str
    excerpt: str
    at: str

    @property
    def place(self) -> str:
        return f"line {self.line}, column {self.column}"


def explain(error: Any, text: str) -> Explained | None:
    """For an error with a place (yaml.MarkedYAMLError) in `text`, else None."""
    problem, context = str(getattr(error, "problem", None) or ""), str(getattr(error, "context", None) or "")
    mark, began = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    if "could not find expected ':'" in problem:
        mark = began or mark  # what lacks it, not where the parser gave up
    mark = mark or began
    if mark is None:
        return None
    line = _line(text, mark.line)
    said, remedy = _words(problem, context, line, mark.column, began.line + 1 if began else 0)
    return Explained(mark.line + 1, mark.column + 1, said, remedy, excerpt(line, mark.column), _at(line, mark.column))


def excerpt(line: str, column: int) -> str:
    """The part of a line around `column` (from 0), at most WIDTH characters, and a caret under it."""
    start = max(0, column - _BEFORE) if len(line) > WIDTH else 0
    head = "…" if start else ""
    part = line[start : start + WIDTH]
    tail = "…" if len(line) > start + WIDTH else ""
    return f"    {head}{_plain(part)}{tail}\n    {' ' * (len(head) + min(column, len(line)) - start)}^"


def _plain(text: str) -> str:
    return "".join("→" if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _at(line: str, column: int) -> str:
    """`: a: b >>> : c`, the line with the place marked; empty for an empty line."""
    before, after = line[:column].lstrip(" "), line[column:]
    if not before and not after:
        return ""
    before = before if len(before) <= 60 else "…" + before[-59:]
    after = after if len(after) <= 40 else after[:39] + "…"
    return f": {_plain(before)}>>>{_plain(after)}"


def _line(text: str, number: int) -> str:
    """Line `number` (from 0) of what YAML calls lines."""
    lines = _BREAK.split(text)
    return lines[number] if number < len(lines) else ""


def _words(problem: str, context: str, line: str, column: int, began: int) -> tuple[str, str]:
    here = line[column : column + 1]
    indent = line[: len(line) - len(line.lstrip())]
    if here == "\t" or "\t" in indent or "tab character" in problem:
        return "this is a tab; YAML wants spaces", "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "a ': ' is not expected here", f"{_ALIKE} or put quotes around a value that holds ': '"
    if "'-' indicator" in problem or ("block collection" in context and "expected <block end>" in problem):
        return "this line does not go on with the list above it", f"{_ALIKE} or begin it with '- '"
    if "',' or ']'" in problem or "',' or '}'" in problem:
        kind, end = ("list", "]") if "']'" in problem else ("mapping", "}")
        return f"the {kind} that begins on line {began} is not closed", f"add the missing '{end}' or ','"
    if "unexpected end of stream" in problem:
        return f"the quote that begins on line {began} is not closed", "add the quote at the end of the text"
    if "escape character" in problem:
        return "no such escape", "in double quotes write \\\\ for a backslash, or use single quotes"
    if "cannot start any token" in problem:
        return f"a value cannot begin with '{here if here.isprintable() else '?'}'", "put quotes around the value"
    if "could not find expected ':'" in problem:
        return "this is neither 'key: value' nor '- item'", f"add what is missing; {_ALIKE}"
    if "did not find expected key" in problem or "expected <block end>" in problem:
        if "{{" in line[:column]:
            return "the value begins with {{, which YAML takes for a mapping", "put quotes around the whole value"
        return "this does not go on with what is above or before it", f"{_ALIKE} or put quotes around the whole value"
    if "block sequence entries are not allowed" in problem:
        return "a list cannot begin here", "put '- ' on a line of its own, or write [a, b]"
    if "expected node content" in problem:
        return "a value is missing here", "write one, or put quotes around it when it begins with a special character"
    if "alias" in problem or "anchor" in problem:
        return "aliases (*name) are not allowed", "write the value out, or put quotes around it when '*' is part of it"
    return " ".join(part for part in (context, problem) if part) or "not valid YAML", _CHECK
