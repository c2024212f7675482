"""What the tasks of a run left behind: output values, artifacts, metrics, sealed logs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, func, select

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import ATTEMPT, LOG_CHUNK, METRIC, OUTPUT, PROJECT, RUN, TASK


def list_outputs(connection: Connection, scope: TenantScope, run_id: int, *, limit: int) -> Sequence[RowMapping]:
    """Output rows with `node_key`, in the order of the pipeline."""
    return (
        connection.execute(
            select(OUTPUT, TASK.c.node_key)
            .join(TASK, TASK.c.id == OUTPUT.c.task_run_id)
            .join(RUN, RUN.c.id == OUTPUT.c.run_id)
            .where(OUTPUT.c.run_id == run_id, scope.where(RUN.c.project_id))
            .order_by(TASK.c.ordinal, OUTPUT.c.name)
            .limit(limit)
        )
        .mappings()
        .all()
    )


def find_output(connection: Connection, scope: TenantScope, run_id: int, node_key: str, name: str) -> RowMapping | None:
    """One output with `project_id` and `project` (the slug)."""
    return (
        connection.execute(
            select(OUTPUT, RUN.c.project_id, PROJECT.c.slug.label("project"))
            .join(TASK, TASK.c.id == OUTPUT.c.task_run_id)
            .join(RUN, RUN.c.id == OUTPUT.c.run_id)
            .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
            .where(
                OUTPUT.c.run_id == run_id,
                TASK.c.node_key == node_key,
                OUTPUT.c.name == name,
                scope.where(RUN.c.project_id),
            )
        )
        .mappings()
        .one_or_none()
    )


def last_metrics(connection: Connection, scope: TenantScope, run_id: int, *, limit: int) -> Sequence[RowMapping]:
    """The newest value of each metric of each task: `node_key, name, value, step, at, points`."""
    newest = (
        select(func.max(METRIC.c.id).label("id"), func.count().label("points"))
        .where(METRIC.c.run_id == run_id)
        .group_by(METRIC.c.task_run_id, METRIC.c.name)
        .subquery("newest")
    )
    return (
        connection.execute(
            select(TASK.c.node_key, METRIC.c.name, METRIC.c.value, METRIC.c.step, METRIC.c.at, newest.c.points)
            .join(newest, newest.c.id == METRIC.c.id)
            .join(TASK, TASK.c.id == METRIC.c.task_run_id)
            .join(RUN, RUN.c.id == METRIC.c.run_id)
            .where(METRIC.c.run_id == run_id, scope.where(RUN.c.project_id))
            .order_by(TASK.c.ordinal, METRIC.c.name)
            .limit(limit)
        )
        .mappings()
        .all()
    )


def metric_points(
    connection: Connection, scope: TenantScope, run_id: int, *, name: str = "", after_id: int = 0, limit: int
) -> Sequence[RowMapping]:
    """Single points in the order they were written, with `node_key`."""
    query = (
        select(METRIC.c.id, TASK.c.node_key, METRIC.c.name, METRIC.c.value, METRIC.c.step, METRIC.c.at)
        .join(TASK, TASK.c.id == METRIC.c.task_run_id)
        .join(RUN, RUN.c.id == METRIC.c.run_id)
        .where(METRIC.c.run_id == run_id, METRIC.c.id > after_id, scope.where(RUN.c.project_id))
    )
    if name:
        query = query.where(METRIC.c.name == name)
    return connection.execute(query.order_by(METRIC.c.id).limit(limit)).mappings().all()


def sealed_logs(connection: Connection, scope: TenantScope, attempt_id: int) -> Sequence[RowMapping]:
    return (
        connection.execute(
            select(LOG_CHUNK)
            .join(ATTEMPT, ATTEMPT.c.id == LOG_CHUNK.c.attempt_id)
            .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
            .where(LOG_CHUNK.c.attempt_id == attempt_id, scope.where(RUN.c.project_id))
            .order_by(LOG_CHUNK.c.rank, LOG_CHUNK.c.seq)
        )
        .mappings()
        .all()
    )
