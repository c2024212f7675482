"""Job templates as people see them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping

from myapp.domain.errors import NotFound
from myapp.domain.naming import did_you_mean, shown
from myapp.domain.permissions import Actor, Permission
from myapp.persistence.repositories import templates
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.paging import Page, bounds
from myapp.utils.clock import iso


def list_templates(
    ctx: Context,
    actor: Actor,
    *,
    category: str = "",
    contains: str = "",
    retired: bool = False,
    page: int = 0,
    page_size: int | None = None,
) -> Page:
    """By category and name, with arguments and outputs but without scripts."""
    actor.require(Permission.TEMPLATE_READ)
    limit, offset = bounds(page, page_size)
    scope = TenantScope.of(actor)
    with ctx.database.read() as connection:
        rows = templates.list_templates(
            connection, scope, category=category, contains=contains, retired=retired, limit=limit, offset=offset
        )
        count = templates.count_templates(connection, scope, category=category, contains=contains, retired=retired)
    return Page(count, [_brief(row) for row in rows])


def describe_template(ctx: Context, actor: Actor, name: str) -> dict[str, Any]:
    """With its document, files and versions. Raises NotFound with the nearest name."""
    actor.require(Permission.TEMPLATE_READ)
    scope = TenantScope.of(actor)
    with ctx.database.read() as connection:
        row = templates.find_template(connection, scope, name)
        if row is None:
            known = templates.template_names(connection, scope)
            raise NotFound(f"there is no job template {shown(name)}", resolution=did_you_mean(name, known))
        versions = templates.versions_named(connection, scope, [name])
    return _brief(row) | {
        "document": row["document"],
        "files": row["files"],
        "versions": [{"version": v["number"], "sha256": v["sha256"], "current": bool(v["current"])} for v in versions],
    }


def _brief(row: RowMapping) -> dict[str, Any]:
    spec = row["document"]["spec"]
    return {
        "id": row["id"],
        "name": row["name"],
        "project": row["project"],
        "title": row["title"],
        "category": row["category"],
        "description": row["description"],
        "framework": spec["framework"],
        "version": row["version"],
        "sha256": row["sha256"],
        "retired": bool(row["retired"]),
        "updated_at": iso(row["updated_at"]),
        "args": spec.get("args", []),
        "outputs": spec.get("outputs", []),
        "resources": spec.get("resources"),
    }
