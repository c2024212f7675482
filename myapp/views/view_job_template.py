"""Job templates: recipes that pipeline tasks name."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from myapp.domain.permissions import Permission
from myapp.services.publish_template import publish_template
from myapp.services.read_templates import describe_template, list_templates
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, DocumentBody, route
from myapp.views.query import ListQuery, Query
from myapp.views.schemas import Id, Reply, Time


class Template(Reply):
    id: Id
    name: str
    project: str | None = Field(description="null: from the catalogue, for every project.")
    title: str
    category: str
    description: str
    framework: str
    version: int | None
    sha256: str | None
    retired: bool
    updated_at: Time | None
    args: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    resources: dict[str, Any] | None


class TemplateVersion(Reply):
    version: int
    sha256: str
    current: bool


class TemplateDetail(Template):
    document: dict[str, Any]
    files: dict[str, str]
    versions: list[TemplateVersion]


class TemplateReply(Reply):
    result: TemplateDetail


class TemplateList(Reply):
    count: int
    result: list[Template]


class PublishedTemplateReply(Reply):
    id: Id
    version: int
    created: bool
    sha256: str


class TemplateQuery(ListQuery):
    category: str = Field("", max_length=64)
    contains: str = Field("", max_length=100, description="Only templates with this in their name or title.")


class TemplateTarget(Query):
    project: str | None = Field(None, max_length=63, description="Whose it is; default: the document's, else `public`.")


@route(
    api,
    "/job_template/",
    permission=Permission.TEMPLATE_READ,
    tag="job_template",
    query=TemplateQuery,
    reply=TemplateList,
)
def get_job_templates(call: Call) -> Any:
    """The catalogue's job templates and those of one's projects"""
    query = call.query
    page = list_templates(
        call.context,
        call.actor,
        category=query.category,
        contains=query.contains,
        page=query.page,
        page_size=query.page_size,
    )
    return {"count": page.count, "result": page.result}


@route(
    api,
    "/job_template/<word:name>",
    permission=Permission.TEMPLATE_READ,
    tag="job_template",
    reply=TemplateReply,
    errors=(404,),
)
def get_job_template(call: Call, name: str) -> Any:
    """One job template with its document and files"""
    return {"result": describe_template(call.context, call.actor, name)}


@route(
    api,
    "/job_template/",
    methods=("POST",),
    permission=Permission.TEMPLATE_WRITE,
    tag="job_template",
    query=TemplateTarget,
    body=DocumentBody("JobTemplate"),
    replies={201: PublishedTemplateReply},
    errors=(404, 409),
    reply_headers=("Location",),
)
def post_job_template(call: Call) -> Any:
    """Publish a job template, or a new version of it

    The body is the document itself. Sending it again changes nothing.
    """
    done = publish_template(call.context, call.actor, call.body.data, project=call.query.project)
    data = {"id": done.id, "version": done.version, "created": done.created, "sha256": done.sha256}
    return Answer(data, 201, {"Location": f"/api/v1/job_template/{call.body.data['metadata']['name']}"})
