"""Pipelines, their versions and schedules as people see them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping

from myapp.domain.errors import NotFound
from myapp.domain.permissions import Actor, Permission
from myapp.persistence.repositories import pipelines
from myapp.persistence.repositories.pipelines import PipelineFilter
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.cron import next_times
from myapp.services.paging import Page, bounds
from myapp.utils.clock import iso

__all__ = [
    "PipelineFilter",
    "describe_pipeline",
    "describe_version",
    "find_pipeline",
    "list_pipelines",
    "list_versions",
    "require_pipeline",
]
_NEXT_TIMES = 5


def require_pipeline(connection: Connection, actor: Actor, pipeline_id: int, permission: Permission) -> RowMapping:
    """The pipeline's row, when the actor may do this with it. Raises NotFound or Forbidden."""
    row = pipelines.get_pipeline(connection, TenantScope.of(actor), pipeline_id)
    if row is None:
        raise NotFound(f"pipeline {pipeline_id} was not found", resolution="List yours with `cube get pipelines`.")
    actor.require(permission, row["project_id"], what=f"pipeline {row['name']}")
    return row


def list_pipelines(
    ctx: Context, actor: Actor, wanted: PipelineFilter | None = None, *, page: int = 0, page_size: int | None = None
) -> Page:
    """Newest first."""
    actor.require(Permission.SELF)
    limit, offset = bounds(page, page_size)
    scope, wanted = TenantScope.of(actor), wanted or PipelineFilter()
    with ctx.database.read() as connection:
        rows = pipelines.list_pipelines(connection, scope, wanted, limit=limit, offset=offset)
        count = pipelines.count_pipelines(connection, scope, wanted)
    return Page(count, [_brief(row) | {"version": row["version"], "schedule": _schedule_brief(row)} for row in rows])


def find_pipeline(ctx: Context, actor: Actor, name: str, *, project: str = "") -> int:
    """The id of the pipeline of that name. Raises NotFound, also when several projects have one and none is named."""
    actor.require(Permission.SELF)
    with ctx.database.read() as connection:
        rows = pipelines.list_pipelines(connection, TenantScope.of(actor), PipelineFilter(project, name), limit=2)
    if len(rows) == 1:
        return int(rows[0]["id"])
    if rows:
        raise NotFound(f"several projects have a pipeline {name}", code="ambiguous", resolution="name the project")
    raise NotFound(f"pipeline {name} was not found", resolution="List yours with `cube get pipelines`.")


def describe_pipeline(ctx: Context, actor: Actor, pipeline_id: int) -> dict[str, Any]:
    """With the document last applied, its `lock_version` (ETag), parameters, schedule and next due times."""
    scope = TenantScope.of(actor)
    with ctx.database.snapshot() as connection:
        row = require_pipeline(connection, actor, pipeline_id, Permission.PIPELINE_READ)
        version_id = row["current_version_id"]
        version = pipelines.get_version(connection, scope, version_id=version_id) if version_id is not None else None
        schedule = pipelines.get_schedule(connection, scope, pipeline_id)
    out = _brief(row)
    out["version"] = version["number"] if version else None
    out["sha256"] = version["sha256"] if version else None
    out["document"] = row["draft"] or (version["document"] if version else None)
    out["graph"] = version["graph"] if version else None
    out["params"] = version["graph"].get("params", []) if version else []
    out["schedule"] = _schedule(schedule, ctx.database.clock()) if schedule else None
    return out


def list_versions(ctx: Context, actor: Actor, pipeline_id: int, *, page: int = 0, page_size: int | None = None) -> Page:
    """Newest first."""
    limit, offset = bounds(page, page_size)
    scope = TenantScope.of(actor)
    with ctx.database.read() as connection:
        row = require_pipeline(connection, actor, pipeline_id, Permission.PIPELINE_READ)
        rows = pipelines.list_versions(connection, scope, pipeline_id, limit=limit, offset=offset)
        count = pipelines.last_number(connection, scope, pipeline_id)
    return Page(count, [_version(v) | {"current": v["id"] == row["current_version_id"]} for v in rows])


def describe_version(ctx: Context, actor: Actor, pipeline_id: int, number: int) -> dict[str, Any]:
    """One version with its graph and document. Raises NotFound."""
    with ctx.database.read() as connection:
        row = require_pipeline(connection, actor, pipeline_id, Permission.PIPELINE_READ)
        version = pipelines.get_version(connection, TenantScope.of(actor), pipeline_id=pipeline_id, number=number)
    if version is None:
        raise NotFound(f"pipeline {row['name']} has no version {number}", code="version_not_found")
    return _version(version) | {
        "current": version["id"] == row["current_version_id"],
        "graph": version["graph"],
        "document": version["document"],
    }


def _brief(row: RowMapping) -> dict[str, Any]:
    return {
        "id": row["id"],
        "project": row["project"],
        "name": row["name"],
        "title": row["title"],
        "description": row["description"],
        "lock_version": row["lock_version"],
        "created_by": row["created_by"],
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
    }


def _version(row: RowMapping) -> dict[str, Any]:
    return {
        "id": row["id"],
        "version": row["number"],
        "sha256": row["sha256"],
        "created_by": row["created_by"],
        "created_at": iso(row["created_at"]),
    }


def _schedule_brief(row: RowMapping) -> dict[str, Any] | None:
    if row["cron"] is None:
        return None
    return {
        "cron": row["cron"],
        "timezone": row["timezone"],
        "paused": bool(row["paused"]),
        "next_due_at": iso(row["next_due_at"]),
    }


def _schedule(row: RowMapping, now: float) -> dict[str, Any]:
    return {
        "id": row["id"],
        "cron": row["cron"],
        "timezone": row["timezone"],
        "catchup": row["catchup"],
        "max_active_runs": row["max_active_runs"],
        "paused": bool(row["paused"]),
        "params": row["params"],
        "next_due_at": iso(row["next_due_at"]),
        "created_by": row["created_by"],
        "next_times": []
        if row["paused"]
        else [iso(t) for t in next_times(row["cron"], row["timezone"], now, _NEXT_TIMES)],
    }
