"""What is due: rows whose `next_check_at` has come, and doorbells nobody has answered. The net below every event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, union_all, update

from myapp.domain.runs.phases import ATTEMPT_TERMINAL
from myapp.persistence.run_store import ATTEMPT, OUTBOX, PROJECT, RUN, TASK

_DUE_ATTEMPTS = (
    select(ATTEMPT.c.id)
    .where(ATTEMPT.c.next_check_at <= bindparam("b_now"))
    .order_by(ATTEMPT.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_DUE_TASKS = (
    select(TASK.c.run_id)
    .where(TASK.c.next_check_at <= bindparam("b_now"))
    .order_by(TASK.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_DUE_RUNS = (
    select(RUN.c.id)
    .where(RUN.c.next_check_at <= bindparam("b_now"))
    .order_by(RUN.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_UNANSWERED = (
    select(OUTBOX.c.topic, OUTBOX.c.key)
    .where(OUTBOX.c.created_at <= bindparam("b_before"))
    .order_by(OUTBOX.c.created_at)
    .limit(bindparam("b_limit"))
)


def due_attempts(connection: Connection, now: float, limit: int) -> list[int]:
    return list(connection.execute(_DUE_ATTEMPTS, {"b_now": now, "b_limit": limit}).scalars())


def due_runs(connection: Connection, now: float, limit: int) -> list[int]:
    """Runs with something due: their own deadline, or a task whose back-off is over."""
    values = {"b_now": now, "b_limit": limit}
    found = dict.fromkeys(connection.execute(_DUE_RUNS, values).scalars())
    found.update(dict.fromkeys(connection.execute(_DUE_TASKS, values).scalars()))
    return list(found)


def unanswered(connection: Connection, before: float, limit: int) -> list[tuple[str, str]]:
    """Doorbells older than `before`, each once."""
    rows = connection.execute(_UNANSWERED, {"b_before": before, "b_limit": limit})
    return list(dict.fromkeys((r[0], r[1]) for r in rows))


def next_due(connection: Connection) -> float | None:
    """The earliest `next_check_at` of all."""
    columns = (ATTEMPT.c.next_check_at, TASK.c.next_check_at, RUN.c.next_check_at)
    query = union_all(
        *(select(c.label("at")).where(c.is_not(None)).order_by(c).limit(1).subquery().select() for c in columns)
    )
    return min((row[0] for row in connection.execute(query)), default=None)


def ended_unreaped(connection: Connection, attempt_ids: Sequence[int]) -> Sequence[Any]:
    """Those of the given attempts that have ended and whose objects may still exist."""
    return connection.execute(
        select(
            ATTEMPT.c.id, ATTEMPT.c.backend, ATTEMPT.c.object_name, ATTEMPT.c.handle, PROJECT.c.slug.label("project")
        )
        .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
        .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
        .where(ATTEMPT.c.id.in_(attempt_ids), ATTEMPT.c.phase.in_([str(p) for p in ATTEMPT_TERMINAL]))
    ).all()


def owners(connection: Connection, backend: str, object_names: Sequence[str]) -> dict[str, Any]:
    """The attempts that backend objects belong to, by object name."""
    found: dict[str, Any] = {}
    for start in range(0, len(object_names), 500):
        rows = connection.execute(
            select(ATTEMPT.c.object_name, ATTEMPT.c.id, ATTEMPT.c.phase, ATTEMPT.c.handle).where(
                ATTEMPT.c.backend == backend, ATTEMPT.c.object_name.in_(object_names[start : start + 500])
            )
        )
        found.update((row.object_name, row) for row in rows)
    return found


def mark_reaped(connection: Connection, attempt_ids: Sequence[int]) -> None:
    if attempt_ids:
        connection.execute(update(ATTEMPT).where(ATTEMPT.c.id.in_(attempt_ids)).values(reaped=True, next_check_at=None))


def live_attempts_after(connection: Connection, after_id: int, limit: int) -> list[int]:
    """Attempts that have not ended, by id, from `after_id` on: by their guard's index, however long the history."""
    return list(
        connection.execute(
            select(ATTEMPT.c.id)
            .where(ATTEMPT.c.live_guard.is_not(None), ATTEMPT.c.id > after_id)
            .order_by(ATTEMPT.c.id)
            .limit(limit)
        ).scalars()
    )
