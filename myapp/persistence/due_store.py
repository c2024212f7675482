"""What is due: rows whose `next_check_at` has come, and doorbells nobody has answered. The net below every event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, union_all, update

from myapp.domain.runs.phases import ATTEMPT_TERMINAL, AttemptPhase
from myapp.persistence.run_store import ATTEMPT, OUTBOX, PROJECT, RUN, TASK

_DUE_ATTEMPTS = (
    select(ATTEMPT.c.id, ATTEMPT.c.next_check_at)
    .where(ATTEMPT.c.next_check_at <= bindparam("b_now"), ATTEMPT.c.live_guard.is_not(None))
    .order_by(ATTEMPT.c.next_check_at)
    .limit(bindparam("b_limit"))
)
# By phase, not by the empty `live_guard`: SQLite would read the whole history by that column's index.
_UNREAPED = (
    select(ATTEMPT.c.id, ATTEMPT.c.backend, ATTEMPT.c.object_name, ATTEMPT.c.handle, PROJECT.c.slug.label("project"))
    .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
    .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
    .where(ATTEMPT.c.next_check_at <= bindparam("b_now"), ATTEMPT.c.phase.in_([str(p) for p in ATTEMPT_TERMINAL]))
    .order_by(ATTEMPT.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_DUE_TASKS = (
    select(TASK.c.run_id, TASK.c.next_check_at)
    .where(TASK.c.next_check_at <= bindparam("b_now"))
    .order_by(TASK.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_DUE_RUNS = (
    select(RUN.c.id, RUN.c.next_check_at)
    .where(RUN.c.next_check_at <= bindparam("b_now"))
    .order_by(RUN.c.next_check_at)
    .limit(bindparam("b_limit"))
)
_UNANSWERED = (
    select(OUTBOX.c.topic, OUTBOX.c.key, OUTBOX.c.created_at)
    .where(OUTBOX.c.created_at <= bindparam("b_before"))
    .order_by(OUTBOX.c.created_at)
    .limit(bindparam("b_limit"))
)


def due_attempts(connection: Connection, now: float, limit: int) -> dict[int, float]:
    """Live attempts to look at, and since when (unix seconds)."""
    return {r[0]: r[1] for r in connection.execute(_DUE_ATTEMPTS, {"b_now": now, "b_limit": limit})}


def due_runs(connection: Connection, now: float, limit: int) -> dict[int, float]:
    """Runs with something due, and since when: their own deadline, or a task whose back-off is over."""
    values = {"b_now": now, "b_limit": limit}
    found: dict[int, float] = {}
    for query in (_DUE_RUNS, _DUE_TASKS):
        for run_id, at in connection.execute(query, values):
            found[run_id] = max(at, found.get(run_id, at))
    return found


def unanswered(connection: Connection, before: float, limit: int) -> dict[tuple[str, str], float]:
    """Doorbells older than `before`, each once, with the moment of its oldest row."""
    found: dict[tuple[str, str], float] = {}
    for topic, key, at in connection.execute(_UNANSWERED, {"b_before": before, "b_limit": limit}):
        found.setdefault((topic, key), at)
    return found


def next_due(connection: Connection) -> float | None:
    """The earliest `next_check_at` of all."""
    columns = (ATTEMPT.c.next_check_at, TASK.c.next_check_at, RUN.c.next_check_at)
    query = union_all(
        *(select(c.label("at")).where(c.is_not(None)).order_by(c).limit(1).subquery().select() for c in columns)
    )
    return min((row[0] for row in connection.execute(query)), default=None)


def unreaped(connection: Connection, now: float, limit: int) -> Sequence[Any]:
    """Ended attempts whose objects may still exist and whose time has come, longest overdue first."""
    return connection.execute(_UNREAPED, {"b_now": now, "b_limit": limit}).all()


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


def look_later(connection: Connection, attempt_ids: Sequence[int], at: float) -> None:
    """Look at these again at `at`: what cannot be done now must not stand before what can."""
    if attempt_ids:
        connection.execute(update(ATTEMPT).where(ATTEMPT.c.id.in_(attempt_ids)).values(next_check_at=at))


def mark_reaped(connection: Connection, attempt_ids: Sequence[int]) -> None:
    if attempt_ids:
        connection.execute(update(ATTEMPT).where(ATTEMPT.c.id.in_(attempt_ids)).values(reaped=True, next_check_at=None))


def live_attempts_after(connection: Connection, after_guard: int, limit: int) -> dict[int, int]:
    """Attempts that have not ended, `live_guard` -> id, in the guard's order: by its index, whatever the history."""
    rows = connection.execute(
        select(ATTEMPT.c.live_guard, ATTEMPT.c.id)
        .where(ATTEMPT.c.live_guard > after_guard)
        .order_by(ATTEMPT.c.live_guard)
        .limit(limit)
    )
    return {row[0]: row[1] for row in rows}


def still_open(connection: Connection, attempt_ids: Iterable[int]) -> set[int]:
    """Those of the given attempts whose end nobody has noted yet."""
    wanted = sorted(attempt_ids)
    found: set[int] = set()
    phases = [str(p) for p in (AttemptPhase.PLANNED, AttemptPhase.ARMED, AttemptPhase.RELEASED)]
    for start in range(0, len(wanted), 500):
        query = select(ATTEMPT.c.id).where(ATTEMPT.c.id.in_(wanted[start : start + 500]), ATTEMPT.c.phase.in_(phases))
        found.update(connection.execute(query).scalars())
    return found
