"""The run engine's own queries: platform-wide, never answered to a person. Statements are built once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, Table, bindparam, func, insert, select, update

from myapp.domain.runs.phases import ATTEMPT_LIVE, TASK_TERMINAL, TaskPhase
from myapp.models import (
    Allocation,
    Attempt,
    Flavor,
    LogChunk,
    Metric,
    Outbox,
    Output,
    PipelineVersion,
    Project,
    Run,
    TaskRun,
)

RUN, TASK, ATTEMPT = (cast(Table, t) for t in (Run.__table__, TaskRun.__table__, Attempt.__table__))
ALLOCATION, OUTBOX, PROJECT, OUTPUT = (
    cast(Table, t) for t in (Allocation.__table__, Outbox.__table__, Project.__table__, Output.__table__)
)
METRIC, LOG_CHUNK = (cast(Table, t) for t in (Metric.__table__, LogChunk.__table__))
_OPEN_TASK = [str(p) for p in TaskPhase if p not in TASK_TERMINAL]
_LIVE = [str(p) for p in ATTEMPT_LIVE]
_HOLDING = [str(TaskPhase.QUEUED), str(TaskPhase.ADMITTED), str(TaskPhase.ACTIVE)]
WAKEABLE = ""  # `waits_for` of a blocked task that waits for nothing more
IN_CHUNK = 500


@dataclass(frozen=True)
class Artifact:
    """An artifact among outputs: its path relative to the store."""

    path: str


_ATTEMPT_FULL = (
    select(
        ATTEMPT,
        TASK.c.node_key,
        TASK.c.spec,
        TASK.c.spec_sha256,
        TASK.c.phase.label("task_phase"),
        TASK.c.version.label("task_version"),
        TASK.c.user_failures,
        TASK.c.infra_failures,
        TASK.c.allow_failure,
        RUN.c.desired,
        RUN.c.project_id,
        RUN.c.pipeline_version_id,
        RUN.c.name.label("run_name"),
        RUN.c.phase.label("run_phase"),
        PROJECT.c.slug.label("project"),
    )
    .join(TASK, TASK.c.id == ATTEMPT.c.task_run_id)
    .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
    .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
)
_ATTEMPT_BY_ID = _ATTEMPT_FULL.where(ATTEMPT.c.id == bindparam("b_id"))
_GRAPH = select(PipelineVersion.graph).where(PipelineVersion.id == bindparam("b_id"))
_RUN_FULL = (
    select(RUN, PROJECT.c.slug.label("project"))
    .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
    .where(RUN.c.id == bindparam("b_id"))
)
_OPEN_TASK_OF_RUN = select(TASK.c.id).where(TASK.c.run_id == bindparam("b_run"), TASK.c.phase.in_(_OPEN_TASK)).limit(1)
_USAGE = (
    select(ALLOCATION.c.resource, func.sum(ALLOCATION.c.amount))
    .where(ALLOCATION.c.backend == bindparam("b_backend"), ALLOCATION.c.released_at.is_(None))
    .group_by(ALLOCATION.c.resource)
)
_CAPACITY = select(Flavor.resource, Flavor.amount).where(Flavor.backend == bindparam("b_backend"))
_QUEUED = (
    select(
        TASK.c.id,
        TASK.c.run_id,
        TASK.c.version,
        TASK.c.node_key,
        TASK.c.cpu_milli,
        TASK.c.memory,
        TASK.c.gpu,
        TASK.c.attempts,
        TASK.c.queued_at,
    )
    .where(TASK.c.phase == str(TaskPhase.QUEUED), TASK.c.backend == bindparam("b_backend"))
    .order_by(TASK.c.precedence, TASK.c.run_id, TASK.c.id)
    .limit(bindparam("b_limit"))
)
_RELEASE = (
    update(ALLOCATION)
    .where(ALLOCATION.c.attempt_id == bindparam("b_attempt"), ALLOCATION.c.released_at.is_(None))
    .values(released_at=bindparam("b_at"))
)
_WAKE = (
    update(TASK)
    .where(TASK.c.run_id == bindparam("b_run"), TASK.c.waits_for == bindparam("b_key"))
    .values(waits_for=WAKEABLE)
)
_WAKEABLE = (
    select(TASK.c.id, TASK.c.node_key, TASK.c.version)
    .where(TASK.c.run_id == bindparam("b_run"), TASK.c.waits_for == WAKEABLE)
    .order_by(TASK.c.ordinal)
    .limit(bindparam("b_limit"))
)


_INSERT_ATTEMPT, _INSERT_ALLOCATION = insert(ATTEMPT), insert(ALLOCATION)
_PHASES = select(TASK.c.node_key, TASK.c.phase).where(
    TASK.c.run_id == bindparam("b_run"), TASK.c.node_key.in_(bindparam("b_keys", expanding=True))
)
_ENDED_COUNTS = (
    select(TASK.c.phase, TASK.c.allow_failure, func.count())
    .where(TASK.c.run_id == bindparam("b_run"))
    .group_by(TASK.c.phase, TASK.c.allow_failure)
)
_READY = (
    select(TASK.c.id, TASK.c.version)
    .where(
        TASK.c.run_id == bindparam("b_run"),
        TASK.c.phase == str(TaskPhase.READY),
        (TASK.c.next_check_at.is_(None)) | (TASK.c.next_check_at <= bindparam("b_now")),
    )
    .order_by(TASK.c.ordinal)
    .limit(bindparam("b_limit"))
)
_SETTLE_READY = (
    update(TASK)
    .where(
        TASK.c.run_id == bindparam("b_run"),
        TASK.c.phase == str(TaskPhase.READY),
        TASK.c.next_check_at <= bindparam("b_now"),
    )
    .values(next_check_at=None)
)


def attempt(connection: Connection, attempt_id: int) -> Any:
    """The attempt with what is needed to act on it: its task's spec and budgets, its run's wish, its project."""
    return connection.execute(_ATTEMPT_BY_ID, {"b_id": attempt_id}).one_or_none()


def run(connection: Connection, run_id: int) -> Any:
    return connection.execute(_RUN_FULL, {"b_id": run_id}).one_or_none()


def graph(connection: Connection, version_id: int) -> dict[str, Any]:
    found: dict[str, Any] = connection.execute(_GRAPH, {"b_id": version_id}).scalar_one()
    return found


def has_open_task(connection: Connection, run_id: int) -> bool:
    return connection.execute(_OPEN_TASK_OF_RUN, {"b_run": run_id}).first() is not None


def ended_counts(connection: Connection, run_id: int) -> list[tuple[str, bool, int]]:
    """(phase, allow_failure, how many) over the tasks of a run."""
    rows = connection.execute(_ENDED_COUNTS, {"b_run": run_id})
    return [(r[0], bool(r[1]), r[2]) for r in rows]


def first_failure(connection: Connection, run_id: int) -> Any:
    return connection.execute(
        select(TASK.c.node_key, TASK.c.reason, TASK.c.reason_code)
        .where(TASK.c.run_id == run_id, TASK.c.phase == str(TaskPhase.FAILED), TASK.c.allow_failure.is_(False))
        .order_by(TASK.c.finished_at)
        .limit(1)
    ).first()


def usage(connection: Connection, backend: str) -> dict[str, int]:
    return {r[0]: int(r[1] or 0) for r in connection.execute(_USAGE, {"b_backend": backend})}


def capacity(connection: Connection, backend: str) -> dict[str, int]:
    return _summed(connection.execute(_CAPACITY, {"b_backend": backend}))


def _summed(rows: Iterable[Any]) -> dict[str, int]:
    """Amounts by resource, over all flavors."""
    found: dict[str, int] = {}
    for resource, amount in rows:
        found[resource] = found.get(resource, 0) + int(amount)
    return found


def lock_capacity(connection: Connection, backend: str) -> dict[str, int]:
    """Capacity, its rows locked: the one admission lock of a backend."""
    rows = connection.execute(
        select(Flavor.resource, Flavor.amount)
        .where(Flavor.backend == backend)
        .order_by(Flavor.name, Flavor.resource)
        .with_for_update()
    )
    return _summed(rows)


def queued(connection: Connection, backend: str, limit: int) -> Sequence[Any]:
    return connection.execute(_QUEUED, {"b_backend": backend, "b_limit": limit}).all()


def devices_in_use(connection: Connection, backend: str) -> set[int]:
    rows = connection.execute(
        select(ATTEMPT.c.devices).where(
            ATTEMPT.c.backend == backend, ATTEMPT.c.phase.in_(_LIVE), ATTEMPT.c.devices.is_not(None)
        )
    )
    return {device for (devices,) in rows for device in devices or ()}


def insert_attempt(connection: Connection, **values: Any) -> int:
    result = connection.execute(_INSERT_ATTEMPT, values)
    return int(result.inserted_primary_key[0])  # type: ignore[index]


def insert_allocations(connection: Connection, rows: list[dict[str, Any]]) -> None:
    connection.execute(_INSERT_ALLOCATION, rows)


def release_allocations(connection: Connection, attempt_id: int, at: float) -> None:
    connection.execute(_RELEASE, {"b_attempt": attempt_id, "b_at": at})


def wake(connection: Connection, run_id: int, ended_key: str) -> int:
    """Mark the blocked tasks that waited for `ended_key` to be judged; how many."""
    return int(connection.execute(_WAKE, {"b_run": run_id, "b_key": ended_key}).rowcount)


def wakeable(connection: Connection, run_id: int, limit: int) -> Sequence[Any]:
    return connection.execute(_WAKEABLE, {"b_run": run_id, "b_limit": limit}).all()


def wait_for(connection: Connection, task_run_id: int, key: str) -> None:
    connection.execute(update(TASK).where(TASK.c.id == task_run_id).values(waits_for=key))


def phases_of(connection: Connection, run_id: int, keys: Iterable[str]) -> dict[str, TaskPhase]:
    wanted = list(keys)
    found: dict[str, TaskPhase] = {}
    for start in range(0, len(wanted), IN_CHUNK):
        rows = connection.execute(_PHASES, {"b_run": run_id, "b_keys": wanted[start : start + IN_CHUNK]})
        found.update((r[0], TaskPhase(r[1])) for r in rows)
    return found


def holding(connection: Connection, run_id: int) -> int:
    """How many tasks of a run are queued or have resources: what its parallelism limits."""
    return int(
        connection.execute(select(func.count()).where(TASK.c.run_id == run_id, TASK.c.phase.in_(_HOLDING))).scalar_one()
    )


def ready(connection: Connection, run_id: int, now: float, limit: int) -> Sequence[Any]:
    """Ready tasks whose back-off is over, oldest first."""
    return connection.execute(_READY, {"b_run": run_id, "b_now": now, "b_limit": limit}).all()


def settle_ready(connection: Connection, run_id: int, now: float) -> None:
    """Ready tasks whose back-off is over and for which there is no room: the next end in the run promotes them, so
    the sweep need not find them due again and again."""
    connection.execute(
        _SETTLE_READY,
        {"b_run": run_id, "b_now": now},
    )


def tasks_in(connection: Connection, run_id: int, phases: Iterable[TaskPhase], limit: int) -> Sequence[Any]:
    """At most `limit` tasks in these phases, whichever are found first."""
    return connection.execute(
        select(TASK.c.id, TASK.c.node_key, TASK.c.phase, TASK.c.version)
        .where(TASK.c.run_id == run_id, TASK.c.phase.in_([str(p) for p in phases]))
        .limit(limit)
    ).all()


def live_attempts(connection: Connection, run_id: int) -> list[int]:
    return list(
        connection.execute(select(ATTEMPT.c.id).where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.phase.in_(_LIVE))).scalars()
    )


def outputs(connection: Connection, run_id: int, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Published outputs of some tasks of a run, by task key: values as they are, artifacts as `Artifact`."""
    wanted = list(keys)
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(wanted), IN_CHUNK):
        rows = connection.execute(
            select(TASK.c.node_key, OUTPUT.c.name, OUTPUT.c.kind, OUTPUT.c.value, OUTPUT.c.path)
            .join(OUTPUT, OUTPUT.c.task_run_id == TASK.c.id)
            .where(TASK.c.run_id == run_id, TASK.c.node_key.in_(wanted[start : start + IN_CHUNK]))
        )
        for key, name, kind, value, path in rows:
            found.setdefault(key, {})[name] = value if kind == "value" else Artifact(path)
    return found


def insert_results(
    connection: Connection, outputs: list[dict[str, Any]], metrics: list[dict[str, Any]], chunks: list[dict[str, Any]]
) -> None:
    for table, rows in ((OUTPUT, outputs), (METRIC, metrics), (LOG_CHUNK, chunks)):
        if rows:
            connection.execute(insert(table), rows)


def note_attempt(connection: Connection, attempt_id: int, version: int, **columns: Any) -> bool:
    """Write what was seen of an attempt, never its phase; False when the row has moved on meanwhile."""
    return bool(
        connection.execute(
            update(ATTEMPT).where(ATTEMPT.c.id == attempt_id, ATTEMPT.c.version == version).values(**columns)
        ).rowcount
    )


def note_run(connection: Connection, run_id: int, **columns: Any) -> None:
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(**columns))


def carry_results(connection: Connection, run_id: int) -> None:
    """Copy outputs and metrics of the task runs that a new run's tasks are carried from (`carried_from`)."""
    models: tuple[type[Output] | type[Metric], ...] = (Output, Metric)
    for model in models:
        table = model.__table__
        kept = [c.name for c in table.c if c.name not in ("id", "run_id", "task_run_id")]
        source = (
            select(TASK.c.run_id, TASK.c.id, *(table.c[name] for name in kept))
            .join(table, table.c.task_run_id == TASK.c.carried_from)
            .where(TASK.c.run_id == run_id)
            .order_by(table.c.id)
        )
        connection.execute(insert(model).from_select(["run_id", "task_run_id", *kept], source))


def hasten(connection: Connection, run_id: int, at: float) -> None:
    """Have every live attempt of a run looked at by `at`, though every bell be lost."""
    connection.execute(
        update(ATTEMPT)
        .where(
            ATTEMPT.c.run_id == run_id,
            ATTEMPT.c.live_guard.is_not(None),
            (ATTEMPT.c.next_check_at > at) | ATTEMPT.c.next_check_at.is_(None),
        )
        .values(next_check_at=at)
    )
