"""Patterns for parameters: a part of regular expressions that cannot take exponential time.

Literals, classes, groups, `|`, and `* + ? {m,n}`; no look-around, no back-references, no repetition of a group that
itself repeats or chooses, at most four repetitions and four choices of varying length, input of at most 128 characters.
"""

from __future__ import annotations

import re
from functools import lru_cache

from myapp.domain.errors import Invalid

MAX_PATTERN = 200
MAX_INPUT = 128
MAX_VARIABLE = 4
MAX_CHOICES = 4
MAX_COUNT = 1000
_BRACES = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.A)
_ESCAPES = frozenset("dDwWsSbtnr.^$*+?{}[]\\|()/-_ @#%&=:;,!'\"<>~`")


class BadPattern(Invalid, ValueError):
    """A pattern outside the accepted part of regular expressions."""

    code = "bad_pattern"


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> re.Pattern[str]:
    """The compiled pattern, to be used with `fullmatch`. Raises BadPattern."""
    if not 0 < len(text) <= MAX_PATTERN:
        raise BadPattern(f"a pattern has 1 to {MAX_PATTERN} characters")
    _check(text)
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"the pattern is not valid: {error}") from None


def matches(pattern: str, value: str) -> bool:
    """Whether the whole value (at most 128 characters) matches. Raises BadPattern."""
    return len(value) <= MAX_INPUT and compile_pattern(pattern).fullmatch(value) is not None


def _check(text: str) -> None:
    groups: list[bool] = []      # for each open group: does it repeat or choose inside
    last_group: bool | None = None   # the group just closed, when a quantifier would apply to one
    variable = choices = at = 0
    while at < len(text):
        char = text[at]
        at += 1
        closed, last_group = last_group, None
        if char == "\\":
            if at >= len(text) or text[at] not in _ESCAPES:
                raise BadPattern("the pattern has an escape other than \\d \\w \\s \\b and punctuation marks")
            at += 1
        elif char == "[":
            at = _skip_class(text, at)
        elif char == "(":
            if text.startswith("?", at):
                if not text.startswith("?:", at):
                    raise BadPattern("the pattern may not use look-around, flags or named groups")
                at += 2
            groups.append(False)
        elif char == ")":
            if not groups:
                raise BadPattern("the pattern has a ')' too many")
            last_group = groups.pop()
            if last_group and groups:
                groups[-1] = True
        elif char == "|":
            choices += 1
            if groups:
                groups[-1] = True
        elif char in "*+?{":
            varies, at = _quantifier(text, at - 1)
            if closed:
                raise BadPattern("the pattern may not repeat a group that itself repeats or chooses")
            variable += varies
            if varies and groups:
                groups[-1] = True
            if at < len(text) and text[at] in "+?*{":
                raise BadPattern("the pattern may not put one repetition on another")
    if groups:
        raise BadPattern("the pattern has a '(' that is not closed")
    if variable > MAX_VARIABLE or choices > MAX_CHOICES:
        raise BadPattern(f"the pattern may have at most {MAX_VARIABLE} repetitions and {MAX_CHOICES} choices")


def _skip_class(text: str, at: int) -> int:
    if text.startswith("^", at):
        at += 1
    if text.startswith("]", at):
        at += 1
    while at < len(text) and text[at] != "]":
        if text[at] == "[" or text[at : at + 2] in ("--", "&&", "||", "~~"):
            raise BadPattern("the pattern has a class with '[', '--', '&&', '||' or '~~' in it: put a \\ before each")
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise BadPattern("the pattern has a '[' that is not closed")
    return at + 1


def _quantifier(text: str, at: int) -> tuple[bool, int]:
    if text[at] != "{":
        return True, at + 1
    match = _BRACES.match(text, at)
    if not match:
        raise BadPattern("the pattern has a '{' that is not a count such as {2,5}; write \\{ for the character")
    low, high = int(match[1]), int(match[3]) if match[3] else None
    if low > MAX_COUNT or (high or 0) > MAX_COUNT:
        raise BadPattern(f"the pattern may count to at most {MAX_COUNT}")
    return bool(match[2]) and low != high, match.end()
