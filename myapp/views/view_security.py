"""Signing in by the API, and who one is."""

from __future__ import annotations

import time
from typing import Any, Literal

from flask import request
from pydantic import Field

from myapp.domain.errors import Unauthenticated
from myapp.domain.permissions import Permission
from myapp.security.login import MAX_PASSWORD, MAX_USERNAME, SignedIn, authenticate
from myapp.services.members import ensure_membership
from myapp.services.read_projects import list_projects
from myapp.views.blueprints import api
from myapp.views.http import Call, route
from myapp.views.schemas import Body, Id, Reply
from myapp.views.web import web


class Login(Body):
    username: str = Field(max_length=MAX_USERNAME)
    password: str = Field(max_length=MAX_PASSWORD)
    provider: Literal["db"] = "db"
    refresh: bool = Field(False, description="Accepted for clients of Flask-AppBuilder; there are no refresh tokens.")


class LoginReply(Reply):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int = Field(description="Seconds.")


class Membership(Reply):
    id: Id
    slug: str
    role: str | None


class Me(Reply):
    id: Id
    username: str
    is_admin: bool
    projects: list[Membership]


class MeReply(Reply):
    result: Me


def sign_in(username: str, password: str) -> SignedIn:
    """The one way in, for the form and the API. Raises Unauthenticated, Limited, Unavailable."""
    state, address = web(), request.remote_addr or ""
    attempt = state.throttle.enter(username, address)
    found = authenticate(state.database, username, password, address=address)
    if found is None:
        raise Unauthenticated("the user name or the password is wrong", code="bad_credentials")
    attempt.succeeded()
    if found.first:
        ensure_membership(state.context, found.user_id)
    return found


@route(
    api,
    "/security/login",
    methods=("POST",),
    permission=Permission.PUBLIC,
    tag="security",
    body=Login,
    reply=LoginReply,
    errors=(401, 429),
)
def login(call: Call) -> Any:
    """Sign in for an access token

    Send it as `Authorization: Bearer <access_token>`. Failed attempts are limited by user name and address.
    """
    found = sign_in(call.body.username, call.body.password)
    tokens = web().access_tokens
    return {
        "access_token": tokens.issue(found.user_id, found.stamp, now=time.time()),
        "token_type": "Bearer",
        "expires_in": int(tokens.lifetime),
    }


@route(api, "/me/", permission=Permission.SELF, tag="security", reply=MeReply)
def me(call: Call) -> Any:
    """Who one is, and in which projects as what"""
    actor = call.actor
    mine = list_projects(call.context, actor, page_size=1000).result
    projects = [{"id": p["id"], "slug": p["slug"], "role": p["role"]} for p in mine]
    return {
        "result": {"id": actor.user_id, "username": actor.username, "is_admin": actor.is_admin, "projects": projects}
    }
