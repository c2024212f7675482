"""What access control needs in the database before the first request: roles, FAB's permissions, the first admin."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import insert, select
from werkzeug.security import generate_password_hash

from myapp.models import Audit
from myapp.security.secret import write_private
from myapp.security.tables import ADMIN_ROLE, ROLE, USER, USER_ROLE, Store

if TYPE_CHECKING:
    from flask import Flask

ADMIN = "admin"
PUBLIC_ROLE = "Public"
USER_ROLE_NAME = "User"
_SELF_SERVICE = ("ResetMyPasswordView", "UserInfoEditView")     # what FAB's role for everybody else may use
PASSWORD_FILE = "admin-password"  # noqa: S105  a file's name
_SHORTEST = 8


class _Secret(Protocol):
    def get_secret_value(self) -> str: ...


class Settings(Protocol):
    @property
    def root(self) -> Path: ...

    @property
    def admin_password(self) -> _Secret: ...


class Platform(Protocol):
    """The composition root's product, as far as this module needs it."""

    @property
    def settings(self) -> Any: ...

    @property
    def database(self) -> Any: ...


def ensure_admin(platform: Platform) -> str | None:
    """Make the user `admin` if nobody is an administrator yet; safe to call at every start.

    Returns the password only when it was made up just now: it is to be printed once. It is also in
    `CUBE_HOME/admin-password`, mode 600. Raises ValueError when CUBE_ADMIN_PASSWORD is too short.
    """
    from flask_appbuilder.security.sqla.models import Role, User, assoc_user_role

    store: Store = platform.database
    settings: Settings = platform.settings
    has_admin = (
        select(USER_ROLE.c.user_id)
        .select_from(USER_ROLE.join(ROLE, ROLE.c.id == USER_ROLE.c.role_id))
        .where(ROLE.c.name == ADMIN_ROLE)
        .limit(1)
    )
    with store.read() as connection:
        if connection.execute(has_admin).first() is not None:
            return None
    given = settings.admin_password.get_secret_value()
    if given and len(given) < _SHORTEST:
        raise ValueError(f"CUBE_ADMIN_PASSWORD must have at least {_SHORTEST} characters")
    password = given or secrets.token_urlsafe(15)
    hashed = generate_password_hash(password)
    if not given:
        write_private(settings.root / PASSWORD_FILE, password + "\n", replace=True)
    with store.write() as unit:
        connection = unit.connection
        if connection.execute(has_admin).first() is not None:
            return None
        for name in (ADMIN_ROLE, PUBLIC_ROLE):
            if connection.execute(select(ROLE.c.id).where(ROLE.c.name == name)).first() is None:
                connection.execute(insert(Role.__table__), {"name": name})
        role_id = connection.execute(select(ROLE.c.id).where(ROLE.c.name == ADMIN_ROLE)).scalar_one()
        user_id = connection.execute(select(USER.c.id).where(USER.c.username == ADMIN)).scalar_one_or_none()
        if user_id is None:
            connection.execute(
                insert(User.__table__),
                {
                    "first_name": "Platform",
                    "last_name": "Admin",
                    "username": ADMIN,
                    "email": "admin@localhost",
                    "password": hashed,
                    "active": True,
                    "login_count": 0,
                    "fail_login_count": 0,
                },
            )
            user_id = connection.execute(select(USER.c.id).where(USER.c.username == ADMIN)).scalar_one()
        else:
            connection.execute(USER.update().where(USER.c.id == user_id).values(password=hashed, active=True))
        connection.execute(insert(assoc_user_role), {"user_id": user_id, "role_id": role_id})
        connection.execute(
            insert(Audit.__table__),  # type: ignore[arg-type]
            {"at": unit.now, "actor": "platform", "action": "user.create", "target": ADMIN, "outcome": "ok"},
        )
    return None if given else password


def sync_permissions(app: Flask) -> bool:
    """Bring Flask-AppBuilder's roles and permissions in line with its registered pages; part of `cube db upgrade`.

    Returns whether anything was missing.
    """
    from flask_appbuilder.security.sqla.models import (
        Permission,
        PermissionView,
        Role,
        ViewMenu,
        assoc_permissionview_role,
    )

    with app.app_context():
        builder = app.extensions["appbuilder"]
        wanted = {(p, view.class_permission_name) for view in builder.baseviews for p in view.base_permissions or ()}
        for category in builder.menu.get_list():
            names = [category.name, *(child.name for child in category.childs if child.name != "-")]
            wanted.update(("menu_access", name) for name in names)
        granted = (
            select(Permission.name, ViewMenu.name)
            .join_from(PermissionView, Permission, PermissionView.permission_id == Permission.id)
            .join(ViewMenu, PermissionView.view_menu_id == ViewMenu.id)
            .join(assoc_permissionview_role, assoc_permissionview_role.c.permission_view_id == PermissionView.id)
            .join(Role, Role.id == assoc_permissionview_role.c.role_id)
            .where(Role.name == ADMIN_ROLE)
        )
        present = {tuple(row) for row in builder.session.execute(granted)}
        known = set(builder.session.execute(select(Role.name)).scalars())
        builder.session.rollback()
        if wanted <= present and {ADMIN_ROLE, PUBLIC_ROLE, USER_ROLE_NAME} <= known:
            return False
        for name in (ADMIN_ROLE, PUBLIC_ROLE, USER_ROLE_NAME):
            builder.sm.add_role(name)
        builder.add_permissions(update_perms=True)
        role = builder.sm.find_role(USER_ROLE_NAME)
        for view in _SELF_SERVICE:
            for permission in ("can_this_form_get", "can_this_form_post"):
                builder.sm.add_permission_role(role, builder.sm.find_permission_view_menu(permission, view))
        builder.session.remove()
        return True
