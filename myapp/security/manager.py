"""Flask-AppBuilder's security manager, on this platform's own sign-in, and with only the pages that are needed."""

from __future__ import annotations

from typing import Any

from flask import current_app, g, session
from flask_appbuilder.exceptions import PasswordComplexityValidationError
from flask_appbuilder.security.sqla.manager import SecurityManager as FabSecurityManager
from flask_login import LoginManager

from myapp.security.identity import find_token
from myapp.security.login import authenticate
from myapp.security.tokens import lookup_hash

SHORTEST_PASSWORD = 10


class SecurityManager(FabSecurityManager):
    """Administrators manage users, roles and groups on FAB's pages; everything else uses `security.identity`."""

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
    locale = session.get("locale")
    session.clear()
    session.permanent = True
    session["_user_id"] = str(user_id)
    session["_fresh"] = True
    session["stamp"] = stamp
    if locale:
        session["locale"] = locale
