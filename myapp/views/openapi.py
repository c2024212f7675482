"""OpenAPI made from the routes' own declarations, so that it cannot say anything else than they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from werkzeug.routing import Map, Rule

from myapp.domain.documents import API_VERSION
from myapp.domain.permissions import Permission
from myapp.views.body import YAML_TYPES
from myapp.views.http import JSON_TYPE, DocumentBody, Raw, Route, declared_on
from myapp.views.schemas import ErrorReply

_REF = "#/components/schemas/{model}"
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    "number": {"type": "integer", "minimum": 0, "maximum": 10**9 - 1},
    "word": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
    "user": {"type": "string", "pattern": r"^[^/\x00-\x1f\x7f]{1,128}$"},
    "path": {"type": "string", "minLength": 1},
}
_STATUS = {
    200: "Done",
    201: "Made",
    202: "Accepted",
    204: "Done, nothing to say",
    206: "A part",
    304: "Not changed",
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found, or not visible to you",
    409: "In conflict with the present state",
    412: "Changed since you read it",
    413: "Too large",
    415: "Neither JSON nor YAML",
    416: "No such range",
    422: "Something in the request is wrong; `detail` says what",
    428: "If-Match is missing",
    429: "Too many attempts",
    500: "Something went wrong here",
    503: "Try again in a moment",
}
_REQUEST_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "Sending the same request again with the same key answers with the same run.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
    },
    "If-Match": {
        "description": "The ETag that was read.",
        "schema": {"type": "string", "pattern": '^("[0-9]{1,9}"|[*])$'},
    },
    "If-None-Match": {
        "description": "The ETag that is known.",
        "schema": {"type": "string", "pattern": '^"[0-9]{1,9}"$'},
    },
    "Last-Event-ID": {
        "description": "Id of the last event seen.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    },
    "Range": {"description": "A part of the file.", "schema": {"type": "string", "pattern": "^bytes=[0-9]{1,9}-$"}},
}


class DocumentSchema(BaseModel):
    """A document. The rules of its kind are in the manual; `POST /pipeline/validate` tells everything that is wrong."""

    apiVersion: str = Field(json_schema_extra={"const": API_VERSION})
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]


def describe(rules: Map, views: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """The whole document, for every route that declares itself and is not hidden."""
    found = [
        (rule, declared)
        for rule in rules.iter_rules()
        if (declared := declared_on(views.get(rule.endpoint))) and not declared.hidden
    ]
    schemas, components = _schemas(declared for _, declared in found)
    paths: dict[str, dict[str, Any]] = {}
    for rule, declared in sorted(found, key=lambda pair: (pair[0].rule, pair[1].methods)):
        entry = paths.setdefault(_template(rule.rule), {})
        for method in declared.methods:
            entry[method.lower()] = _operation(rule, declared, method, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cube Studio",
            "version": "v1",
            "description": "Errors are `{code, message, detail, resolution}`.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An access token or an API token."},
            },
        },
    }


def _schemas(routes: Iterable[Route]) -> tuple[dict[type[BaseModel], dict[str, Any]], dict[str, Any]]:
    bodies: dict[type[BaseModel], None] = {}
    replies: dict[type[BaseModel], None] = {ErrorReply: None}
    for declared in routes:
        if isinstance(declared.body, type):
            bodies[declared.body] = None
        for reply in declared.replies.values():
            if isinstance(reply, type):
                replies[reply] = None
    wanted = [*((m, "validation") for m in bodies), *((m, "serialization") for m in replies)]
    refs, definitions = models_json_schema(wanted, ref_template=_REF)  # type: ignore[arg-type]
    by_model: dict[Any, dict[str, Any]] = {model: schema for (model, _), schema in refs.items()}
    return by_model, definitions.get("$defs", {})


def _template(rule: str) -> str:
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", rule)


def _operation(
    rule: Rule, declared: Route, method: str, schemas: Mapping[type[BaseModel], dict[str, Any]]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": rule.endpoint.rpartition(".")[2],
        "summary": declared.summary,
        "tags": [declared.tag],
        "parameters": [*_path(rule), *_query(declared), *_headers(declared, method)],
        "responses": _responses(declared, schemas),
        "security": [] if declared.permission is Permission.PUBLIC else [{"bearer": []}],
        "x-permission": declared.permission.value,
    }
    if declared.description:
        operation["description"] = declared.description
    if declared.body is not None:
        operation["requestBody"] = _request_body(declared, schemas)
    return operation


def _path(rule: Rule) -> list[dict[str, Any]]:
    kinds = re.findall(r"<(?:([a-z]+):)?([a-z_]+)>", rule.rule)
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[kind or "word"]} for kind, name in kinds
    ]


def _query(declared: Route) -> list[dict[str, Any]]:
    schema = declared.query.model_json_schema(ref_template=_REF)
    out = []
    for name, field in schema.get("properties", {}).items():
        if name == "q":
            continue
        options = [o for o in field.pop("anyOf", ()) if o.get("type") != "null"]
        described = {"description": field.pop("description")} if "description" in field else {}
        field.pop("title", None)
        field.pop("default", None) if field.get("default") is None else None
        clean = {**field, **(options[0] if options else {})}
        out.append({"name": name, "in": "query", "required": False, "schema": clean, **described})
    return out


def _headers(declared: Route, method: str) -> list[dict[str, Any]]:
    required = {"If-Match"} if method == "PUT" else set()
    return [{"name": n, "in": "header", "required": n in required, **_REQUEST_HEADERS[n]} for n in declared.headers]


def _request_body(declared: Route, schemas: Mapping[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    if isinstance(declared.body, DocumentBody):
        schema: dict[str, Any] = {"description": "A document of any kind, right or wrong."}
        if declared.body.kind is not None:
            schema = DocumentSchema.model_json_schema()
            schema["properties"]["kind"] = {"const": declared.body.kind}
        content = {kind: {"schema": schema} for kind in (JSON_TYPE, YAML_TYPES[0])}
    else:
        assert declared.body is not None
        content = {JSON_TYPE: {"schema": schemas[declared.body]}}
    return {"required": not declared.body_optional, "content": content}


def _responses(declared: Route, schemas: Mapping[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for status, reply in declared.replies.items():
        entry: dict[str, Any] = {"description": _STATUS[status]}
        if isinstance(reply, Raw):
            entry = {"description": reply.description, "content": {reply.media_type: {"schema": {"type": "string"}}}}
        elif reply is not None:
            entry["content"] = {JSON_TYPE: {"schema": schemas[reply]}}
        if declared.reply_headers:
            entry["headers"] = {name: {"schema": {"type": "string"}} for name in declared.reply_headers}
        out[str(status)] = entry
    for status in declared.errors_possible:
        if str(status) not in out:
            out[str(status)] = {"description": _STATUS[status], "content": {JSON_TYPE: {"schema": schemas[ErrorReply]}}}
    return out
