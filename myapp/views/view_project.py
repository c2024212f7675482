"""Projects: the tenants."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from myapp.domain.permissions import Permission
from myapp.services.create_project import create_project
from myapp.services.read_projects import describe_project, list_projects
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.query import ListQuery
from myapp.views.schemas import Body, Id, Reply, Time
from myapp.views.view_member import Member


class NewProject(Body):
    slug: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}[a-z0-9]$", max_length=32)
    title: str = Field("", max_length=200)
    description: str = Field("", max_length=2000)


class Project(Reply):
    id: Id
    slug: str
    title: str
    description: str
    namespace: str
    backend: str
    created_by: str
    created_at: Time | None
    role: str | None = Field(description="One's own role in it.")


class ProjectDetail(Project):
    permissions: list[str] = Field(description="What one may do in it.")
    members: list[Member]


class ProjectList(Reply):
    count: int
    result: list[Project]


class ProjectReply(Reply):
    result: ProjectDetail


class MadeProject(Reply):
    id: Id
    slug: str


class ProjectQuery(ListQuery):
    contains: str = Field("", max_length=100, description="Only projects with this in their slug or title.")


@route(api, "/project/", permission=Permission.PROJECT_READ, tag="project", query=ProjectQuery, reply=ProjectList)
def get_projects(call: Call) -> Any:
    """The projects one belongs to"""
    query = call.query
    page = list_projects(call.context, call.actor, contains=query.contains, page=query.page, page_size=query.page_size)
    return {"count": page.count, "result": page.result}


@route(
    api,
    "/project/",
    methods=("POST",),
    permission=Permission.PROJECT_CREATE,
    tag="project",
    body=NewProject,
    replies={201: MadeProject},
    errors=(409,),
)
def post_project(call: Call) -> Any:
    """Make a project (administrators)"""
    body = call.body
    made = create_project(call.context, call.actor, slug=body.slug, title=body.title, description=body.description)
    return Answer({"id": made.id, "slug": made.slug}, 201)


@route(
    api, "/project/<word:slug>", permission=Permission.PROJECT_READ, tag="project", reply=ProjectReply, errors=(404,)
)
def get_project(call: Call, slug: str) -> Any:
    """One project, its members, and what one may do in it"""
    return {"result": describe_project(call.context, call.actor, slug)}
