"""Projects and their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, select, update

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import PROJECT, PROJECT_USER, USER, insert_row


def find_project(connection: Connection, scope: TenantScope, slug: str) -> RowMapping | None:
    return (
        connection.execute(select(PROJECT).where(PROJECT.c.slug == slug, scope.where(PROJECT.c.id)))
        .mappings()
        .one_or_none()
    )


def get_project(connection: Connection, scope: TenantScope, project_id: int) -> RowMapping | None:
    return (
        connection.execute(select(PROJECT).where(PROJECT.c.id == project_id, scope.where(PROJECT.c.id)))
        .mappings()
        .one_or_none()
    )


def lock_project(connection: Connection, scope: TenantScope, project_id: int) -> RowMapping | None:
    """The row, locked: changes of one project's members queue here."""
    return (
        connection.execute(
            select(PROJECT).where(PROJECT.c.id == project_id, scope.where(PROJECT.c.id)).with_for_update()
        )
        .mappings()
        .one_or_none()
    )


def list_projects(
    connection: Connection, scope: TenantScope, *, contains: str = "", limit: int, offset: int = 0
) -> Sequence[RowMapping]:
    query = select(PROJECT).where(scope.where(PROJECT.c.id))
    if contains:
        query = query.where(PROJECT.c.slug.contains(contains, autoescape=True))
    return connection.execute(query.order_by(PROJECT.c.slug).limit(limit).offset(offset)).mappings().all()


def count_projects(connection: Connection, scope: TenantScope, *, contains: str = "") -> int:
    query = select(func.count()).select_from(PROJECT).where(scope.where(PROJECT.c.id))
    if contains:
        query = query.where(PROJECT.c.slug.contains(contains, autoescape=True))
    return int(connection.execute(query).scalar_one())


def list_members(connection: Connection, scope: TenantScope, project_id: int) -> Sequence[RowMapping]:
    """`user_id, role, username, first_name, last_name, email`; names are None for a user that is gone."""
    return (
        connection.execute(
            select(
                PROJECT_USER.c.user_id,
                PROJECT_USER.c.role,
                PROJECT_USER.c.created_at,
                USER.c.username,
                USER.c.first_name,
                USER.c.last_name,
                USER.c.email,
            )
            .join(USER, USER.c.id == PROJECT_USER.c.user_id, isouter=True)
            .where(PROJECT_USER.c.project_id == project_id, scope.where(PROJECT_USER.c.project_id))
            .order_by(USER.c.username, PROJECT_USER.c.user_id)
        )
        .mappings()
        .all()
    )


def role_of(connection: Connection, scope: TenantScope, project_id: int, user_id: int) -> str | None:
    return connection.execute(
        select(PROJECT_USER.c.role).where(
            PROJECT_USER.c.project_id == project_id,
            PROJECT_USER.c.user_id == user_id,
            scope.where(PROJECT_USER.c.project_id),
        )
    ).scalar_one_or_none()


def count_role(connection: Connection, scope: TenantScope, project_id: int, role: str) -> int:
    return int(
        connection.execute(
            select(func.count()).where(
                PROJECT_USER.c.project_id == project_id,
                PROJECT_USER.c.role == role,
                scope.where(PROJECT_USER.c.project_id),
            )
        ).scalar_one()
    )


def roles_of(connection: Connection, user_id: int) -> dict[int, str]:
    """project id -> role, of one user: what a scope is made of."""
    rows = connection.execute(
        select(PROJECT_USER.c.project_id, PROJECT_USER.c.role).where(PROJECT_USER.c.user_id == user_id)
    )
    return {int(r[0]): str(r[1]) for r in rows}


def find_user(connection: Connection, username: str) -> int | None:
    found: int | None = connection.execute(select(USER.c.id).where(USER.c.username == username)).scalar_one_or_none()
    return found


def insert_project(connection: Connection, **values: Any) -> int:
    return insert_row(connection, PROJECT, values)


def update_project(connection: Connection, scope: TenantScope, project_id: int, **values: Any) -> bool:
    result = connection.execute(
        update(PROJECT).where(PROJECT.c.id == project_id, scope.where(PROJECT.c.id)).values(**values)
    )
    return result.rowcount == 1


def insert_member(connection: Connection, **values: Any) -> None:
    connection.execute(insert(PROJECT_USER).values(**values))


def update_member(connection: Connection, scope: TenantScope, project_id: int, user_id: int, role: str) -> bool:
    result = connection.execute(update(PROJECT_USER).where(_member(scope, project_id, user_id)).values(role=role))
    return result.rowcount == 1


def delete_member(connection: Connection, scope: TenantScope, project_id: int, user_id: int) -> bool:
    return connection.execute(delete(PROJECT_USER).where(_member(scope, project_id, user_id))).rowcount == 1


def _member(scope: TenantScope, project_id: int, user_id: int) -> ColumnElement[bool]:
    return and_(
        PROJECT_USER.c.project_id == project_id,
        PROJECT_USER.c.user_id == user_id,
        scope.where(PROJECT_USER.c.project_id),
    )
