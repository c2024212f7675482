"""Members of a project."""

from __future__ import annotations

from typing import Any, Literal

from myapp.domain.permissions import Permission
from myapp.services.members import remove_member, set_member
from myapp.services.read_projects import list_members
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.schemas import Body, Id, Reply, Time


class MemberRole(Body):
    role: Literal["owner", "ops", "dev", "viewer"]


class Member(Reply):
    user_id: Id
    username: str
    name: str
    email: str | None
    role: str
    since: Time | None


class MemberList(Reply):
    count: int
    result: list[Member]


@route(
    api,
    "/project/<word:slug>/member/",
    permission=Permission.PROJECT_READ,
    tag="project",
    reply=MemberList,
    errors=(404,),
)
def get_members(call: Call, slug: str) -> Any:
    """Who belongs to a project, and as what"""
    result = list_members(call.context, call.actor, slug)
    return {"count": len(result), "result": result}


@route(
    api,
    "/project/<word:slug>/member/<user:username>",
    methods=("PUT",),
    permission=Permission.MEMBER_MANAGE,
    tag="project",
    body=MemberRole,
    replies={204: None},
    errors=(404, 409),
)
def put_member(call: Call, slug: str, username: str) -> Any:
    """Add a user to a project, or change their role"""
    set_member(call.context, call.actor, project=slug, username=username, role=call.body.role)
    return Answer(None, 204)


@route(
    api,
    "/project/<word:slug>/member/<user:username>",
    methods=("DELETE",),
    permission=Permission.MEMBER_MANAGE,
    tag="project",
    replies={204: None},
    errors=(404, 409),
)
def delete_member(call: Call, slug: str, username: str) -> Any:
    """Take a user out of a project: what they may do there ends at once"""
    remove_member(call.context, call.actor, project=slug, username=username)
    return Answer(None, 204)
