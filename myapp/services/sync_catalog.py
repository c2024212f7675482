"""Bring the job templates in the database in line with the catalogue's files, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from myapp.catalog import Catalog
from myapp.domain.errors import Conflict
from myapp.domain.permissions import Actor, Permission
from myapp.persistence.repositories import templates
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.publish_template import TemplateContent, store_template
from myapp.services.transactions import audit, write


@dataclass(frozen=True)
class Synced:
    """Names of templates, sorted. `updated` got a new current version; `retired` are no longer in the catalogue."""

    created: tuple[str, ...]
    updated: tuple[str, ...]
    retired: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def changed(self) -> bool:
        return bool(self.created or self.updated or self.retired)


def sync_catalog(ctx: Context, actor: Actor, catalog: Catalog) -> Synced:
    """All or nothing; the same again changes nothing. Pipeline versions keep the template versions they pinned.

    Raises Invalid, naming file and line, when anything in the catalogue is broken; Forbidden; Conflict when a project's
    template has a name of the catalogue.
    """
    actor.require(Permission.CATALOG_SYNC)
    catalog.require()
    contents = {
        name: TemplateContent.of(template.document, template.sha256) for name, template in catalog.templates.items()
    }

    def work(unit: UnitOfWork) -> Synced:
        scope = TenantScope.platform()
        if taken := templates.taken_names(unit.connection, contents):
            raise Conflict(
                f"a project has a template of the same name: {', '.join(sorted(taken))}",
                code="template_exists",
                resolution="rename one of them",
            )
        before = {row["name"]: row for row in templates.lock_catalog(unit.connection)}
        current = {
            row["name"]: row["sha256"]
            for row in templates.versions_named(unit.connection, scope, before)
            if row["current"]
        }
        created: list[str] = []
        updated: list[str] = []
        unchanged: list[str] = []
        for name, content in sorted(contents.items()):
            row = before.get(name)
            if row is not None and current.get(name) == content.sha256 and not row["retired"]:
                unchanged.append(name)
                continue
            store_template(unit, scope, content, project_id=None, template_id=row["id"] if row else None)
            (updated if row else created).append(name)
        retired = sorted(name for name, row in before.items() if name not in contents and not row["retired"])
        for name in retired:
            templates.update_template(unit.connection, scope, before[name]["id"], retired=True, updated_at=unit.now)
        synced = Synced(tuple(created), tuple(updated), tuple(retired), tuple(unchanged))
        if synced.changed:
            audit(
                unit,
                actor,
                Permission.CATALOG_SYNC,
                "catalog",
                detail={"created": created, "updated": updated, "retired": retired},
            )
        return synced

    return write(ctx.database, work)
