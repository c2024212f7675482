"""Typed parameters: of pipelines (`params`) and of job templates (`args`), and the values given for them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from myapp.domain.documents import MAX_TEXT, Doc
from myapp.domain.errors import Problem
from myapp.domain.naming import check_identifier, did_you_mean, path_part, shown
from myapp.domain.patterns import MAX_INPUT, BadPattern, compile_pattern, matches
from myapp.domain.templating import has_template

MAX_STR = 64 * 1024
MAX_PARAMS = 200
MAX_JSON_DEPTH = 50
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

ParamType = Literal["str", "text", "int", "float", "bool", "choice", "list", "json"]
ArgType = Literal["str", "text", "int", "float", "bool", "choice", "list", "dict", "json", "file"]


class ValueSpec(Doc):
    """What a value must be. `min` and `max` bound a number, the length of text or the number of a list's items."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False
    default: Any = None
    min: float | None = None
    max: float | None = None
    choices: list[Any] | None = Field(default=None, max_length=1000)
    pattern: str | None = None

    @property
    def kind(self) -> str:
        return str(getattr(self, "type", "str"))


class ParamSpec(ValueSpec):
    """One parameter of a pipeline."""

    type: ParamType = "str"


class ArgSpec(ValueSpec):
    """One argument of a job template. `language` tells an editor how to show text."""

    type: ArgType = "str"
    language: str | None = None
    placeholder: str | None = None
    group: str | None = None
    secret: bool = False


def check_specs(specs: Sequence[ValueSpec], field: str) -> list[Problem]:
    """Everything wrong with the declarations themselves, their defaults included."""
    problems: list[Problem] = []
    if len(specs) > MAX_PARAMS:
        problems.append(Problem(code="too_many", message=f"at most {MAX_PARAMS} are allowed", field=field))
    seen: dict[str, int] = {}
    for i, spec in enumerate(specs):
        where = f"{field}[{i}]"
        if problem := check_identifier(spec.name, f"{where}.name"):
            problems.append(problem)
        if spec.name in seen:
            message = f"{shown(spec.name)} is declared twice, first as {field}[{seen[spec.name]}]"
            problems.append(Problem(code="duplicate_name", message=message, field=f"{where}.name"))
        seen.setdefault(spec.name, i)
        before = len(problems)
        problems.extend(_check_spec(spec, where))
        if spec.default is not None and len(problems) == before:
            problems.extend(check_value(spec, spec.default, f"{where}.default")[1])
    return problems


def _check_spec(spec: ValueSpec, where: str) -> list[Problem]:
    problems: list[Problem] = []

    def bad(part: str, message: str, resolution: str | None = None) -> None:
        problems.append(Problem(code="bad_param", message=message, field=f"{where}.{part}", resolution=resolution))

    if spec.kind == "choice" and not spec.choices:
        bad("choices", "a choice needs its choices", "add choices: [a, b]")
    for i, choice in enumerate(spec.choices or []):
        if choice is None or isinstance(choice, list | dict):
            bad(f"choices[{i}]", f"a choice is text, a number or true/false, not {shown(choice)}")
        elif spec.kind != "choice":
            problems.extend(_TYPES[spec.kind](choice, f"{where}.choices[{i}]")[1])
    if spec.choices and spec.kind in ("list", "dict", "json", "bool", "file"):
        bad("choices", f"choices do not apply to type {spec.kind}")
    if spec.min is not None and spec.max is not None and spec.min > spec.max:
        bad("min", f"min {spec.min:g} is above max {spec.max:g}")
    if (spec.min is not None or spec.max is not None) and spec.kind in ("bool", "choice", "dict", "json", "file"):
        bad("min" if spec.min is not None else "max", f"min and max do not apply to type {spec.kind}")
    if spec.pattern is not None:
        if spec.kind not in ("str", "text", "file"):
            bad("pattern", f"a pattern does not apply to type {spec.kind}")
        try:
            compile_pattern(spec.pattern)
        except BadPattern as error:
            problems.append(Problem(code="bad_pattern", message=error.message, field=f"{where}.pattern"))
    return problems


def resolve_params(
    specs: Sequence[ValueSpec], given: Mapping[str, Any], *, field: str = "params", lenient: bool = False,
    node: str | None = None, templates: bool = False,
) -> tuple[dict[str, Any], list[Problem]]:
    """The value of every declared parameter, and everything wrong with what was given.

    An optional parameter without default and value is None. With `lenient` (the command line, where all is text) text
    is read as the declared type. With `templates`, text with `{{` passes unchecked: check it again once rendered.
    """
    problems: list[Problem] = []
    known = {spec.name for spec in specs}
    values: dict[str, Any] = {}
    for name in given:
        if name not in known:
            problems.append(Problem(
                code="unknown_param", message=f"there is no {shown(name)}", field=f"{field}.{path_part(name)}",
                node=node, resolution=did_you_mean(str(name), known) or "remove it",
            ))
    for spec in specs:
        where = f"{field}.{spec.name}"
        value = given.get(spec.name)
        if value is None:
            if spec.required and spec.default is None:
                problems.append(Problem(code="missing_param", message="a value is required", field=where, node=node,
                                        resolution=spec.description))
            values[spec.name] = spec.default
        elif templates and has_template(value):
            values[spec.name] = value
        else:
            values[spec.name], found = check_value(spec, value, where, lenient=lenient)
            problems.extend(p.model_copy(update={"node": node}) for p in found)
    return values, problems


def check_value(
    spec: ValueSpec, value: Any, field: str, *, lenient: bool = False
) -> tuple[Any, list[Problem]]:
    """One value against its declaration: the value (ints become floats where floats are meant) and its problems."""
    if lenient and isinstance(value, str):
        value = _read_text(spec, value)
    if spec.kind == "choice":
        problems: list[Problem] = []
    else:
        value, problems = _TYPES[spec.kind](value, field)
    if problems:
        return value, problems
    if spec.choices and not any(_same(value, choice) for choice in spec.choices):
        listed = ", ".join(shown(choice, 40) for choice in spec.choices[:20])
        return value, [Problem(code="not_allowed", message=f"{shown(value)} is not one of: {listed}", field=field,
                               resolution=did_you_mean(str(value), [str(c) for c in spec.choices]))]
    return value, [*_check_range(spec, value, field), *_check_pattern(spec, value, field)]


def _check_range(spec: ValueSpec, value: Any, field: str) -> list[Problem]:
    if spec.min is None and spec.max is None:
        return []
    if isinstance(value, str | list):
        size, unit = len(value), "characters" if isinstance(value, str) else "items"
        said = f"has {size} {unit}"
    else:
        size, unit, said = value, "", f"is {shown(value)}"
    if spec.min is not None and size < spec.min:
        message = f"{said}; the least is {spec.min:.17g} {unit}".rstrip()
    elif spec.max is not None and size > spec.max:
        message = f"{said}; the most is {spec.max:.17g} {unit}".rstrip()
    else:
        return []
    return [Problem(code="out_of_range", message=message, field=field)]


def _check_pattern(spec: ValueSpec, value: Any, field: str) -> list[Problem]:
    if spec.pattern is None or not isinstance(value, str):
        return []
    if len(value) > MAX_INPUT:
        return [Problem(code="bad_length", message=f"must have at most {MAX_INPUT} characters", field=field)]
    try:
        good = matches(spec.pattern, value)
    except BadPattern as error:
        return [Problem(code="bad_pattern", message=error.message, field=field)]
    if good:
        return []
    return [Problem(code="no_match", message=f"{shown(value)} does not match {shown(spec.pattern, 200)}", field=field,
                    resolution=spec.description)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    return type(a) is type(b) and bool(a == b)


def _read_text(spec: ValueSpec, text: str) -> Any:
    """Text from a command line as the declared type; unreadable text is returned as it is, to be refused."""
    word = text.strip()
    try:
        match spec.kind:
            case "int":
                return int(word) if len(word) <= 20 else text
            case "float":
                return float(word)
            case "bool":
                return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[word.lower()]
            case "list" if not word.startswith("["):
                return [part.strip() for part in text.split(",")] if word else []
            case "list" | "dict" | "json":
                return json.loads(text)
            case "choice":
                return next((c for c in spec.choices or [] if str(c) == word or json.dumps(c) == word), text)
    except (ValueError, KeyError, RecursionError):
        pass
    return text


_Checked = tuple[Any, list[Problem]]


def _wrong(value: Any, expected: str, field: str, resolution: str | None = None) -> _Checked:
    message = f"expected {expected}, got {shown(value)}"
    return value, [Problem(code="wrong_type", message=message, field=field, resolution=resolution)]


def _text(limit: int) -> Callable[[Any, str], _Checked]:
    def check(value: Any, field: str) -> _Checked:
        if not isinstance(value, str):
            remedy = "put it in quotes" if isinstance(value, bool | int | float) else None
            return _wrong(value, "text", field, remedy)
        if len(value) > limit:
            message = f"has {len(value)} characters; the most is {limit}"
            return value, [Problem(code="too_large", message=message, field=field,
                                   resolution="keep it in a file of the workspace or pass it as an artifact")]
        if "\0" in value:
            return value, [Problem(code="bad_character", message="text may not hold a NUL character", field=field)]
        return value, []

    return check


def _int(value: Any, field: str) -> _Checked:
    if isinstance(value, bool) or not isinstance(value, int):
        return _wrong(value, "a whole number", field)
    if not INT_MIN <= value <= INT_MAX:
        return value, [Problem(code="out_of_range", message="does not fit 64 bits", field=field)]
    return value, []


def _float(value: Any, field: str) -> _Checked:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _wrong(value, "a number", field)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return value, [Problem(code="out_of_range", message="does not fit 64 bits", field=field)]
    if not math.isfinite(value):
        return _wrong(value, "a finite number", field)
    return float(value), []


def _bool(value: Any, field: str) -> _Checked:
    return (value, []) if isinstance(value, bool) else _wrong(value, "true or false", field, "write true or false")


def _list(value: Any, field: str) -> _Checked:
    return _json(value, field) if isinstance(value, list) else _wrong(value, "a list", field)


def _dict(value: Any, field: str) -> _Checked:
    return _json(value, field) if isinstance(value, dict) else _wrong(value, "a mapping", field)


def _json(value: Any, field: str) -> _Checked:
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_JSON_DEPTH:
            return value, [Problem(code="too_deep", message=f"nested deeper than {MAX_JSON_DEPTH} levels", field=field)]
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return value, [Problem(code="wrong_type", message="a mapping's keys must be text", field=field)]
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            stack.extend((child, depth + 1) for child in item)
        elif isinstance(item, str):
            if "\0" in item:
                return value, [Problem(code="bad_character", message="text may not hold a NUL character", field=field)]
        elif isinstance(item, float):
            if not math.isfinite(item):
                return _wrong(item, "a finite number", field)
        elif not (item is None or isinstance(item, bool | int)):
            return _wrong(item, "JSON data", field)
        elif isinstance(item, int) and not INT_MIN <= item <= INT_MAX:
            return value, [Problem(code="out_of_range", message="a number does not fit 64 bits", field=field)]
    return value, []


def _file(value: Any, field: str) -> _Checked:
    _, problems = _text(4096)(value, field)
    if problems:
        return value, problems
    parts = value.split("/")
    if not value or value.startswith("/") or ".." in parts or "\\" in value or not value.isprintable():
        message = f"{shown(value)} is not a path inside the workspace"
        return value, [Problem(code="bad_path", message=message, field=field, resolution="no '..', no leading '/'")]
    return value, []


_TYPES: dict[str, Callable[[Any, str], _Checked]] = {
    "str": _text(MAX_STR), "text": _text(MAX_TEXT), "int": _int, "float": _float, "bool": _bool,
    "list": _list, "dict": _dict, "json": _json, "file": _file,
}
