"""The gate before every request: who is asking, may they use this route, and is it them and not a forged form.

Fails closed: a route without a declaration, ours or Flask-AppBuilder's, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from flask import Flask, current_app, g, redirect, request, session
from flask_wtf.csrf import CSRFError, CSRFProtect
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.wrappers import Response

from myapp.domain.errors import Forbidden, NotFound, Unauthenticated
from myapp.domain.permissions import ROLE_PERMISSIONS, Actor, Permission
from myapp.security.identity import Identity, find_token, find_user, same_stamp
from myapp.security.tokens import API_TOKEN_PREFIX, lookup_hash, note_use
from myapp.views.http import Route, declared_on
from myapp.views.web import Web, web
from myapp.views.words import language

log = logging.getLogger(__name__)

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_MAX_CREDENTIAL = 4096
csrf = CSRFProtect()

_FAB_ADMIN_VIEWS = ("UserDBModelView", "RoleModelView", "UserGroupModelView")
_FAB_ADMIN_PAGES = ("list", "show", "add", "edit", "delete", "action", "action_post")

# Flask-AppBuilder's own routes that may be used, and what each needs; its decorator checks besides. All others: 404.
FAB_ROUTES: dict[str, Permission] = {
    "appbuilder.static": Permission.PUBLIC,
    "static": Permission.PUBLIC,
    "UtilView.back": Permission.SELF,
    "UserInfoEditView.this_form_get": Permission.SELF,  # has_access
    "UserInfoEditView.this_form_post": Permission.SELF,  # has_access
    "ResetMyPasswordView.this_form_get": Permission.SELF,  # has_access
    "ResetMyPasswordView.this_form_post": Permission.SELF,  # has_access
    "ResetPasswordView.this_form_get": Permission.USER_MANAGE,  # has_access
    "ResetPasswordView.this_form_post": Permission.USER_MANAGE,  # has_access
    **{  # has_access on each
        f"{view}.{page}": Permission.USER_MANAGE for view in _FAB_ADMIN_VIEWS for page in _FAB_ADMIN_PAGES
    },
    "UserDBModelView.userinfo": Permission.USER_MANAGE,
}


def install(app: Flask) -> None:
    app.config.update(WTF_CSRF_CHECK_DEFAULT=False, WTF_CSRF_TIME_LIMIT=None)
    csrf.init_app(app)
    app.before_request_funcs.setdefault(None, []).insert(0, guard)


def guard() -> Response | None:
    """Runs before everything else. None lets the request go on."""
    endpoint = request.endpoint
    if endpoint is None:
        return None  # no such route: Flask answers 404 or 405
    declared = declared_on(current_app.view_functions.get(endpoint))
    if declared is None:
        permission = FAB_ROUTES.get(endpoint)
        if permission is None:
            log.warning("refused a route that declares no permission: %s", endpoint)
            raise NotFound("there is no such page")
        declared = Route(permission, page=True)
    if declared.permission is Permission.PUBLIC:
        return None
    try:
        identity, by_session = _who()
    except Unauthenticated:
        if declared.page and "Authorization" not in request.headers:
            session.clear()
            return _to_login()
        raise
    g.cube_actor = identity.actor
    g.cube_by_session = by_session
    g.cube_token = identity.token
    if by_session and request.method not in _SAFE:
        check_csrf()
    _check_permission(identity.actor, declared.permission)
    if endpoint in FAB_ROUTES and by_session:
        session["locale"] = language()  # Flask-AppBuilder's pages look for it there
    return None


def who_if_any() -> Actor | None:
    """The signed-in user on a public page; None for anybody else."""
    try:
        return _who()[0].actor
    except Unauthenticated:
        return None


def check_csrf() -> None:
    """Raises Forbidden (as a 400 of its own code) unless the request carries the session's CSRF token."""
    try:
        csrf.protect()
    except CSRFError as error:
        raise CsrfRefused(
            f"the request lacks a valid CSRF token: {error.description}",
            resolution="Send the page's token in the header X-CSRFToken, or use an access token instead of the cookie.",
        ) from None


class CsrfRefused(Forbidden):
    code = "csrf"

    @property
    def status(self) -> int:
        return 400


def _check_permission(actor: Actor, permission: Permission) -> None:
    """What can be said before the row is known: the services then check the very project."""
    if not permission.startswith("project:"):
        actor.require(permission)
        return
    if (
        request.method in _SAFE
        or actor.is_admin
        or any(permission in ROLE_PERMISSIONS[r] for r in actor.roles.values())
    ):
        return
    raise Forbidden(
        f"{actor.username} may not do this in any project: it needs the permission {permission.value}",
        resolution="Ask an owner of the project (or an administrator) for a role that has it.",
    )


def credential() -> Callable[[], Identity]:
    """The request's proof of identity, to be looked at now and, by what lives longer than a request, again later.

    Calling it raises Unauthenticated when it does not hold (any more).
    """
    state, address = web(), request.remote_addr or ""
    header = request.headers.get("Authorization")
    if header is not None:
        shown = header
        return lambda: _by_header(state, shown, address)
    user_id, stamp = session.get("_user_id"), str(session.get("stamp", ""))
    return lambda: _by_session(state, user_id, stamp, address)


def _who() -> tuple[Identity, bool]:
    """The identity behind the request, and whether a cookie proved it. Raises Unauthenticated."""
    return credential()(), "Authorization" not in request.headers


def _by_session(state: Web, user_id: Any, stamp: str, address: str) -> Identity:
    if not isinstance(user_id, str) or not user_id.isdecimal() or len(user_id) > 18:
        raise Unauthenticated(
            "sign in first", resolution="POST /api/v1/security/login, then send Authorization: Bearer <token>."
        )
    with state.database.read() as connection:
        identity = find_user(connection, int(user_id), address=address)
    if identity is None or not same_stamp(stamp, identity.stamp):
        raise Unauthenticated("the session has ended", code="session_ended", resolution="Sign in again.")
    return identity


def _by_header(state: Web, header: str, address: str) -> Identity:
    scheme, _, credential = header.partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential or len(credential) > _MAX_CREDENTIAL:
        raise Unauthenticated("the Authorization header must be: Bearer <token>", code="bad_authorization")
    identity: Identity | None = None
    if credential.startswith(API_TOKEN_PREFIX):
        with state.database.read() as connection:
            identity = find_token(connection, lookup_hash(credential), address=address)
        if identity is not None and identity.token is not None:
            try:
                note_use(state.database, identity.token, identity.token_used_at)
            except SQLAlchemyError:
                log.warning("could not record the use of an API token")
    else:
        claims = state.access_tokens.read(credential)
        if claims is not None:
            with state.database.read() as connection:
                identity = find_user(connection, claims.user_id, address=address)
            if identity is not None and not same_stamp(claims.stamp, identity.stamp):
                identity = None
    if identity is None:
        raise Unauthenticated(
            "the token is not valid (any more)", code="bad_token", resolution="Sign in again for a new one."
        )
    return identity


def _to_login() -> Any:
    wanted = request.full_path.rstrip("?") if request.method == "GET" else "/"
    return redirect("/login/" + (f"?next={quote(wanted)}" if wanted not in ("/", "") else ""))
