"""Run an ended run again, as a new run of the same version: all of it, or only what did not succeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from myapp.domain.errors import Conflict, Invalid, NotFound, invalid_document
from myapp.domain.params import resolve_params
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipelinegraph import PipelineGraph
from myapp.domain.runs.phases import RUN_TERMINAL, TaskPhase
from myapp.models import Project, Run, TaskRun
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.submit_run import PRIORITIES, RunRequest, Submitted, submit

MODES = ("failed", "all")


def retry_run(
    ctx: Context,
    actor: Actor,
    run_id: int,
    *,
    mode: str = "failed",
    params: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    lenient: bool = False,
) -> Submitted:
    """`failed` takes over the results of tasks that succeeded after none that did not; `all` repeats everything, with
    `params` over the old ones. A scheduled run's retry stands for the same moment.

    Raises NotFound, Forbidden, Invalid, Conflict (it has not ended, or nothing failed).
    """
    if mode not in MODES:
        raise Invalid(f"mode: '{mode}' is not one of {', '.join(MODES)}", code="bad_mode")
    if mode == "failed" and params:
        raise Invalid(
            "params: other parameters would not fit the results that are taken over",
            code="params_not_allowed",
            resolution="Use mode 'all' to run everything with other parameters.",
        )
    with ctx.database.read() as connection:
        row = connection.execute(
            select(Run, Project.backend.label("project_backend"))
            .join(Project, Project.id == Run.project_id)
            .where(Run.id == run_id, TenantScope.of(actor).where(Run.project_id))
            .with_only_columns(*Run.__table__.columns, Project.backend.label("project_backend"))
        ).one_or_none()
        if row is None:
            raise NotFound(f"run {run_id} was not found", resolution="List yours with `cube get runs`.")
        actor.require(Permission.RUN_SUBMIT, row.project_id, what=f"run {run_id}")
        if row.phase not in RUN_TERMINAL:
            raise Conflict(
                f"run {run_id} is still {row.phase}", code="run_not_ended", resolution="Cancel it first, or wait."
            )
        graph = ctx.graphs.get(connection, row.pipeline_version_id)
        carried: dict[str, int] = {}
        if mode == "failed":
            carried, again = _carried(connection, run_id, graph)
            if not again:
                raise Conflict(
                    f"run {run_id}: no task has failed or was stopped",
                    code="nothing_to_retry",
                    resolution="Use mode 'all' to run it again.",
                )
    values, problems = resolve_params(graph.params, {**row.params, **(params or {})}, field="params", lenient=lenient)
    if problems:
        raise invalid_document("the run's parameters are wrong", problems)
    by_precedence = {-value: name for name, value in PRIORITIES.items()}
    return submit(
        ctx,
        RunRequest(
            project_id=row.project_id,
            pipeline_id=row.pipeline_id,
            version_id=row.pipeline_version_id,
            name=row.name,
            kind=row.kind,
            graph=graph,
            params=values,
            actor=actor,
            priority=by_precedence[row.precedence],
            backend=row.project_backend,
            queue=row.queue,
            idempotency_key=idempotency_key,
            retry_of=run_id,
            scheduled_at=row.scheduled_at,
            carried=carried,
        ),
    )


def _carried(connection: Connection, run_id: int, graph: PipelineGraph) -> tuple[dict[str, int], set[str]]:
    """The task runs whose results are taken over, by task, and the tasks that run again: those that failed or were
    stopped and all that come after one of them, whose results may rest on its failure."""
    rows = connection.execute(select(TaskRun.node_key, TaskRun.id, TaskRun.phase).where(TaskRun.run_id == run_id)).all()
    again = {row.node_key for row in rows if row.phase in (TaskPhase.FAILED, TaskPhase.STOPPED)}
    for task in graph.tasks:  # in topological order
        if any(key in again for key in task.upstream):
            again.add(task.key)
    done = {row.node_key: row.id for row in rows if row.phase == TaskPhase.SUCCEEDED and row.node_key not in again}
    return done, again
