"""The events of a run as they happen: server-sent events over its history."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from flask import Response, request
from pydantic import Field
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from myapp.domain.errors import CubeError, Invalid
from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import RUN_TERMINAL
from myapp.services.context import Context
from myapp.services.read_events import events_after
from myapp.services.read_runs import read_run
from myapp.views.access import credential
from myapp.views.blueprints import api
from myapp.views.http import Call, Raw, route
from myapp.views.query import Query, Whole
from myapp.views.streams import KEEP_ALIVE_S, Waiter
from myapp.views.web import web

log = logging.getLogger(__name__)

_BATCH = 500
_LONGEST_S = 3600.0
_GATHER_S = 0.015  # after a look, changes that come together are read together
_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_STREAM = "text/event-stream"


class EventQuery(Query):
    after: Whole | None = Field(
        None, le=2**31 - 1, description="Cursor of the last event seen; default: from the beginning."
    )


@route(
    api,
    "/run/<id:run_id>/events",
    permission=Permission.RUN_READ,
    tag="run",
    query=EventQuery,
    replies={200: Raw(_STREAM, "Events `transition`, each with its cursor as id, and at last `end`.")},
    errors=(404,),
    headers=("Last-Event-ID",),
)
def get_run_events(call: Call, run_id: int) -> Any:
    """Follow a run

    The cursor is the event's id; a client that comes back with `Last-Event-ID` (or `after`) misses nothing.
    """
    after = _cursor(call.query.after)
    first = events_after(call.context, call.actor, run_id, after, 1)
    if request.method == "HEAD":
        return Response(mimetype=_STREAM, headers=_HEADERS)
    del first
    streams = web().streams
    waiter = streams.reserve(run_id, call.actor.user_id)
    stream = _Stream(call.context, call.actor, run_id, after, waiter, credential())
    response = Response(stream.chunks(), content_type=f"{_STREAM}; charset=utf-8", headers=_HEADERS)
    response.call_on_close(lambda: streams.release(waiter))
    return response


def _cursor(after: int | None) -> int:
    header = request.headers.get("Last-Event-ID")
    if header is None or header == "":
        return after or 0
    if not header.isascii() or not header.isdigit() or len(header) > 9:
        raise Invalid("Last-Event-ID is not an id of this stream", code="bad_cursor")
    return int(header)


class _Stream:
    """Holds no connection while it waits; looks again who is asking whenever it has waited long."""

    def __init__(
        self, context: Context, actor: Actor, run_id: int, after: int, waiter: Waiter, asking: Callable[[], Any]
    ) -> None:
        self._context = context
        self._actor = actor
        self._run_id = run_id
        self._after = after
        self._waiter = waiter
        self._asking = asking

    def chunks(self) -> Iterator[bytes]:
        yield b"retry: 2000\n\n"
        began = checked = time.monotonic()
        try:
            while not self._waiter.closing and time.monotonic() - began < _LONGEST_S:
                events = events_after(self._context, self._actor, self._run_id, self._after, _BATCH)
                read = time.monotonic()
                if events:
                    self._after = events[-1]["seq"]
                    yield b"".join(_event("transition", e["seq"], e) for e in events)
                if any(e["final"] for e in events) or (not events and self._ended()):
                    yield self._end()
                    return
                if len(events) == _BATCH:
                    continue
                self._waiter.wait(KEEP_ALIVE_S)
                if time.monotonic() - checked >= KEEP_ALIVE_S:
                    self._actor = self._asking().actor
                    checked = time.monotonic()
                    yield b": keep-alive\n\n"
                elif (early := read + _GATHER_S - time.monotonic()) > 0:
                    time.sleep(early)
        except CubeError as error:
            log.info("the events of run %s end: %s", self._run_id, error.code)
        except (SQLAlchemyError, RedisError, OSError) as error:
            log.warning("the events of run %s break off (%s)", self._run_id, type(error).__name__)

    def _ended(self) -> bool:
        return read_run(self._context, self._actor, self._run_id)["phase"] in RUN_TERMINAL

    def _end(self) -> bytes:
        run = read_run(self._context, self._actor, self._run_id)
        return _event("end", self._after, {"id": self._run_id, "phase": run["phase"], "reason": run["reason"]})


def _event(kind: str, cursor: int, data: dict[str, Any]) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (cursor, kind.encode(), orjson.dumps(data))
