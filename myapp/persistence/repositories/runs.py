"""Runs as people see them: lists by keyset, and one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, literal_column, select, union_all

from myapp.domain.runs.phases import RunPhase
from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import PIPELINE, PROJECT, RUN

_LIST_COLUMNS = (
    RUN.c.id,
    RUN.c.project_id,
    PROJECT.c.slug.label("project"),
    RUN.c.pipeline_id,
    RUN.c.pipeline_version_id,
    RUN.c.kind,
    RUN.c.name,
    RUN.c.phase,
    RUN.c.desired,
    RUN.c.event_seq,
    RUN.c.precedence,
    RUN.c.reason_code,
    RUN.c.reason,
    RUN.c.retry_of,
    RUN.c.schedule_id,
    RUN.c.scheduled_at,
    RUN.c.submitted_at,
    RUN.c.started_at,
    RUN.c.finished_at,
    RUN.c.created_by,
)
_LIST = select(*_LIST_COLUMNS).join(PROJECT, PROJECT.c.id == RUN.c.project_id)
_MAX_UNION = 20
_OPEN = frozenset({str(RunPhase.QUEUED), str(RunPhase.RUNNING)})  # few rows: "+ 0" keeps planners on the phase's index


@dataclass(frozen=True)
class RunFilter:
    """Empty parts do not filter. `project` is a slug, `pipeline` a name; `contains` looks in the run's name."""

    phases: tuple[str, ...] = ()
    project: str = ""
    pipeline_id: int | None = None
    pipeline: str = ""
    contains: str = ""
    created_by: str = ""
    kind: str = ""
    before_id: int | None = None

    @property
    def selective(self) -> bool:
        return bool(self.phases or self.project or self.pipeline_id is not None or self.pipeline)


def list_runs(
    connection: Connection, scope: TenantScope, wanted: RunFilter, *, limit: int, offset: int = 0
) -> Sequence[RowMapping]:
    """Newest first. `before_id` is the cursor of the keyset: cheap however far it goes, which `offset` is not."""
    if scope.project_ids is not None and 1 < len(scope.project_ids) <= _MAX_UNION and not wanted.selective:
        newest = union_all(
            *(
                select(literal_column("id")).select_from(
                    _filtered(select(RUN.c.id), TenantScope(frozenset({project})), wanted)
                    .order_by(RUN.c.id.desc())
                    .limit(limit + offset)
                    .subquery(f"of_{n}")
                )
                for n, project in enumerate(sorted(scope.project_ids))
            )
        ).subquery("newest")
        query = _LIST.where(RUN.c.id.in_(select(newest.c[0])), scope.where(RUN.c.project_id))
    else:
        query = _filtered(_LIST, scope, wanted)
    return connection.execute(query.order_by(RUN.c.id.desc()).limit(limit).offset(offset)).mappings().all()


def count_runs(connection: Connection, scope: TenantScope, wanted: RunFilter, *, at_most: int) -> int:
    """How many match, counting no further than `at_most`."""
    some = _filtered(select(RUN.c.id), scope, wanted).limit(at_most).subquery("some")
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def _filtered(query: Select[Any], scope: TenantScope, wanted: RunFilter) -> Select[Any]:
    project = RUN.c.project_id + 0 if wanted.phases and _OPEN.issuperset(wanted.phases) else RUN.c.project_id
    query = query.where(scope.where(project))
    if wanted.before_id is not None:
        query = query.where(RUN.c.id < wanted.before_id)
    if wanted.phases:
        query = query.where(
            RUN.c.phase == wanted.phases[0] if len(wanted.phases) == 1 else RUN.c.phase.in_(wanted.phases)
        )
    if wanted.project:
        query = query.where(project == select(PROJECT.c.id).where(PROJECT.c.slug == wanted.project).scalar_subquery())
    if wanted.pipeline_id is not None:
        query = query.where(RUN.c.pipeline_id == wanted.pipeline_id)
    if wanted.pipeline:
        named = select(PIPELINE.c.id).where(PIPELINE.c.name == wanted.pipeline, scope.where(PIPELINE.c.project_id))
        query = query.where(RUN.c.pipeline_id.in_(named))
    if wanted.contains:
        query = query.where(RUN.c.name.contains(wanted.contains, autoescape=True))
    if wanted.created_by:
        query = query.where(RUN.c.created_by == wanted.created_by)
    if wanted.kind:
        query = query.where(RUN.c.kind == wanted.kind)
    return query


def get_run(connection: Connection, scope: TenantScope, run_id: int) -> RowMapping | None:
    """The whole row with `project` (its slug)."""
    return (
        connection.execute(
            select(RUN, PROJECT.c.slug.label("project"))
            .join(PROJECT, PROJECT.c.id == RUN.c.project_id)
            .where(RUN.c.id == run_id, scope.where(RUN.c.project_id))
        )
        .mappings()
        .one_or_none()
    )


def active_runs(connection: Connection, scope: TenantScope, pipeline_id: int, ended: Sequence[str]) -> list[int]:
    """Some runs (at most five) of a pipeline in none of the phases `ended`."""
    return list(
        connection.execute(
            select(RUN.c.id)
            .where(RUN.c.pipeline_id == pipeline_id, RUN.c.phase.not_in(ended), scope.where(RUN.c.project_id))
            .order_by(RUN.c.id)
            .limit(5)
        ).scalars()
    )
