"""Conditions of a task: `{{ tasks.evaluate.outputs.accuracy }} >= 0.95`.

One comparison: operand, operator, operand. An operand is a reference, a number, quoted text, a bare word, `true`,
`false`, `null`, or (right of `in`, `not in`) a list such as `[a, b, 3]`. Nothing else, so there is nothing to evaluate
but a comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from myapp.domain.errors import Invalid, Problem
from myapp.domain.naming import shown
from myapp.domain.templating import Bad, Context, Ref, Vocabulary, as_text, lookup, scan

MAX_CONDITION = 1000
_REMEDY = "write one comparison such as {{ params.mode }} == 'full' or {{ tasks.evaluate.outputs.accuracy }} >= 0.95"
_TOKEN = re.compile(
    r"\s*(?:(?P<ref>\{\{.*?\}\})|(?P<op>==|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b)|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<punct>[\[\],])|(?P<word>[^\s\[\],<>=!'\"{}]+))",
    re.S,
)
_INT = re.compile(r"\A[+-]?[0-9]{1,19}\Z")
_FLOAT = re.compile(r"\A[+-]?(?:[0-9]{1,19}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?\Z")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Literal:
    value: Any


Operand = Ref | Literal


@dataclass(frozen=True)
class Condition:
    """A parsed comparison. `right` is a tuple of operands for `in` and `not in` with a list."""

    text: str
    left: Operand
    op: str
    right: Operand | tuple[Operand, ...]

    @classmethod
    def parse(cls, text: str, *, field: str = "") -> Condition:
        """Raises Invalid, naming the field, for anything but one comparison."""
        if len(text) > MAX_CONDITION:
            raise _bad(f"a condition may have at most {MAX_CONDITION} characters", field)
        tokens = _tokens(text, field)
        if len(tokens) < 3 or tokens[1][0] != "op":
            raise _bad(f"{shown(text)} is not a comparison", field)
        left = _operand(tokens[0], text, field)
        op = " ".join(tokens[1][1].split())
        rest = tokens[2:]
        if rest[0] == ("punct", "["):
            if op not in ("in", "not in"):
                raise _bad("a list is compared with 'in' or 'not in'", field)
            return cls(text, left, op, _list(rest, text, field))
        if len(rest) != 1:
            raise _bad(f"{shown(text)} holds more than one comparison; give each its own line under 'when'", field)
        return cls(text, left, op, _operand(rest[0], text, field))

    def references(self) -> list[Ref]:
        right = self.right if isinstance(self.right, tuple) else (self.right,)
        return [operand for operand in (self.left, *right) if isinstance(operand, Ref)]

    def check(self, vocabulary: Vocabulary, *, field: str = "", node: str | None = None) -> list[Problem]:
        """Unknown references, and a comparison that looks at nothing of the run."""
        refs = self.references()
        problems = [
            Problem(code="unknown_reference", message=f"{{{{ {ref} }}}}: {message}", field=field or None, node=node,
                    resolution=vocabulary.remedy(ref))
            for ref in refs if (message := vocabulary.problem(ref))
        ]
        if not refs:
            problems.append(Problem(code="bad_condition", message="compares nothing of the run", field=field or None,
                                    node=node, resolution=_REMEDY))
        return problems

    def evaluate(self, context: Context, *, field: str = "") -> bool:
        """Whether it holds. Raises Invalid when a reference has no value or the two cannot be ordered."""
        left, right = self._values(context, field)
        if self.op in ("==", "!="):
            return equal(left, right) is (self.op == "==")
        if self.op in ("in", "not in"):
            return _within(left, right, self.text, field) is (self.op == "in")
        order = _order(left, right)
        if order is None:
            message = f"{shown(self.text)}: {shown(left)} and {shown(right)} have no order"
            raise _bad(message, field, code="cannot_compare")
        return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[self.op]


    def with_values(self, context: Context) -> str:
        """The text, then what was compared: `{{ params.seed }} >= 3 (2 >= 3)`. Raises Invalid without a value."""
        left, right = self._values(context, "")
        shown_left, shown_right = _shown(left), _shown(right)
        if shown_left == shown_right and not equal(left, right):
            shown_left, shown_right = _shown(left, exact=True), _shown(right, exact=True)
        return f"{self.text} ({shown_left} {self.op} {shown_right})"

    def _values(self, context: Context, field: str) -> tuple[Any, Any]:
        if isinstance(self.right, tuple):
            right: Any = [_value(operand, context, field) for operand in self.right]
        else:
            right = _value(self.right, context, field)
        return _value(self.left, context, field), right


def check_conditions(
    texts: Sequence[str], vocabulary: Vocabulary, *, field: str, node: str | None = None
) -> tuple[list[Condition], list[Problem]]:
    """Parse and check a task's conditions, reporting every problem of every one."""
    parsed: list[Condition] = []
    problems: list[Problem] = []
    for i, text in enumerate(texts):
        where = f"{field}[{i}]"
        try:
            condition = Condition.parse(text, field=where)
        except Invalid as error:
            problems.extend(p.model_copy(update={"node": node}) for p in error.problems)
            continue
        parsed.append(condition)
        problems.extend(condition.check(vocabulary, field=where, node=node))
    return parsed, problems


def number(value: Any) -> float | int | None:
    """The number a value is or spells, else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        text = value.strip()
        if _INT.match(text):
            return int(text)
        if _FLOAT.match(text) and math.isfinite(result := float(text)):
            return result
    return None


def equal(left: Any, right: Any) -> bool:
    """Numbers by value (also when one is spelled as text), everything else by its text; null only equals null."""
    if left is None or right is None:
        return left is right
    a, b = number(left), number(right)
    if a is not None and b is not None and not (isinstance(left, str) and isinstance(right, str)):
        return a == b
    return as_text(left) == as_text(right)


def _shown(value: Any, *, exact: bool = False) -> str:
    """A value as a condition would write it, in at most 60 characters; fractions to 6 digits unless `exact`."""
    if value is None:
        return "null"
    if isinstance(found := number(value), float) and not exact:
        return f"{found:.6g}"
    text = f"'{value}'" if isinstance(value, str) and number(value) is None else as_text(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 60 else text[:59] + "…"


def _order(left: Any, right: Any) -> int | None:
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return (a > b) - (a < b)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    return None


def _within(left: Any, right: Any, text: str, field: str) -> bool:
    if isinstance(right, list):
        return any(equal(left, item) for item in right)
    if isinstance(right, dict):
        return as_text(left) in right
    if isinstance(right, str):
        return as_text(left) in right
    raise _bad(f"{shown(text)}: {shown(right)} is not a list or text", field, code="cannot_compare")


def _value(operand: Operand, context: Context, field: str) -> Any:
    return operand.value if isinstance(operand, Literal) else lookup(operand.path, context, field=field)


def _tokens(text: str, field: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match or match.lastgroup is None:
            raise _bad(f"cannot read {shown(text[at : at + 40].strip())} in the condition", field)
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _operand(token: tuple[str, str], text: str, field: str) -> Operand:
    kind, raw = token
    if kind == "ref":
        part = scan(raw)[0]
        if isinstance(part, Ref):
            return Ref(part.path, field)
        raise _bad(part.message if isinstance(part, Bad) else f"cannot read {shown(raw)}", field)
    if kind == "text":
        return Literal(raw[1:-1])
    if kind != "word":
        raise _bad(f"{shown(raw)} stands where a value should in {shown(text)}", field)
    if raw in _WORDS:
        return Literal(_WORDS[raw])
    value = number(raw)
    return Literal(raw if value is None else value)


def _list(tokens: list[tuple[str, str]], text: str, field: str) -> tuple[Operand, ...]:
    if tokens[-1] != ("punct", "]"):
        raise _bad(f"the list in {shown(text)} is not closed with ']'", field)
    inner = tokens[1:-1]
    items = [_operand(token, text, field) for token in inner[::2]]
    if any(token != ("punct", ",") for token in inner[1::2]) or (inner and len(inner) % 2 == 0):
        raise _bad(f"the list in {shown(text)} is not items separated by ','", field)
    return tuple(items)


def _bad(message: str, field: str, *, code: str = "bad_condition") -> Invalid:
    problem = Problem(code=code, message=message, field=field or None, resolution=_REMEDY)
    return Invalid(f"{field}: {message}" if field else message, code=code, problems=[problem], resolution=_REMEDY)
