"""API tokens: for programs that cannot type a password."""

from __future__ import annotations

from typing import Any

from flask import g
from pydantic import Field

from myapp.domain.errors import Forbidden
from myapp.domain.permissions import Permission
from myapp.security.tokens import create_token, list_tokens, revoke_token
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.schemas import Body, Reply, Time
from myapp.views.web import web

_MAX_DAYS = 3660


class NewToken(Body):
    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$", description="What it is for.")
    days: float | None = Field(90, gt=0, le=_MAX_DAYS, description="Life in days; null: until it is revoked.")


class Token(Reply):
    id: str
    name: str
    prefix: str = Field(description="The first characters, to recognise it by.")
    created_on: Time | None
    expires_on: Time | None
    last_used_on: Time | None


class MadeToken(Token):
    token: str = Field(description="Shown this once.")


class MadeTokenReply(Reply):
    result: MadeToken


class TokenList(Reply):
    count: int
    result: list[Token]


@route(api, "/security/token/", permission=Permission.SELF, tag="security", reply=TokenList)
def get_tokens(call: Call) -> Any:
    """One's own API tokens"""
    result = list_tokens(web().database, call.actor.user_id)
    return {"count": len(result), "result": result}


@route(
    api,
    "/security/token/",
    methods=("POST",),
    permission=Permission.SELF,
    tag="security",
    body=NewToken,
    replies={201: MadeTokenReply},
    errors=(409,),
)
def post_token(call: Call) -> Any:
    """Make an API token

    It may do all that its owner may, except make more tokens, until it expires or is revoked.
    """
    if g.get("cube_token") is not None:
        raise Forbidden(
            "an API token cannot make another one", code="needs_login", resolution="Sign in with a password first."
        )
    actor = call.actor
    made = create_token(
        web().database, actor.user_id, actor.username, call.body.name, days=call.body.days, address=actor.address
    )
    return Answer({"result": made}, 201)


@route(
    api,
    "/security/token/<word:token_id>",
    methods=("DELETE",),
    permission=Permission.SELF,
    tag="security",
    replies={204: None},
    errors=(404,),
)
def delete_token(call: Call, token_id: str) -> Any:
    """Revoke one of one's own API tokens: it ends at once"""
    revoke_token(web().database, call.actor.user_id, call.actor.username, token_id, address=call.actor.address)
    return Answer(None, 204)
