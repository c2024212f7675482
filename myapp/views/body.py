"""Request bodies: JSON or YAML by Content-Type, bounded in size and depth, as plain JSON data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from flask import request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

from myapp.catalog.yamldoc import LoadedDocument, load_document
from myapp.domain.documents import problems_of
from myapp.domain.errors import CubeError, Invalid, Problem, invalid_document

MAX_BODY = 5 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 500_000
JSON_TYPE = "application/json"
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """What was sent. `loaded` knows the lines of YAML, to say where problems are; None for JSON."""

    data: Any
    loaded: LoadedDocument | None = None

    def locate(self, error: CubeError) -> CubeError:
        """The same error, its problems with the lines of the YAML they are about."""
        error.problems = self.located(error.problems)
        return error

    def located(self, problems: list[Problem]) -> list[Problem]:
        return problems if self.loaded is None else self.loaded.annotate(problems)


def read_document(*, yaml: bool = True) -> Document:
    """The body as data. Raises Invalid, or werkzeug's 413 and 415."""
    kind = (request.mimetype or "").lower()
    is_yaml = yaml and kind in YAML_TYPES
    if not is_yaml and kind != JSON_TYPE:
        accepted = JSON_TYPE + (" or application/yaml" if yaml else "")
        raise UnsupportedMediaType(f"Content-Type must be {accepted}" + (f", not {kind[:60]}" if kind else ""))
    raw = request.get_data(cache=False)
    if request.content_length is None and len(raw) >= MAX_BODY:
        raise RequestEntityTooLarge  # sent in chunks, and cut off at the limit
    if len(raw) < (request.content_length or 0):
        raise BadRequest("the connection ended before the whole body had come")  # half a document may look like one
    if not raw.strip():
        raise Invalid(
            "the request has no body", code="missing_body", resolution="Send the document as the request's body."
        )
    if is_yaml:
        return _yaml(raw)
    return Document(_json(raw))


def read_model(model: type[M], *, optional: bool = False) -> M:
    """A small JSON body as a model; with `optional`, no body stands for an empty object."""
    if optional and not request.content_length and not request.headers.get("Transfer-Encoding"):
        data: Any = {}
    else:
        data = read_document(yaml=False).data
    if not isinstance(data, dict):
        raise Invalid("the body must be a JSON object", code="wrong_type")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid_document("the body is not valid", problems_of(error, model)) from None


def _json(raw: bytes) -> Any:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(
            f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})",
            code="malformed_json",
            detail={"line": error.lineno, "column": error.colno},
        ) from None
    check_plain(data)
    return data


def _yaml(raw: bytes) -> Document:
    loaded = load_document(raw, max_bytes=MAX_BODY)
    return Document(loaded.value, loaded)


def check_plain(data: Any) -> None:
    """Refuse what no document needs and some database refuses: NUL characters, endless depth, endless size."""
    level, count = [(data, "")], 0
    for _depth in range(MAX_DEPTH):
        following: list[tuple[Any, str]] = []
        for value, path in level:
            if isinstance(value, dict):
                for key, item in value.items():
                    if "\0" in key:
                        raise Invalid(f"{path or 'the body'}: a key holds a NUL character", code="nul_character")
                    following.append((item, f"{path}.{key}" if path else key))
            elif isinstance(value, list):
                following.extend((item, f"{path}[{index}]") for index, item in enumerate(value))
            elif isinstance(value, str) and "\0" in value:
                problem = Problem(code="nul_character", message="text holds a NUL character", field=path[:300] or None)
                raise invalid_document("the body is not valid", [problem])
        count += len(following)
        if count > MAX_VALUES:
            raise Invalid(f"the body holds more than {MAX_VALUES} values", code="too_many_values")
        if not following:
            return
        level = following
    raise Invalid(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")
