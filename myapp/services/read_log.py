"""The log of one rank of one attempt, piece by piece, the same while it grows and afterwards."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping

from myapp.domain.errors import NotFound
from myapp.domain.naming import shown
from myapp.domain.permissions import Actor, Permission
from myapp.domain.ports import LogSlice
from myapp.domain.runs.phases import ATTEMPT_TERMINAL, TASK_TERMINAL
from myapp.persistence.repositories import tasks
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.log_text import complete, safe_text
from myapp.services.read_runs import require_run
from myapp.storage.logs import MAX_READ

DEFAULT_LIMIT = 64 * 1024
MIN_LIMIT = 64


def read_log(
    ctx: Context,
    actor: Actor,
    run_id: int,
    task_key: str,
    *,
    attempt: int | None = None,
    rank: int = 0,
    offset: int = 0,
    limit: int = DEFAULT_LIMIT,
) -> dict[str, Any]:
    """`{text, offset, next_offset, eof, size, attempt}`: text from byte `offset`; go on at `next_offset` until `eof`.

    `attempt` None: the newest. A negative `offset` counts from the end. `limit`: bytes, 64 to 1 MiB. The text holds no
    NUL and no control sequences but colours; a character cut by the end of the piece comes with the next one.
    """
    with ctx.database.read() as connection:
        run = require_run(connection, actor, run_id, Permission.LOG_READ)
        task, found = _locate(connection, TenantScope.of(actor), run, task_key, attempt)
    if found is None:
        ended = task["phase"] in TASK_TERMINAL
        return {"text": "", "offset": 0, "next_offset": 0, "eof": ended, "size": 0, "attempt": None}
    place = (str(run["project"]), int(found["run_id"]), task_key, int(found["attempt_no"]))
    final = found["phase"] in ATTEMPT_TERMINAL
    limit = max(MIN_LIMIT, min(limit, MAX_READ))
    if offset < 0:
        offset = max(0, ctx.logs.size(*place, rank) + offset)
    piece = ctx.logs.read(*place, rank, offset, limit)
    size = max(ctx.logs.size(*place, rank), piece.next_offset)
    at_end = piece.next_offset >= size and (piece.eof or final)
    return _reply(piece, size, at_end, full=len(piece.data) >= limit) | {"attempt": place[3]}


def _locate(
    connection: Connection, scope: TenantScope, run: RowMapping, task_key: str, attempt: int | None
) -> tuple[RowMapping, RowMapping | None]:
    """The task and the attempt whose log is meant: of a task carried over from another run, that run's."""
    task = tasks.get_task(connection, scope, run["id"], task_key)
    if task is None:
        raise NotFound(f"run {run['id']} has no task {shown(task_key)}", code="task_not_found")
    origin = tasks.get_task_by_id(connection, scope, task["carried_from"]) if task["carried_from"] is not None else task
    found = None
    if origin is not None:
        found = tasks.get_attempt(connection, scope, origin["run_id"], origin["id"], attempt)
    if found is None and attempt is not None:
        raise NotFound(f"task {task_key} of run {run['id']} has no attempt {attempt}", code="attempt_not_found")
    return task, found


def _reply(piece: LogSlice, size: int, at_end: bool, *, full: bool) -> dict[str, Any]:
    used = complete(piece.data, final=at_end, full=full)
    return {
        "text": safe_text(piece.data[:used]),
        "offset": piece.offset,
        "next_offset": piece.offset + used,
        "eof": at_end,
        "size": size,
    }
