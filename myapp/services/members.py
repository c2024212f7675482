"""Who belongs to a project, and as what."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import IntegrityError

from myapp.domain.errors import Conflict, Invalid, NotFound
from myapp.domain.naming import shown
from myapp.domain.permissions import Actor, Permission, Role
from myapp.persistence.repositories import projects
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.create_project import PUBLIC, ensure_public_project
from myapp.services.read_projects import require_project
from myapp.services.transactions import audit, write


def set_member(ctx: Context, actor: Actor, *, project: str, username: str, role: str) -> None:
    """Add a user to a project or change their role.

    Raises NotFound, Forbidden, Invalid (unknown role), Conflict (the last owner would be gone).
    """
    try:
        wanted = Role(role)
    except ValueError:
        raise Invalid(
            f"role: {shown(role)} is not a role", code="unknown_role", resolution="use one of: " + ", ".join(Role)
        ) from None

    def work(unit: UnitOfWork) -> None:
        scope = TenantScope.of(actor)
        project_id = int(_locked(unit, actor, project)["id"])
        user_id = projects.find_user(unit.connection, username)
        if user_id is None:
            raise NotFound(
                f"there is no user {shown(username)}",
                code="unknown_user",
                resolution="check the name; an administrator makes users: cube user create NAME",
            )
        before = projects.role_of(unit.connection, scope, project_id, user_id)
        if before == wanted:
            return
        if before == Role.OWNER:
            _keep_an_owner(unit, scope, project_id, project)
        if before is None:
            projects.insert_member(
                unit.connection, project_id=project_id, user_id=user_id, role=str(wanted), created_at=unit.now
            )
        else:
            projects.update_member(unit.connection, scope, project_id, user_id, str(wanted))
        audit(
            unit,
            actor,
            Permission.MEMBER_MANAGE,
            f"user:{username}",
            project_id=project_id,
            detail={"from": before, "to": str(wanted)},
        )

    write(ctx.database, work)


def remove_member(ctx: Context, actor: Actor, *, project: str, username: str) -> None:
    """Raises NotFound, Forbidden, Conflict (the last owner)."""

    def work(unit: UnitOfWork) -> None:
        scope = TenantScope.of(actor)
        project_id = int(_locked(unit, actor, project)["id"])
        user_id = projects.find_user(unit.connection, username)
        before = projects.role_of(unit.connection, scope, project_id, user_id) if user_id is not None else None
        if user_id is None or before is None:
            raise NotFound(f"{shown(username)} is not a member of {project}", code="unknown_member")
        if before == Role.OWNER:
            _keep_an_owner(unit, scope, project_id, project)
        projects.delete_member(unit.connection, scope, project_id, user_id)
        audit(
            unit,
            actor,
            Permission.MEMBER_MANAGE,
            f"user:{username}",
            project_id=project_id,
            detail={"from": before, "to": None},
        )

    write(ctx.database, work)


def ensure_membership(ctx: Context, user_id: int, *, project: str = PUBLIC, role: Role = Role.DEV) -> None:
    """Make a user a member unless they are one already; the platform's own act (first sign-in, group mapping)."""
    with ctx.database.read() as connection:
        found = projects.find_project(connection, TenantScope.platform(), project)
        if found is not None and projects.role_of(connection, TenantScope.platform(), found["id"], user_id) is not None:
            return
    if found is None and project != PUBLIC:
        raise NotFound(f"there is no project {shown(project)}")
    project_id = int(found["id"]) if found is not None else ensure_public_project(ctx)
    try:
        with ctx.database.write() as unit:
            projects.insert_member(
                unit.connection, project_id=project_id, user_id=user_id, role=str(role), created_at=unit.now
            )
    except IntegrityError:
        return  # somebody else was first: the user is a member


def _locked(unit: UnitOfWork, actor: Actor, slug: str) -> Any:
    found = require_project(unit.connection, actor, slug, Permission.MEMBER_MANAGE)
    row = projects.lock_project(unit.connection, TenantScope.of(actor), found["id"])
    if row is None:
        raise NotFound(f"there is no project {shown(slug)}")
    return row


def _keep_an_owner(unit: UnitOfWork, scope: TenantScope, project_id: int, slug: str) -> None:
    if projects.count_role(unit.connection, scope, project_id, str(Role.OWNER)) <= 1:
        raise Conflict(f"{slug} would have no owner", code="last_owner", resolution="make somebody else an owner first")
