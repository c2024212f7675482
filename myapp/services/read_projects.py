"""Projects as people see them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping

from myapp.domain.errors import NotFound
from myapp.domain.naming import shown
from myapp.domain.permissions import ROLE_PERMISSIONS, Actor, Permission, Role
from myapp.persistence.repositories import projects
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.paging import Page, bounds
from myapp.utils.clock import iso


def require_project(connection: Connection, actor: Actor, slug: str, permission: Permission) -> RowMapping:
    """The project's row, when the actor may do this in it. Raises NotFound or Forbidden."""
    row = projects.find_project(connection, TenantScope.of(actor), slug)
    if row is None:
        raise NotFound(
            f"project {shown(slug)} was not found",
            code="project_not_found",
            resolution="Check the name, or ask the project's owner for access.",
        )
    actor.require(permission, row["id"], what=f"project {slug}")
    return row


def list_projects(
    ctx: Context, actor: Actor, *, contains: str = "", page: int = 0, page_size: int | None = None
) -> Page:
    """The projects one is a member of (an administrator: all), by slug."""
    actor.require(Permission.SELF)
    limit, offset = bounds(page, page_size)
    scope = TenantScope.of(actor)
    with ctx.database.read() as connection:
        rows = projects.list_projects(connection, scope, contains=contains, limit=limit, offset=offset)
        count = projects.count_projects(connection, scope, contains=contains)
    return Page(count, [_brief(row, actor) for row in rows])


def describe_project(ctx: Context, actor: Actor, slug: str) -> dict[str, Any]:
    """The project, one's own role and permissions in it, and its members. Raises NotFound."""
    with ctx.database.read() as connection:
        row = require_project(connection, actor, slug, Permission.PROJECT_READ)
        members = projects.list_members(connection, TenantScope.of(actor), row["id"])
    allowed = set(Permission) if actor.is_admin else ROLE_PERMISSIONS[actor.roles[row["id"]]]
    return {
        **_brief(row, actor),
        "permissions": sorted(p for p in allowed if p.startswith("project:")),
        "members": [_member(m) for m in members],
    }


def list_members(ctx: Context, actor: Actor, slug: str) -> list[dict[str, Any]]:
    """Members by user name. Raises NotFound."""
    with ctx.database.read() as connection:
        row = require_project(connection, actor, slug, Permission.PROJECT_READ)
        return [_member(m) for m in projects.list_members(connection, TenantScope.of(actor), row["id"])]


def roles_of(ctx: Context, user_id: int) -> dict[int, Role]:
    """project id -> role: what an `Actor` is made of."""
    with ctx.database.read() as connection:
        return {project: Role(role) for project, role in projects.roles_of(connection, user_id).items()}


def _brief(row: RowMapping, actor: Actor) -> dict[str, Any]:
    role = actor.roles.get(row["id"])
    return {
        "id": row["id"],
        "slug": row["slug"],
        "title": row["title"],
        "description": row["description"],
        "namespace": row["namespace"],
        "backend": row["backend"],
        "created_by": row["created_by"],
        "created_at": iso(row["created_at"]),
        "role": str(role) if role else None,
    }


def _member(row: RowMapping) -> dict[str, Any]:
    name = f"{row['first_name'] or ''} {row['last_name'] or ''}".strip()
    return {
        "user_id": row["user_id"],
        "username": row["username"],
        "name": name,
        "email": row["email"],
        "role": row["role"],
        "since": iso(row["created_at"]),
    }
