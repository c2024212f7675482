"""Flask-AppBuilder's security manager, on this platform's own sign-in, and with only the pages that are needed."""

from __future__ import annotations

from typing import Any, ClassVar

from flask import current_app, g, session
from flask_appbuilder.exceptions import PasswordComplexityValidationError
from flask_appbuilder.security.sqla.manager import SecurityManager as FabSecurityManager
from flask_appbuilder.security.views import UserDBModelView as FabUserDBModelView
from flask_login import LoginManager

from myapp.security.bootstrap import USER_ROLE_NAME
from myapp.security.identity import find_token
from myapp.security.login import authenticate
from myapp.security.tokens import lookup_hash

SHORTEST_PASSWORD = 10


class UserDBModelView(FabUserDBModelView):
    """FAB's pages of users. One without a role and a group gets the role of ordinary users; all else is membership."""

    validators_columns: ClassVar[dict[str, Any]] = {}
    description_columns: ClassVar[dict[str, Any]] = {
        **FabUserDBModelView.description_columns,
        "roles": "Leave it empty for an ordinary user: projects give the rights. Admin: may do everything.",
        "groups": "Groups give their roles to their members.",
    }

    def pre_add(self, item: Any) -> None:
        super().pre_add(item)
        self._give_role(item)

    def pre_update(self, item: Any) -> None:
        super().pre_update(item)
        self._give_role(item)

    def _give_role(self, item: Any) -> None:
        if not item.roles and not item.groups:
            item.roles = [self.appbuilder.sm.find_role(USER_ROLE_NAME)]


class SecurityManager(FabSecurityManager):
    """Administrators manage users, roles and groups on FAB's pages; everything else uses `security.identity`."""

    userdbmodelview = UserDBModelView
    userstatschartview = None

    def register_views(self) -> None:
        """FAB's pages, without its login API (ours is rate limited) and its statistics."""
        add_view = self.appbuilder.add_view
        self.appbuilder.add_api = lambda view: None
        self.appbuilder.add_view = lambda view, *args, **kwargs: (
            None if view is None else add_view(view, *args, **kwargs)
        )
        try:
            super().register_views()
        finally:
            del self.appbuilder.add_api, self.appbuilder.add_view

    def create_login_manager(self, app: Any) -> LoginManager:
        manager: LoginManager = super().create_login_manager(app)
        manager.login_view = f"{self.authdbview.__name__}.login"
        return manager

    def create_limiter(self, app: Any) -> Any:
        return None

    def auth_user_db(self, username: str | None, password: str | None) -> Any:
        store = current_app.extensions["cube"].database
        found = authenticate(store, username or "", password or "")
        return self.get_user_by_id(found.user_id) if found else None

    def validate_api_key(self, api_key_string: str) -> Any:
        store = current_app.extensions["cube"].database
        with store.read() as connection:
            identity = find_token(connection, lookup_hash(api_key_string))
        if identity is None:
            return None
        g.user = self.get_user_by_id(identity.actor.user_id)
        g._api_key_user = True
        return g.user


def check_password_strength(password: str) -> None:
    """A new password on FAB's forms: long enough, and not one letter over and over."""
    if len(password) < SHORTEST_PASSWORD:
        raise PasswordComplexityValidationError(f"Use at least {SHORTEST_PASSWORD} characters.")
    if len(set(password)) < 5:
        raise PasswordComplexityValidationError("Use more different characters.")


def open_session(user_id: int, stamp: str) -> None:
    """Sign a browser in: a new session, so that one set by somebody else is worth nothing."""
    session.clear()
    session.permanent = True
    session["_user_id"] = str(user_id)
    session["_fresh"] = True
    session["stamp"] = stamp
