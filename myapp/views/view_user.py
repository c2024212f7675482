"""Users, as far as a program makes them; everything else about them is on the pages for administrators."""

from __future__ import annotations

from typing import Any

from flask import g
from pydantic import Field

from myapp.domain.errors import Forbidden
from myapp.domain.permissions import Permission
from myapp.security.login import MAX_PASSWORD
from myapp.security.users import NewUser as Wanted
from myapp.security.users import create_user
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.schemas import Body, Id, Reply
from myapp.views.web import web

_PLAIN = r"^[^\x00-\x1f\x7f]*$"


class NewUser(Body):
    username: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")
    password: str = Field(max_length=MAX_PASSWORD, description="At least 10 characters.")
    email: str = Field("", max_length=254, pattern=r"^([^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+)?$")
    first_name: str = Field("", max_length=64, pattern=_PLAIN)
    last_name: str = Field("", max_length=64, pattern=_PLAIN)
    admin: bool = Field(False, description="An administrator of the whole platform.")


class MadeUser(Reply):
    id: Id
    username: str


@route(
    api,
    "/security/user/",
    methods=("POST",),
    permission=Permission.USER_MANAGE,
    tag="security",
    body=NewUser,
    replies={201: MadeUser},
    errors=(409,),
)
def post_user(call: Call) -> Any:
    """Make a user (administrators)

    An API token may not make an administrator. At the first sign-in a user becomes a member of the project `public`.
    """
    body = call.body
    if body.admin and g.get("cube_token") is not None:
        raise Forbidden(
            "an API token cannot make an administrator",
            code="needs_login",
            resolution="Sign in with a password first.",
        )
    made = create_user(web().database, call.actor, Wanted(**body.model_dump()))
    return Answer({"id": made, "username": body.username}, 201)
