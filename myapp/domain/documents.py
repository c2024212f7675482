"""What every document has in common: strict models, metadata, and problems made of pydantic's errors.

Documents are written in camelCase, unknown fields are errors, nothing is converted silently.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from myapp.domain.errors import Problem
from myapp.domain.naming import check_name, check_slug, did_you_mean, nearest, path_part, shown
from myapp.domain.quantities import BadQuantity, format_duration, parse_duration
from myapp.domain.templating import as_text, has_template

API_VERSION = "cube-studio.io/v1alpha1"
KINDS = ("AIJob", "Pipeline", "JobTemplate")
MAX_PROBLEMS = 1000
MAX_TEXT = 1024 * 1024


class Doc(BaseModel):
    """Base of every document model: immutable, strict, camelCase, unknown fields refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, allow_inf_nan=False, use_enum_values=True
    )

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON data in its written form, without what is unset or null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def _duration(value: object) -> float:
    return parse_duration(value)


def _timeout(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise BadQuantity("a timeout must be more than 0 seconds", resolution="leave it out for no timeout")
    return seconds


def _scalar_text(value: object) -> object:
    """Numbers and booleans where text is meant become their text; anything else is left for the type check."""
    return as_text(value) if isinstance(value, bool | int | float) else value


Duration = Annotated[float, BeforeValidator(_duration), PlainSerializer(format_duration, return_type=str)]
Timeout = Annotated[float, BeforeValidator(_timeout), PlainSerializer(format_duration, return_type=str)]
ScalarText = Annotated[str, BeforeValidator(_scalar_text)]


M = TypeVar("M", bound=BaseModel)


class Metadata(Doc):
    """`metadata` of a document. `project` defaults to the one the caller works in."""

    name: str
    project: str | None = None
    namespace: str | None = None
    title: str | None = None
    description: str | None = None
    category: str | None = None
    labels: dict[str, ScalarText] = Field(default_factory=dict)
    annotations: dict[str, ScalarText] = Field(default_factory=dict)

    def problems(self, field: str = "metadata") -> list[Problem]:
        found = [check_name(self.name, f"{field}.name")]
        if self.project is not None:
            found.append(check_slug(self.project, f"{field}.project"))
        return [p for p in found if p is not None]


def dotted(loc: Iterable[int | str], prefix: str = "") -> str:
    """`("spec", "tasks", 2, "args")` -> `spec.tasks[2].args`."""
    path = prefix
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{path_part(part)}" if path else path_part(part)
    return path


def parse_model(
    model: type[M], value: object, *, field: str = "", node: str | None = None, templated: bool = False
) -> tuple[M | None, list[Problem]]:
    """Validate data against a model, reporting every problem at once.

    With `templated`, a problem whose value is text with `{{` is dropped: its type is known only after rendering (the
    model is then None although there may be no problem).
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, problems_of(error, model, field=field, node=node, templated=templated)


def problems_of(
    error: ValidationError, model: type[BaseModel], *, field: str = "", node: str | None = None, templated: bool = False
) -> list[Problem]:
    """Pydantic's errors as Problems with dotted paths, known alternatives and remedies."""
    problems: list[Problem] = []
    found = error.errors(include_url=False)
    misspelt = _misspelt([tuple(item["loc"]) for item in found if item["type"] == "extra_forbidden"], model)
    for item in found:
        loc = tuple(item["loc"])
        if (templated and has_template(item["input"])) or (item["type"] == "missing" and loc in misspelt):
            continue
        code, message, resolution = _explain(dict(item), model, loc)
        where = dotted(loc, field)
        problems.append(Problem(code=code, message=message, field=where or None, node=node, resolution=resolution))
        if len(problems) >= MAX_PROBLEMS:
            break
    return problems


def _misspelt(unknown: Sequence[tuple[int | str, ...]], model: type[BaseModel]) -> set[tuple[int | str, ...]]:
    """The places of the fields that unknown ones were most likely meant to be: they are not missing as well."""
    near = ((loc[:-1], nearest(str(loc[-1]), known_fields(model, loc[:-1]))) for loc in unknown[:MAX_PROBLEMS])
    return {(*parent, name) for parent, name in near if name is not None}


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "mapping_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_LENGTHS = {
    "too_short": ("min_length", "at least", "items"),
    "too_long": ("max_length", "at most", "items"),
    "string_too_short": ("min_length", "at least", "characters"),
    "string_too_long": ("max_length", "at most", "characters"),
}


def _explain(item: dict[str, Any], model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, str, str | None]:
    kind, value, ctx = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        name = str(loc[-1])
        remedy = did_you_mean(name, known_fields(model, loc[:-1]), limit=25)
        return "unknown_field", f"unknown field {shown(name)}", remedy
    if kind == "missing":
        return "missing_field", "required field is missing", f"add '{loc[-1]}'"
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        remedy = "put it in quotes" if expected == "text" and isinstance(value, bool | int | float) else None
        if expected == "a list" and isinstance(value, str):
            remedy = "write a list such as [python, train.py]"
        return "wrong_type", f"expected {expected}, got {shown(value)}", remedy
    if kind == "literal_error":
        choices = [str(c) for c in literal_choices(model, loc)]
        close = nearest(value, choices) if isinstance(value, str) else None
        allowed = ("one of: " + ", ".join(choices)) if choices else str(ctx.get("expected", ""))
        return "not_allowed", f"{shown(value)} is not {allowed}", f"did you mean '{close}'?" if close else None
    if kind in _BOUNDS:
        key, word = _BOUNDS[kind]
        return "out_of_range", f"must be {word} {ctx[key]}, got {shown(value)}", None
    if kind in _LENGTHS:
        key, word, unit = _LENGTHS[kind]
        return "bad_length", f"must have {word} {ctx[key]} {unit}", None
    if kind == "value_error":
        cause = ctx.get("error")
        code = str(getattr(cause, "code", "invalid_value"))
        return code, str(cause), getattr(cause, "resolution", None)
    return "invalid_value", str(item["msg"]), None


def _models(annotation: Any) -> list[Any]:
    """The annotation's alternatives with Optional and Annotated taken off."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [m for arg in get_args(annotation) if arg is not type(None) for m in _models(arg)]
    return [annotation]


def _annotation(model: type[BaseModel], loc: Sequence[int | str]) -> list[Any]:
    current: list[Any] = [model]
    for part in loc:
        following: list[Any] = []
        for item in current:
            origin = get_origin(item)
            if isinstance(item, type) and issubclass(item, BaseModel):
                for name, info in item.model_fields.items():
                    if part in (name, info.alias):
                        following.extend(_models(info.annotation))
            elif origin is list or origin is tuple:
                following.extend(_models(get_args(item)[0]))
            elif origin is dict:
                following.extend(_models(get_args(item)[1]))
        current = following
    return current


def known_fields(model: type[BaseModel], loc: Sequence[int | str] = ()) -> list[str]:
    """The field names, as written in documents, of the model at `loc` below `model`."""
    return [
        info.alias or name
        for item in _annotation(model, loc)
        if isinstance(item, type) and issubclass(item, BaseModel)
        for name, info in item.model_fields.items()
    ]


def literal_choices(model: type[BaseModel], loc: Sequence[int | str]) -> list[Any]:
    return [c for item in _annotation(model, loc) if get_origin(item) is Literal for c in get_args(item)]


def check_header(doc: object, kind: str) -> list[Problem]:
    """`apiVersion` and `kind` of a document; also refuses what is not a mapping."""
    if not isinstance(doc, Mapping):
        return [Problem(code="wrong_type", message=f"expected a mapping with kind: {kind}, got {shown(doc)}")]
    problems: list[Problem] = []
    version, actual = doc.get("apiVersion"), doc.get("kind")
    if version != API_VERSION:
        message = "required field is missing" if version is None else f"{shown(version)} is not supported"
        remedy = f"use {API_VERSION}"
        problems.append(Problem(code="bad_api_version", message=message, field="apiVersion", resolution=remedy))
    if actual != kind:
        message = "required field is missing" if actual is None else f"expected {kind}, got {shown(actual)}"
        problems.append(Problem(code="bad_kind", message=message, field="kind", resolution=f"use kind: {kind}"))
    return problems


def kind_of(doc: object) -> tuple[str | None, list[Problem]]:
    """The kind of a document, for callers that take any of them."""
    if not isinstance(doc, Mapping):
        message = f"expected a mapping with apiVersion and kind, got {shown(doc)}"
        return None, [Problem(code="wrong_type", message=message)]
    kind = doc.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind, []
    message = "required field is missing" if kind is None else f"{shown(kind)} is not a known kind"
    remedy = did_you_mean(kind, KINDS) if isinstance(kind, str) else "use one of: " + ", ".join(KINDS)
    return None, [Problem(code="bad_kind", message=message, field="kind", resolution=remedy)]
