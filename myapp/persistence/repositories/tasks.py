"""The tasks of a run and the attempts at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from sqlalchemy import Connection, RowMapping, and_, func, or_, select

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import ATTEMPT, PROJECT, RUN, TASK

_IN_CHUNK = 500
_TASK_COLUMNS = [c for c in TASK.c if c.name not in ("spec", "spec_sha256")]
_ATTEMPT_COLUMNS = [c for c in ATTEMPT.c if c.name != "handle"]


def task_counts(connection: Connection, scope: TenantScope, run_id: int) -> dict[str, int]:
    """phase -> how many tasks of the run are in it."""
    rows = connection.execute(
        select(TASK.c.phase, func.count())
        .join(RUN, RUN.c.id == TASK.c.run_id)
        .where(TASK.c.run_id == run_id, scope.where(RUN.c.project_id))
        .group_by(TASK.c.phase)
    )
    return {str(r[0]): int(r[1]) for r in rows}


def list_tasks(
    connection: Connection,
    scope: TenantScope,
    run_id: int,
    *,
    phases: Sequence[str] = (),
    after_ordinal: int = -1,
    limit: int,
) -> Sequence[RowMapping]:
    """Tasks in the order of the pipeline, without their specs."""
    query = (
        select(*_TASK_COLUMNS)
        .join(RUN, RUN.c.id == TASK.c.run_id)
        .where(TASK.c.run_id == run_id, TASK.c.ordinal > after_ordinal, scope.where(RUN.c.project_id))
    )
    if phases:
        query = query.where(TASK.c.phase.in_(phases))
    return connection.execute(query.order_by(TASK.c.ordinal).limit(limit)).mappings().all()


def get_task(connection: Connection, scope: TenantScope, run_id: int, node_key: str) -> RowMapping | None:
    """The whole row, its spec included, with `project` (the slug), `project_id` and `run_phase`."""
    return (
        connection.execute(
            select(TASK, RUN.c.project_id, RUN.c.phase.label("run_phase"), PROJECT.c.slug.label("project"))
            .join(RUN, RUN.c.id == TASK.c.run_id)
            .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
            .where(TASK.c.run_id == run_id, TASK.c.node_key == node_key, scope.where(RUN.c.project_id))
        )
        .mappings()
        .one_or_none()
    )


def get_task_by_id(connection: Connection, scope: TenantScope, task_run_id: int) -> RowMapping | None:
    return (
        connection.execute(
            select(*_TASK_COLUMNS)
            .join(RUN, RUN.c.id == TASK.c.run_id)
            .where(TASK.c.id == task_run_id, scope.where(RUN.c.project_id))
        )
        .mappings()
        .one_or_none()
    )


def list_attempts(
    connection: Connection, scope: TenantScope, run_id: int, task_run_ids: Iterable[int]
) -> dict[int, list[RowMapping]]:
    """task_run id -> its attempts, oldest first, without their handles."""
    found: dict[int, list[RowMapping]] = {}
    wanted = iter(task_run_ids)
    while chunk := list(islice(wanted, _IN_CHUNK)):
        rows = connection.execute(
            select(*_ATTEMPT_COLUMNS)
            .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
            .where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.task_run_id.in_(chunk), scope.where(RUN.c.project_id))
            .order_by(ATTEMPT.c.task_run_id, ATTEMPT.c.attempt_no)
        ).mappings()
        for row in rows:
            found.setdefault(row["task_run_id"], []).append(row)
    return found


def get_attempt(
    connection: Connection, scope: TenantScope, run_id: int, task_run_id: int, attempt_no: int | None
) -> RowMapping | None:
    """One attempt of a task, or with `attempt_no` None its newest."""
    query = (
        select(*_ATTEMPT_COLUMNS)
        .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
        .where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.task_run_id == task_run_id, scope.where(RUN.c.project_id))
    )
    if attempt_no is not None:
        query = query.where(ATTEMPT.c.attempt_no == attempt_no)
    return connection.execute(query.order_by(ATTEMPT.c.attempt_no.desc()).limit(1)).mappings().one_or_none()


def queue_ahead(connection: Connection, backend: str, precedence: int, run_id: int, task_run_id: int) -> int:
    """How many tasks of the whole platform are queued before one; counts no further than 1000."""
    some = (
        select(TASK.c.id)
        .where(
            TASK.c.phase == "queued",
            TASK.c.backend == backend,
            or_(
                TASK.c.precedence < precedence,
                and_(TASK.c.precedence == precedence, TASK.c.run_id < run_id),
                and_(TASK.c.precedence == precedence, TASK.c.run_id == run_id, TASK.c.id < task_run_id),
            ),
        )
        .limit(1000)
        .subquery("some")
    )
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())
