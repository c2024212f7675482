"""Publish a project's own job template: immutable versions by content hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from myapp.domain.errors import Conflict, errors_in, invalid_document
from myapp.domain.permissions import Actor, Permission
from myapp.domain.template import JobTemplateDoc, parse_template
from myapp.persistence.repositories import templates
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.create_project import PUBLIC
from myapp.services.read_projects import require_project
from myapp.services.transactions import audit, write
from myapp.services.validate_pipeline import check_template


@dataclass(frozen=True)
class PublishedTemplate:
    id: int
    version: int
    created: bool
    sha256: str


@dataclass(frozen=True)
class TemplateContent:
    """A template as its tables keep it: the document without its files, the files, and the hash over both."""

    name: str
    title: str
    category: str
    description: str
    document: dict[str, Any]
    files: dict[str, str]
    sha256: str

    @classmethod
    def of(cls, doc: JobTemplateDoc, sha256: str | None = None) -> TemplateContent:
        body = doc.to_dict()
        files = dict(doc.spec.files)
        body["spec"].pop("files", None)
        digest = sha256 or hashlib.sha256(orjson.dumps([body, files], option=orjson.OPT_SORT_KEYS)).hexdigest()
        meta = doc.metadata
        return cls(meta.name, meta.title or meta.name, meta.category or "", meta.description or "", body, files, digest)


def publish_template(
    ctx: Context, actor: Actor, document: Mapping[str, Any], *, project: str | None = None
) -> PublishedTemplate:
    """Into `project`, else the document's, else `public`; a new version only when the content differs.

    Raises Invalid with every problem, NotFound, Forbidden, Conflict (the catalogue or another project has the name).
    """
    doc, problems = parse_template(document)
    if doc is not None:
        problems = errors_in(check_template(ctx, doc))
    if doc is None or problems:
        raise invalid_document("the job template is wrong", problems)
    with ctx.database.read() as connection:
        row = require_project(connection, actor, project or doc.metadata.project or PUBLIC, Permission.TEMPLATE_WRITE)
    project_id, content = int(row["id"]), TemplateContent.of(doc)

    def work(unit: UnitOfWork) -> PublishedTemplate:
        scope = TenantScope.of(actor)
        found = templates.lock_template(unit.connection, scope, content.name)
        taken = found is None and templates.name_exists(unit.connection, content.name)
        if taken or (found is not None and found["project_id"] != project_id):
            raise Conflict(
                f"the name {content.name} is taken by another template",
                code="template_exists",
                resolution="choose another name, for instance with the project's slug in front",
            )
        stored = store_template(unit, scope, content, project_id=project_id, template_id=found["id"] if found else None)
        if stored.created:
            audit(
                unit,
                actor,
                Permission.TEMPLATE_WRITE,
                f"template:{content.name}",
                project_id=project_id,
                detail={"version": stored.version},
            )
        return stored

    return write(ctx.database, work)


def store_template(
    unit: UnitOfWork, scope: TenantScope, content: TemplateContent, *, project_id: int | None, template_id: int | None
) -> PublishedTemplate:
    """Write a checked template within the caller's transaction and make the version current."""
    head: dict[str, Any] = {
        "title": content.title,
        "category": content.category[:64],
        "description": content.description,
        "retired": False,
        "updated_at": unit.now,
    }
    if template_id is None:
        template_id = templates.insert_template(unit.connection, name=content.name, project_id=project_id, **head)
    known = templates.find_version(unit.connection, scope, template_id, content.sha256)
    if known is None:
        number = templates.last_number(unit.connection, scope, template_id) + 1
        version_id = templates.insert_version(
            unit.connection,
            job_template_id=template_id,
            number=number,
            sha256=content.sha256,
            document=content.document,
            files=content.files,
            created_at=unit.now,
        )
    else:
        version_id, number = int(known["id"]), int(known["number"])
    templates.update_template(unit.connection, scope, template_id, current_version_id=version_id, **head)
    return PublishedTemplate(template_id, number, known is None, content.sha256)
