"""Query parameters as models: plain (`?phase=running`) or Flask-AppBuilder's rison (`?q=(page:0,filters:!(...))`)."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

import prison
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from werkzeug.datastructures import MultiDict

from myapp.domain.documents import problems_of
from myapp.domain.errors import Invalid, Problem, invalid_document
from myapp.domain.naming import shown

MAX_ID = 2**63 - 1
MAX_PAGE_SIZE = 500
_DIGITS = re.compile(r"\A(0|[1-9][0-9]{0,18})\Z")
_MAX_RISON = 4096
_RISON_KEYS = frozenset({"page", "page_size", "filters", "order_column", "order_direction"})


def _whole(value: object) -> object:
    if isinstance(value, str):
        if not _DIGITS.match(value):
            raise ValueError(f"expected a whole number, got {shown(value)}")
        return int(value)
    return value


Whole = Annotated[int, BeforeValidator(_whole, json_schema_input_type=int), Field(ge=0, le=MAX_ID, strict=True)]


class Query(BaseModel):
    """Base of every route's query parameters: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListQuery(Query):
    """A page of a list: by `before`, the `next` of the page before it (its cost does not grow), or by number."""

    q: str | None = Field(
        None, max_length=_MAX_RISON, description="Flask-AppBuilder's rison form of the same parameters."
    )
    page: Whole = Field(0, le=1_000_000, description="Number of the page, from 0.")
    page_size: Whole = Field(50, ge=1, le=MAX_PAGE_SIZE, description="Rows on a page.")


Q = TypeVar("Q", bound=Query)


def parse_query(model: type[Q], args: MultiDict[str, str]) -> Q:
    """The request's query parameters. Raises Invalid, naming each bad one."""
    raw: dict[str, Any] = {}
    for name, values in args.lists():
        if len(values) > 1:
            raise _bad(name, "repeated", "given more than once")
        if "\0" in name or "\0" in values[0]:
            raise _bad(name.replace("\0", "?"), "nul_character", "holds a NUL character")
        raw[name] = values[0]
    if "q" in raw and "q" in model.model_fields:
        raw = {**_rison(raw["q"]), **raw}
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid_document("the query is not valid", problems_of(error, model)) from None


def _rison(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        if len(text) > _MAX_RISON or text.count("(") > 200:
            raise ValueError("too long")
        data = prison.loads(text)
    except Exception:  # the parser raises whatever it stumbles over
        raise _bad("q", "malformed_rison", "is not rison such as (page:0,page_size:50)") from None
    if not isinstance(data, dict):
        raise _bad("q", "malformed_rison", "must be a rison object such as (page:0,page_size:50)")
    unknown = sorted(str(key) for key in data if key not in _RISON_KEYS)
    if unknown:
        raise _bad(f"q.{unknown[0][:60]}", "unknown_field", "is not known")
    _check_order(data)
    found: dict[str, Any] = {key: _plain(f"q.{key}", data[key]) for key in ("page", "page_size") if key in data}
    filters = data.get("filters", [])
    if not isinstance(filters, list):
        raise _bad("q.filters", "wrong_type", "must be a list such as !((col:phase,opr:eq,value:running))")
    for index, item in enumerate(filters):
        where = f"q.filters[{index}]"
        if not isinstance(item, dict) or set(item) != {"col", "opr", "value"} or not isinstance(item["col"], str):
            raise _bad(where, "wrong_type", "must be (col:...,opr:eq,value:...)")
        if item["opr"] != "eq":
            raise _bad(f"{where}.opr", "not_allowed", "must be eq")
        found[item["col"]] = _plain(f"{where}.value", item["value"])
    return found


def _check_order(data: dict[str, Any]) -> None:
    if data.get("order_column", "id") not in ("id", "") or data.get("order_direction", "desc") not in ("desc", ""):
        raise _bad("q.order_column", "not_allowed", "lists are ordered by id, newest first")


def _plain(where: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str) and "\0" not in str(value):
        return str(value)
    raise _bad(where, "wrong_type", "must be text or a whole number")


def _bad(name: str, code: str, message: str) -> Invalid:
    problem = Problem(code=code, message=message, field=name[:100])
    return invalid_document("the query is not valid", [problem])
