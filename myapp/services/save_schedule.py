"""When a pipeline runs by itself: set, change, pause, remove."""

from __future__ import annotations

from typing import Any

from myapp.domain.documents import parse_model
from myapp.domain.errors import NotFound, invalid_document
from myapp.domain.params import resolve_params
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipeline import ScheduleDoc
from myapp.persistence.repositories import pipelines
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.cron import check_schedule
from myapp.services.cron import next_times as due_times
from myapp.services.read_pipelines import require_pipeline
from myapp.services.transactions import audit, write
from myapp.utils.clock import iso


def save_schedule(ctx: Context, actor: Actor, pipeline_id: int, schedule: dict[str, Any]) -> None:
    """`schedule` as in a document's `spec.schedule`. Raises NotFound, Forbidden, Invalid with every problem."""
    with ctx.database.read() as connection:
        row = require_pipeline(connection, actor, pipeline_id, Permission.SCHEDULE_WRITE)
        doc, problems = parse_model(ScheduleDoc, schedule, field="schedule")
        if doc is not None:
            problems = check_schedule(doc.cron, doc.timezone, field="schedule")
            if row["current_version_id"] is not None:
                graph = ctx.graphs.get(connection, row["current_version_id"])
                problems.extend(resolve_params(graph.params, doc.params, field="schedule.params")[1])
    if doc is None or problems:
        raise invalid_document("the schedule is wrong", problems)
    wanted = doc

    def work(unit: UnitOfWork) -> None:
        locked = _locked(unit, actor, pipeline_id)
        store_schedule(unit, TenantScope.of(actor), actor, pipeline_id, locked["project_id"], wanted)
        audit(
            unit,
            actor,
            Permission.SCHEDULE_WRITE,
            f"pipeline:{pipeline_id}",
            project_id=locked["project_id"],
            detail={"cron": wanted.cron, "timezone": wanted.timezone, "paused": wanted.paused},
        )

    write(ctx.database, work)


def pause_schedule(ctx: Context, actor: Actor, pipeline_id: int, *, paused: bool = True) -> None:
    """Pause or resume. What fell due while it was paused follows the schedule's catch-up policy."""
    with ctx.database.read() as connection:
        require_pipeline(connection, actor, pipeline_id, Permission.SCHEDULE_WRITE)

    def work(unit: UnitOfWork) -> None:
        scope = TenantScope.of(actor)
        locked = _locked(unit, actor, pipeline_id)
        row = pipelines.get_schedule(unit.connection, scope, pipeline_id)
        if row is None:
            raise _no_schedule(pipeline_id)
        if row["paused"] == paused:
            return
        changes: dict[str, Any] = {"paused": paused}
        if not paused and row["catchup"] == "none":
            changes["next_due_at"] = due_times(row["cron"], row["timezone"], unit.now, 1)[0]
        pipelines.update_schedule(unit.connection, scope, pipeline_id, **changes)
        audit(
            unit,
            actor,
            Permission.SCHEDULE_WRITE,
            f"pipeline:{pipeline_id}",
            project_id=locked["project_id"],
            detail={"paused": paused},
        )

    write(ctx.database, work)


def delete_schedule(ctx: Context, actor: Actor, pipeline_id: int) -> None:
    """Raises NotFound when there is none."""
    with ctx.database.read() as connection:
        require_pipeline(connection, actor, pipeline_id, Permission.SCHEDULE_WRITE)

    def work(unit: UnitOfWork) -> None:
        locked = _locked(unit, actor, pipeline_id)
        if not pipelines.delete_schedule(unit.connection, TenantScope.of(actor), pipeline_id):
            raise _no_schedule(pipeline_id)
        audit(
            unit,
            actor,
            Permission.SCHEDULE_WRITE,
            f"pipeline:{pipeline_id}",
            project_id=locked["project_id"],
            detail={"deleted": True},
        )

    write(ctx.database, work)


def next_times(ctx: Context, actor: Actor, pipeline_id: int, *, count: int = 5) -> list[str]:
    """The next due times (ISO 8601, UTC), also of a paused schedule. Raises NotFound when there is none."""
    with ctx.database.read() as connection:
        require_pipeline(connection, actor, pipeline_id, Permission.PIPELINE_READ)
        row = pipelines.get_schedule(connection, TenantScope.of(actor), pipeline_id)
    if row is None:
        raise _no_schedule(pipeline_id)
    moments = due_times(row["cron"], row["timezone"], ctx.database.clock(), max(1, min(count, 100)))
    return [str(iso(moment)) for moment in moments]


def store_schedule(
    unit: UnitOfWork, scope: TenantScope, actor: Actor, pipeline_id: int, project_id: int, doc: ScheduleDoc
) -> bool:
    """Write a checked schedule within the caller's transaction; True when anything changed.

    An unchanged cron keeps its next due time. `paused` changes only when the document says so.
    """
    row = pipelines.get_schedule(unit.connection, scope, pipeline_id)
    values: dict[str, Any] = {
        "cron": doc.cron,
        "timezone": doc.timezone,
        "catchup": doc.catchup,
        "max_active_runs": doc.max_active_runs,
        "params": doc.params,
    }
    if "paused" in doc.model_fields_set or row is None:
        values["paused"] = doc.paused
    if row is not None and all(row[name] == value for name, value in values.items()):
        return False
    if row is None or (row["cron"], row["timezone"]) != (doc.cron, doc.timezone):
        values["next_due_at"] = due_times(doc.cron, doc.timezone, unit.now, 1)[0]
    values |= {"created_by": actor.username[:64], "user_id": actor.user_id}
    if row is None:
        pipelines.insert_schedule(unit.connection, pipeline_id=pipeline_id, project_id=project_id, version=0, **values)
    else:
        pipelines.update_schedule(unit.connection, scope, pipeline_id, **values)
    return True


def _locked(unit: UnitOfWork, actor: Actor, pipeline_id: int) -> Any:
    row = pipelines.lock_pipeline(unit.connection, TenantScope.of(actor), pipeline_id=pipeline_id)
    if row is None:
        raise NotFound(f"pipeline {pipeline_id} was not found")
    return row


def _no_schedule(pipeline_id: int) -> NotFound:
    return NotFound(f"pipeline {pipeline_id} has no schedule", code="no_schedule", resolution="save one first")
