"""Delete a pipeline and its schedule. Its runs, and the versions they ran, stay readable."""

from __future__ import annotations

from myapp.domain.errors import Conflict, NotFound
from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import RUN_TERMINAL
from myapp.persistence.repositories import pipelines, runs
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.read_pipelines import require_pipeline
from myapp.services.transactions import audit, write


def delete_pipeline(ctx: Context, actor: Actor, pipeline_id: int) -> None:
    """Raises NotFound, Forbidden, Conflict while a run of it has not ended."""
    with ctx.database.read() as connection:
        found = require_pipeline(connection, actor, pipeline_id, Permission.PIPELINE_DELETE)

    def work(unit: UnitOfWork) -> None:
        scope = TenantScope.of(actor)
        if pipelines.lock_pipeline(unit.connection, scope, pipeline_id=pipeline_id) is None:
            raise NotFound(f"pipeline {pipeline_id} was not found")
        active = runs.active_runs(unit.connection, scope, pipeline_id, sorted(str(p) for p in RUN_TERMINAL))
        if active:
            raise Conflict(
                f"pipeline {found['name']} has runs that have not ended: {', '.join(map(str, active))}",
                code="runs_active",
                resolution="cancel them or wait for their end",
            )
        pipelines.delete_schedule(unit.connection, scope, pipeline_id)
        pipelines.delete_pipeline(unit.connection, scope, pipeline_id)
        audit(
            unit,
            actor,
            Permission.PIPELINE_DELETE,
            f"pipeline:{pipeline_id}",
            project_id=found["project_id"],
            detail={"name": found["name"]},
        )

    write(ctx.database, work)
