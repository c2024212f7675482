"""Logs: the same call while they grow and afterwards."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from myapp.domain.naming import shown
from myapp.domain.permissions import Permission
from myapp.services.read_log import read_log
from myapp.views.blueprints import api
from myapp.views.http import Call, route
from myapp.views.query import MAX_ID, Query, Whole
from myapp.views.schemas import Reply

_SIGNED = re.compile(r"\A-?(0|[1-9][0-9]{0,17})\Z")


def _signed(value: object) -> object:
    if isinstance(value, str):
        if not _SIGNED.match(value):
            raise ValueError(f"expected a whole number, got {shown(value)}")
        return int(value)
    return value


Signed = Annotated[int, BeforeValidator(_signed, json_schema_input_type=int), Field(ge=-MAX_ID, le=MAX_ID, strict=True)]


class LogQuery(Query):
    attempt: Whole | None = Field(None, ge=1, le=2**31 - 1, description="Number of the attempt; default: the newest.")
    rank: Whole = Field(0, le=100_000)
    offset: Signed = Field(0, description="Byte to begin at; negative: counted from the end.")
    limit: Whole = Field(64 * 1024, ge=64, le=1024 * 1024, description="Most bytes in the answer.")


class LogPiece(Reply):
    """`eof`: nothing more will come; until then ask again from `next_offset`."""

    text: str
    offset: int
    next_offset: int
    eof: bool
    size: int
    attempt: int | None


class LogReply(Reply):
    result: LogPiece


@route(
    api,
    "/run/<id:run_id>/task/<word:key>/log",
    permission=Permission.LOG_READ,
    tag="run",
    query=LogQuery,
    reply=LogReply,
    errors=(404,),
)
def get_task_log(call: Call, run_id: int, key: str) -> Any:
    """A piece of a task's log"""
    query = call.query
    piece = read_log(
        call.context,
        call.actor,
        run_id,
        key,
        attempt=query.attempt,
        rank=query.rank,
        offset=query.offset,
        limit=query.limit,
    )
    return {"result": piece}
