"""One shape for every error: `{code, message, detail, resolution}`, or a page for a browser that asked for one."""

from __future__ import annotations

import logging
import math
import secrets
from typing import Any

from flask import Flask, current_app, g, request
from gunicorn.http.errors import NoMoreData, ParseException
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.wrappers import Response

from myapp.domain.errors import CubeError, Unauthenticated, Unavailable
from myapp.domain.runs.transitions import StaleRow
from myapp.views.access import who_if_any
from myapp.views.http import declared_on, json_response
from myapp.views.page import page
from myapp.views.words import error_words

log = logging.getLogger(__name__)

_HTTP_CODES = {
    400: ("bad_request", None),
    404: ("not_found", "Check the address: the routes are listed at /api/v1/_openapi."),
    405: ("method_not_allowed", None),
    413: ("too_large", "The largest body accepted is 5 MiB."),
    414: ("too_large", None),
    415: ("unsupported_media_type", "Send application/json or, for documents, application/yaml."),
    416: ("bad_range", None),
}
_RETRY_S = 5
_MOST_DRAINED = 16 * 1024 * 1024


def install(app: Flask) -> None:
    app.register_error_handler(CubeError, on_cube_error)
    app.register_error_handler(HTTPException, on_http_error)
    app.register_error_handler(Exception, on_exception)


def on_cube_error(error: CubeError) -> Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    elif isinstance(error, Unavailable):
        headers["Retry-After"] = str(_RETRY_S)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return _reply(error.status, error.body(), headers)


def on_http_error(error: HTTPException) -> Response:
    if error.response is not None:
        return error.get_response()
    status = error.code or 500
    if status == 413:
        _drain()
    code, resolution = _HTTP_CODES.get(status, (str(error.name).lower().replace(" ", "_"), None))
    message = "there is nothing at this address" if status == 404 else str(error.description or error.name)
    headers = {k: v for k, v in error.get_headers() if k.lower() not in ("content-type", "content-length")}
    return _reply(status, {"code": code, "message": message, "detail": None, "resolution": resolution}, headers)


def _drain() -> None:
    """Take in some of what is still being sent: many clients read the answer only when they could send everything."""
    if not request.environ.get("wsgi.input_terminated"):
        return
    body, left = request.environ["wsgi.input"], _MOST_DRAINED
    try:
        while left > 0 and (block := body.read(64 * 1024)):
            left -= len(block)
    except (OSError, ParseException):
        pass


def on_exception(error: Exception) -> Response:
    if isinstance(error, StaleRow):
        body = {
            "code": "changed_meanwhile",
            "message": "somebody changed this at the same moment",
            "detail": None,
            "resolution": "Try again.",
        }
        return _reply(409, body, {})
    if isinstance(error, ParseException | NoMoreData):
        return on_http_error(BadRequest("the body was not sent as HTTP demands, or not to its end"))
    unavailable = _unavailable(error)
    if unavailable:
        log.warning("%s %s: %s (%s)", request.method, request.path, unavailable, type(error).__name__)
        body = {"code": "unavailable", "message": unavailable, "detail": None, "resolution": "Try again in a moment."}
        return _reply(503, body, {"Retry-After": str(_RETRY_S)})
    incident = secrets.token_hex(6)
    log.error("incident %s: %s %s", incident, request.method, request.path, exc_info=error)
    failure: dict[str, Any] = {
        "code": "internal_error",
        "message": "something went wrong in the platform",
        "detail": {"incident": incident},
        "resolution": f"Tell an administrator the incident number {incident}: the log has the cause.",
    }
    return _reply(500, failure, {})


def _unavailable(error: Exception) -> str | None:
    if isinstance(error, RedisError):
        return "the message broker does not answer"
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError):
        return "the database does not answer"
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return "the database does not answer"
    return None


def _reply(status: int, body: dict[str, Any], headers: dict[str, str]) -> Response:
    if not _wants_page():
        return json_response(body, status, headers)
    if "cube_actor" not in g and status < 500:
        try:
            g.cube_actor = who_if_any()
        except (CubeError, SQLAlchemyError):
            g.cube_actor = None
    title, lead = error_words(status, body)
    response = page("cube/error.html", status, title=title, lead=lead, number=status)
    response.headers.update(headers)
    return response


def _wants_page() -> bool:
    if request.path.startswith("/api/"):
        return False
    declared = declared_on(current_app.view_functions.get(request.endpoint or ""))
    if declared is not None:
        return declared.page
    return (
        request.accept_mimetypes.accept_html and not request.accept_mimetypes.accept_json
    ) or request.accept_mimetypes["text/html"] > request.accept_mimetypes["application/json"]
