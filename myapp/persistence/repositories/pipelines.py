"""Pipelines, their versions and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, delete, func, select, update

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import PIPELINE, PIPELINE_VERSION, PROJECT, RUN, SCHEDULE, insert_row

_VERSION_COLUMNS = [c for c in PIPELINE_VERSION.c if c.name not in ("graph", "document")]


@dataclass(frozen=True)
class PipelineFilter:
    """Empty parts do not filter. `project` is a slug."""

    project: str = ""
    name: str = ""
    contains: str = ""


def list_pipelines(
    connection: Connection, scope: TenantScope, wanted: PipelineFilter, *, limit: int, offset: int = 0
) -> Sequence[RowMapping]:
    """Newest first, without drafts; with `project`, `version` (its number) and the schedule's main columns."""
    query = (
        select(
            *[c for c in PIPELINE.c if c.name != "draft"],
            PROJECT.c.slug.label("project"),
            PIPELINE_VERSION.c.number.label("version"),
            SCHEDULE.c.cron,
            SCHEDULE.c.timezone,
            SCHEDULE.c.paused,
            SCHEDULE.c.next_due_at,
        )
        .join(PROJECT, PROJECT.c.id == PIPELINE.c.project_id)
        .join(PIPELINE_VERSION, PIPELINE_VERSION.c.id == PIPELINE.c.current_version_id, isouter=True)
        .join(SCHEDULE, SCHEDULE.c.pipeline_id == PIPELINE.c.id, isouter=True)
    )
    return (
        connection.execute(_filtered(query, scope, wanted).order_by(PIPELINE.c.id.desc()).limit(limit).offset(offset))
        .mappings()
        .all()
    )


def count_pipelines(connection: Connection, scope: TenantScope, wanted: PipelineFilter) -> int:
    query = select(func.count()).select_from(PIPELINE).join(PROJECT, PROJECT.c.id == PIPELINE.c.project_id)
    return int(connection.execute(_filtered(query, scope, wanted)).scalar_one())


def _filtered(query: Select[Any], scope: TenantScope, wanted: PipelineFilter) -> Select[Any]:
    query = query.where(scope.where(PIPELINE.c.project_id))
    if wanted.project:
        query = query.where(PROJECT.c.slug == wanted.project)
    if wanted.name:
        query = query.where(PIPELINE.c.name == wanted.name)
    if wanted.contains:
        query = query.where(PIPELINE.c.name.contains(wanted.contains, autoescape=True))
    return query


def get_pipeline(connection: Connection, scope: TenantScope, pipeline_id: int) -> RowMapping | None:
    """The whole row with `project` (its slug)."""
    return (
        connection.execute(
            select(PIPELINE, PROJECT.c.slug.label("project"))
            .join(PROJECT, PROJECT.c.id == PIPELINE.c.project_id)
            .where(PIPELINE.c.id == pipeline_id, scope.where(PIPELINE.c.project_id))
        )
        .mappings()
        .one_or_none()
    )


def lock_pipeline(
    connection: Connection, scope: TenantScope, *, pipeline_id: int | None = None, project_id: int = 0, name: str = ""
) -> RowMapping | None:
    """The row by id, or by project and name, locked: publishes of one pipeline queue here."""
    query = select(PIPELINE).where(scope.where(PIPELINE.c.project_id)).with_for_update()
    if pipeline_id is not None:
        query = query.where(PIPELINE.c.id == pipeline_id)
    else:
        query = query.where(PIPELINE.c.project_id == project_id, PIPELINE.c.name == name)
    return connection.execute(query).mappings().one_or_none()


def get_version(
    connection: Connection,
    scope: TenantScope,
    *,
    version_id: int | None = None,
    pipeline_id: int | None = None,
    number: int | None = None,
) -> RowMapping | None:
    """One version, whole, by its id or by its pipeline and number."""
    query = select(PIPELINE_VERSION).where(scope.where(PIPELINE_VERSION.c.project_id))
    if version_id is not None:
        query = query.where(PIPELINE_VERSION.c.id == version_id)
    else:
        query = query.where(PIPELINE_VERSION.c.pipeline_id == pipeline_id, PIPELINE_VERSION.c.number == number)
    return connection.execute(query).mappings().one_or_none()


def list_versions(
    connection: Connection, scope: TenantScope, pipeline_id: int, *, limit: int, offset: int = 0
) -> Sequence[RowMapping]:
    """Newest first, without their graphs and documents."""
    return (
        connection.execute(
            select(*_VERSION_COLUMNS)
            .where(PIPELINE_VERSION.c.pipeline_id == pipeline_id, scope.where(PIPELINE_VERSION.c.project_id))
            .order_by(PIPELINE_VERSION.c.number.desc())
            .limit(limit)
            .offset(offset)
        )
        .mappings()
        .all()
    )


def last_number(connection: Connection, scope: TenantScope, pipeline_id: int) -> int:
    """The highest version number of a pipeline; 0 when it has none."""
    return int(
        connection.execute(
            select(func.coalesce(func.max(PIPELINE_VERSION.c.number), 0)).where(
                PIPELINE_VERSION.c.pipeline_id == pipeline_id, scope.where(PIPELINE_VERSION.c.project_id)
            )
        ).scalar_one()
    )


def insert_pipeline(connection: Connection, **values: Any) -> int:
    return insert_row(connection, PIPELINE, values)


def insert_version(connection: Connection, **values: Any) -> int:
    return insert_row(connection, PIPELINE_VERSION, values)


def update_pipeline(connection: Connection, scope: TenantScope, pipeline_id: int, **values: Any) -> bool:
    return (
        connection.execute(
            update(PIPELINE).where(PIPELINE.c.id == pipeline_id, scope.where(PIPELINE.c.project_id)).values(**values)
        ).rowcount
        == 1
    )


def delete_pipeline(connection: Connection, scope: TenantScope, pipeline_id: int) -> bool:
    """Delete a pipeline, its schedule and the versions no run has used; those that were keep their runs readable."""
    mine = scope.where(PIPELINE_VERSION.c.project_id)
    connection.execute(
        delete(PIPELINE_VERSION).where(
            PIPELINE_VERSION.c.pipeline_id == pipeline_id,
            mine,
            ~select(RUN.c.id).where(RUN.c.pipeline_version_id == PIPELINE_VERSION.c.id).exists(),
        )
    )
    connection.execute(
        update(PIPELINE_VERSION).where(PIPELINE_VERSION.c.pipeline_id == pipeline_id, mine).values(pipeline_id=None)
    )
    return (
        connection.execute(
            delete(PIPELINE).where(PIPELINE.c.id == pipeline_id, scope.where(PIPELINE.c.project_id))
        ).rowcount
        == 1
    )


def get_schedule(connection: Connection, scope: TenantScope, pipeline_id: int) -> RowMapping | None:
    return (
        connection.execute(
            select(SCHEDULE).where(SCHEDULE.c.pipeline_id == pipeline_id, scope.where(SCHEDULE.c.project_id))
        )
        .mappings()
        .one_or_none()
    )


def insert_schedule(connection: Connection, **values: Any) -> int:
    return insert_row(connection, SCHEDULE, values)


def update_schedule(connection: Connection, scope: TenantScope, pipeline_id: int, **values: Any) -> bool:
    """Change a schedule and count its version up, so that a beat that read it before lets go."""
    return (
        connection.execute(
            update(SCHEDULE)
            .where(SCHEDULE.c.pipeline_id == pipeline_id, scope.where(SCHEDULE.c.project_id))
            .values(version=SCHEDULE.c.version + 1, **values)
        ).rowcount
        == 1
    )


def delete_schedule(connection: Connection, scope: TenantScope, pipeline_id: int) -> bool:
    return (
        connection.execute(
            delete(SCHEDULE).where(SCHEDULE.c.pipeline_id == pipeline_id, scope.where(SCHEDULE.c.project_id))
        ).rowcount
        == 1
    )
