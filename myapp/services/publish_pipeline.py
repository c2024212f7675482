"""Publish a pipeline: everything is checked, everything it refers to is pinned, one transaction writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import RowMapping

from myapp.domain.errors import Conflict, NotFound, Problem, errors_in, invalid_document
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipeline import PipelineDoc, parse_pipeline
from myapp.domain.pipelinegraph import PipelineGraph
from myapp.persistence.repositories import pipelines
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.create_project import PUBLIC
from myapp.services.read_projects import require_project
from myapp.services.save_schedule import store_schedule
from myapp.services.transactions import audit, write
from myapp.services.validate_pipeline import check_pipeline


@dataclass(frozen=True)
class Published:
    """`version` is the current version's number; `created` is True when this call made it.

    `changes`: what else this call changed of a pipeline that was there before: `schedule added`, `schedule changed`,
    `schedule removed`, `title changed`, `description changed`, or `document changed` (nothing that has an effect).
    `warnings` forbid nothing.
    """

    id: int
    version: int
    created: bool
    lock_version: int
    changes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Request:
    actor: Actor
    project_id: int
    doc: PipelineDoc
    document: dict[str, Any]
    graph: dict[str, Any]
    sha256: str
    if_match: int | None


def publish_pipeline(
    ctx: Context, actor: Actor, document: Mapping[str, Any], *, if_match: int | None = None
) -> Published:
    """Create the pipeline, or give it a new version when its graph differs from the current one.

    Applying the same document again changes nothing. Templates are pinned: a later template version changes no
    existing pipeline version. The document is the whole wish: one without a schedule removes the schedule.
    `if_match`: the `lock_version` that was read; another one is a Conflict. Raises Invalid with every problem at once,
    NotFound, Forbidden, Conflict.
    """
    doc, problems = parse_pipeline(document)
    if doc is None:
        raise invalid_document("the pipeline is wrong", problems)
    with ctx.database.read() as connection:
        project = require_project(connection, actor, doc.metadata.project or PUBLIC, Permission.PIPELINE_WRITE)
        problems, views = check_pipeline(ctx, connection, TenantScope.of(actor), doc, str(project["backend"]))
    if errors := errors_in(problems):
        raise invalid_document("the pipeline is wrong", errors)
    graph = PipelineGraph.of(doc, views)
    request = _Request(actor, int(project["id"]), doc, dict(document), graph.to_json(), graph.sha256(), if_match)
    published = write(ctx.database, lambda unit: _publish(unit, request))
    return replace(published, warnings=tuple(problems))


def _publish(unit: UnitOfWork, request: _Request) -> Published:
    scope, doc = TenantScope.of(request.actor), request.doc
    name, project_id = doc.metadata.name, request.project_id
    row = pipelines.lock_pipeline(unit.connection, scope, project_id=project_id, name=name)
    texts = {"title": doc.metadata.title or "", "description": doc.metadata.description or ""}
    if row is None:
        if request.if_match is not None:
            raise NotFound(f"pipeline {name} was not found: it cannot match", resolution="publish it without If-Match")
        pipeline_id = pipelines.insert_pipeline(
            unit.connection,
            project_id=project_id,
            name=name,
            lock_version=1,
            created_by=request.actor.username[:64],
            created_at=unit.now,
            updated_at=unit.now,
            draft=None,
            current_version_id=None,
            **texts,
        )
        lock_version, number, current, before = 1, 0, None, None
    else:
        pipeline_id, lock_version = int(row["id"]), int(row["lock_version"])
        if request.if_match is not None and request.if_match != lock_version:
            raise Conflict(
                f"pipeline {name} has changed since you read it (now at {lock_version})",
                code="stale_document",
                resolution="read it again and repeat your change",
            )
        before = (
            pipelines.get_version(unit.connection, scope, version_id=row["current_version_id"])
            if row["current_version_id"] is not None
            else None
        )
        number, current = (int(before["number"]), str(before["sha256"])) if before else (0, None)
    created = current != request.sha256
    changes: dict[str, Any] = {}
    if created:
        number = pipelines.last_number(unit.connection, scope, pipeline_id) + 1
        changes["current_version_id"] = pipelines.insert_version(
            unit.connection,
            project_id=project_id,
            pipeline_id=pipeline_id,
            number=number,
            sha256=request.sha256,
            graph=request.graph,
            document=request.document,
            created_by=request.actor.username[:64],
            created_at=unit.now,
        )
    scheduled = _schedule(unit, scope, request, pipeline_id)
    shown = before["document"] if before is not None and not created else request.document
    changes |= {"draft": None if shown == request.document else request.document, **texts}
    if row is not None and not scheduled and all(row[key] == value for key, value in changes.items()):
        return Published(pipeline_id, number, False, lock_version)
    said = _said(row, scheduled, texts, created) if row is not None else ()
    lock_version = lock_version + 1 if row is not None else 1
    pipelines.update_pipeline(
        unit.connection, scope, pipeline_id, lock_version=lock_version, updated_at=unit.now, **changes
    )
    audit(
        unit,
        request.actor,
        Permission.PIPELINE_WRITE,
        f"pipeline:{pipeline_id}",
        project_id=project_id,
        detail={"name": name, "version": number, "created": created},
    )
    return Published(pipeline_id, number, created, lock_version, said)


def _said(row: RowMapping, scheduled: str, texts: Mapping[str, str], created: bool) -> tuple[str, ...]:
    """What `Published.changes` says of a pipeline that was there before."""
    said = [f"schedule {scheduled}"] if scheduled else []
    said.extend(f"{name} changed" for name, value in texts.items() if row[name] != value)
    return tuple(said) or (() if created else ("document changed",))


def _schedule(unit: UnitOfWork, scope: TenantScope, request: _Request, pipeline_id: int) -> str:
    """What was done: `added`, `changed`, `removed`, or nothing."""
    wanted = request.doc.spec.schedule
    if wanted is None:
        return "removed" if pipelines.delete_schedule(unit.connection, scope, pipeline_id) else ""
    before = pipelines.get_schedule(unit.connection, scope, pipeline_id)
    changed = store_schedule(unit, scope, request.actor, pipeline_id, request.project_id, wanted)
    return ("added" if before is None else "changed") if changed else ""
