"""Submit a run: one transaction that writes the run, its tasks and the doorbell; nothing is started here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from sqlalchemy import Table, insert, select
from sqlalchemy.exc import IntegrityError

from myapp.domain.errors import Conflict, Invalid, NotFound, Problem, invalid_document
from myapp.domain.naming import check_name
from myapp.domain.params import resolve_params
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipelinegraph import PipelineGraph
from myapp.domain.runs.phases import TaskPhase
from myapp.models import Pipeline, PipelineVersion, Project, Run, TaskRun
from myapp.persistence import run_store
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import Topic, UnitOfWork
from myapp.services.context import Context
from myapp.services.transactions import audit

PRIORITIES = {"low": -10, "normal": 0, "high": 10}
MAX_KEY = 128
_INSERT_RUN, _INSERT_TASKS = (insert(cast(Table, m.__table__)) for m in (Run, TaskRun))


@dataclass(frozen=True)
class Submitted:
    """`created` is False when the idempotency key named a run that exists already. `warnings` forbid nothing."""

    run_id: int
    created: bool
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class RunRequest:
    """Everything a run row is made of. `carried` maps task keys to the task_run ids whose results are taken over."""

    project_id: int
    pipeline_id: int | None
    version_id: int
    name: str
    kind: str
    graph: PipelineGraph
    params: Mapping[str, Any]
    actor: Actor
    priority: str
    backend: str
    idempotency_key: str | None = None
    retry_of: int | None = None
    schedule_id: int | None = None
    scheduled_at: float | None = None
    queue: str = "default"
    carried: Mapping[str, int] | None = None

    @property
    def sha256(self) -> str:
        """What the idempotency key stands for: the same key with another request is a conflict."""
        data = [self.project_id, self.version_id, dict(self.params), self.priority, self.retry_of, self.scheduled_at]
        return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()


def submit_run(
    ctx: Context,
    actor: Actor,
    *,
    pipeline_id: int,
    params: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    priority: str | None = None,
    version: int | None = None,
    lenient: bool = False,
    scheduled_at: float | None = None,
    schedule_id: int | None = None,
) -> Submitted:
    """Submit the pipeline's current version (or version number `version`).

    `lenient` accepts "3" for a number, as a command line gives it. Raises NotFound, Forbidden, Invalid (every wrong
    parameter at once), Conflict (the key was used for another request).
    """
    with ctx.database.read() as connection:
        row = connection.execute(
            select(Pipeline.id, Pipeline.name, Pipeline.project_id, Pipeline.current_version_id, Project.backend)
            .join(Project, Project.id == Pipeline.project_id)
            .where(Pipeline.id == pipeline_id, TenantScope.of(actor).where(Pipeline.project_id))
        ).one_or_none()
        if row is None:
            raise NotFound(f"pipeline {pipeline_id} was not found", resolution="List yours with `cube get pipelines`.")
        actor.require(Permission.RUN_SUBMIT, row.project_id, what=f"pipeline {row.name}")
        version_id = row.current_version_id
        if version is not None:
            version_id = connection.execute(
                select(PipelineVersion.id).where(
                    PipelineVersion.pipeline_id == row.id, PipelineVersion.number == version
                )
            ).scalar_one_or_none()
        if version_id is None:
            what = (
                f"version {version} of pipeline {row.name}"
                if version is not None
                else f"a published version of {row.name}"
            )
            raise NotFound(f"{what} was not found", resolution="List its versions with `cube describe pipeline`.")
        graph = ctx.graphs.get(connection, version_id)
    values, problems = resolve_params(graph.params, dict(params or {}), field="params", lenient=lenient)
    if problems:
        raise invalid_document("the run's parameters are wrong", problems)
    request = RunRequest(
        project_id=row.project_id,
        pipeline_id=row.id,
        version_id=version_id,
        name=row.name,
        kind="pipeline",
        graph=graph,
        params=values,
        actor=actor,
        priority=priority or graph.priority,
        backend=row.backend,
        idempotency_key=idempotency_key,
        schedule_id=schedule_id,
        scheduled_at=scheduled_at,
    )
    return submit(ctx, request)


def submit(ctx: Context, request: RunRequest) -> Submitted:
    """Write a checked request. Two submits with one key at once make one run."""
    check(request)
    if request.idempotency_key is not None and (found := _existing(ctx, request)) is not None:
        return found
    try:
        with ctx.database.write() as unit:
            return Submitted(insert_run(unit, request), True)
    except IntegrityError:
        if request.idempotency_key is not None and (found := _existing(ctx, request)) is not None:
            return found
        raise


def check(request: RunRequest) -> None:
    if request.priority not in PRIORITIES:
        raise Invalid(f"priority: '{request.priority}' is not one of {', '.join(PRIORITIES)}", code="bad_priority")
    if (problem := check_name(request.name, "name")) is not None:
        raise invalid_document("the run's name is wrong", [problem])
    key = request.idempotency_key
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isprintable() and key.isascii()):
        raise Invalid(
            f"Idempotency-Key must be 1 to {MAX_KEY} printable ASCII characters",
            code="bad_idempotency_key",
            resolution="Use a UUID.",
        )


def _existing(ctx: Context, request: RunRequest) -> Submitted | None:
    with ctx.database.read() as connection:
        row = connection.execute(
            select(Run.id, Run.request_sha256).where(
                Run.project_id == request.project_id, Run.idempotency_key == request.idempotency_key
            )
        ).one_or_none()
    if row is None:
        return None
    if row.request_sha256 != request.sha256:
        raise Conflict(
            f"Idempotency-Key was used before, for another request (run {row.id})",
            code="idempotency_conflict",
            resolution="Use a new key for a new request.",
        )
    return Submitted(row.id, False)


def insert_run(unit: UnitOfWork, request: RunRequest) -> int:
    """The rows of a run, within the caller's transaction."""
    graph = request.graph
    precedence = -PRIORITIES[request.priority]
    result = unit.connection.execute(
        _INSERT_RUN,
        {
            "project_id": request.project_id,
            "pipeline_id": request.pipeline_id,
            "pipeline_version_id": request.version_id,
            "kind": request.kind,
            "name": request.name,
            "params": dict(request.params),
            "backend": request.backend,
            "precedence": precedence,
            "queue": request.queue,
            "idempotency_key": request.idempotency_key,
            "request_sha256": request.sha256 if request.idempotency_key else None,
            "parallelism": graph.parallelism,
            "retry_of": request.retry_of,
            "schedule_id": request.schedule_id,
            "scheduled_at": request.scheduled_at,
            "submitted_at": unit.now,
            "timeout_s": graph.timeout,
            "created_by": request.actor.username[:64],
            "user_id": request.actor.user_id,
        },
    )
    run_id = int(result.inserted_primary_key[0])  # type: ignore[index]
    carried = request.carried or {}
    unit.connection.execute(
        _INSERT_TASKS,
        [
            {
                "run_id": run_id,
                "node_key": node.key,
                "ordinal": i,
                "precedence": precedence,
                "backend": request.backend,
                "allow_failure": node.allow_failure,
                "phase": str(TaskPhase.SUCCEEDED if node.key in carried else TaskPhase.BLOCKED),
                "carried_from": carried.get(node.key),
                "finished_at": unit.now if node.key in carried else None,
                "waits_for": None
                if node.key in carried
                else next((k for k in reversed(node.upstream) if k not in carried), run_store.WAKEABLE),
            }
            for i, node in enumerate(graph.tasks)
        ],
    )
    if carried:
        run_store.carry_results(unit.connection, run_id)
    audit(unit, request.actor, Permission.RUN_SUBMIT, f"run:{run_id}", project_id=request.project_id)
    unit.post(Topic.RUN, run_id)
    return run_id
