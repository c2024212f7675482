"""Routes of the API: each declares its permission, what it takes and what it answers; OpenAPI is made from that.

    @route(api, "/run/<id:run_id>", permission=Permission.RUN_READ, reply=RunReply, errors=(404,))
    def get_run(call: Call, run_id: int) -> Any: ...

A handler returns JSON data (200), an `Answer`, or a Flask response.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from flask import Blueprint, Response, g, request
from pydantic import BaseModel
from werkzeug.wrappers import Response as BaseResponse

from myapp.domain.errors import CubeError
from myapp.domain.permissions import Actor, Permission
from myapp.services.context import Context
from myapp.views.body import Document, read_document, read_model
from myapp.views.query import Query, parse_query
from myapp.views.web import web

JSON_TYPE = "application/json"
_ORJSON = orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True)
class DocumentBody:
    """A body that is a document, as JSON or YAML; `kind` as in the document, None for any, right or wrong."""

    kind: str | None = None


@dataclass(frozen=True)
class Raw:
    """A reply that is not JSON."""

    media_type: str
    description: str


@dataclass(frozen=True)
class Route:
    """The declaration of one route. `replies`: status to model, `Raw`, or None for an empty body."""

    permission: Permission
    methods: tuple[str, ...] = ("GET",)
    tag: str = ""
    summary: str = ""
    description: str = ""
    query: type[Query] = Query
    body: type[BaseModel] | DocumentBody | None = None
    body_optional: bool = False
    replies: Mapping[int, type[BaseModel] | Raw | None] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()  # request headers it looks at
    reply_headers: tuple[str, ...] = ()
    page: bool = False  # answers a browser: signs in by a redirect, errors are pages
    form: bool = False  # checks its own form's CSRF token, before anybody is signed in
    hidden: bool = False  # not in the OpenAPI document

    @property
    def errors_possible(self) -> tuple[int, ...]:
        """Error statuses any caller must expect, from the declaration itself."""
        found = set(self.errors) | {500, 503}
        if self.permission is not Permission.PUBLIC:
            found |= {401, 403}
        if set(self.methods) & {"POST", "PUT", "DELETE"} and self.permission is not Permission.PUBLIC:
            found.add(400)  # a browser session without its CSRF token
        if self.body is not None:
            found |= {413, 415, 422}
        return tuple(sorted(found | {422}))


@dataclass(frozen=True)
class Answer:
    """A JSON reply with its own status and headers."""

    data: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request, checked: `query` and `body` are instances of what the route declares (`Document` for documents)."""

    actor: Actor
    context: Context
    query: Any
    body: Any


Handler = Callable[..., Any]


def route(blueprint: Blueprint, rule: str, **declaration: Any) -> Callable[[Handler], Handler]:
    """Register a handler and its declaration: `Route`'s keywords, with `reply` short for `replies={200: ...}`."""
    reply = declaration.pop("reply", None)
    if reply is not None:
        declaration["replies"] = {200: reply}

    def register(handler: Handler) -> Handler:
        doc = (handler.__doc__ or "").strip().split("\n\n", 1)
        declaration.setdefault("summary", " ".join(doc[0].split()).rstrip("."))
        declaration.setdefault("description", " ".join(doc[1].split()) if len(doc) > 1 else "")
        declared = Route(**declaration)

        @functools.wraps(handler)
        def view(**path: Any) -> BaseResponse:
            call = Call(current_actor(), web().context, parse_query(declared.query, request.args), _body(declared))
            try:
                return respond(handler(call, **path))
            except CubeError as error:
                raise (call.body.locate(error) if isinstance(call.body, Document) else error) from None

        declare(view, declared)
        blueprint.add_url_rule(rule, endpoint=handler.__name__, view_func=view, methods=list(declared.methods))
        return handler

    return register


def declare(view: Callable[..., Any], declared: Route) -> None:
    view.__cube_route__ = declared  # type: ignore[attr-defined]


def declared_on(view: Callable[..., Any] | None) -> Route | None:
    found = getattr(view, "__cube_route__", None)
    return found if isinstance(found, Route) else None


def _body(declared: Route) -> Any:
    if declared.body is None:
        return None
    if isinstance(declared.body, DocumentBody):
        return read_document()
    return read_model(declared.body, optional=declared.body_optional)


def current_actor() -> Actor:
    """Who is asking; on public routes somebody who may do nothing."""
    actor = g.get("cube_actor")
    return (
        actor if isinstance(actor, Actor) else Actor(user_id=0, username="anonymous", address=request.remote_addr or "")
    )


def respond(value: Any) -> BaseResponse:
    if isinstance(value, BaseResponse):
        return value
    answer = value if isinstance(value, Answer) else Answer(value)
    if answer.status == 204:
        return Response(status=204, headers=dict(answer.headers))
    return json_response(answer.data, answer.status, answer.headers)


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    response = Response(orjson.dumps(data, option=_ORJSON), status=status, mimetype=JSON_TYPE)
    if headers:
        response.headers.update(headers)
    return response
