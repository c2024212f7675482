"""Versions of a pipeline: immutable."""

from __future__ import annotations

from typing import Any

from myapp.domain.permissions import Permission
from myapp.services.read_pipelines import describe_version, list_versions
from myapp.views.blueprints import api
from myapp.views.http import Call, route
from myapp.views.query import ListQuery
from myapp.views.schemas import Id, Reply, Time


class Version(Reply):
    id: Id
    version: int
    sha256: str
    current: bool
    created_by: str
    created_at: Time | None


class VersionDetail(Version):
    graph: dict[str, Any]
    document: dict[str, Any]


class VersionReply(Reply):
    result: VersionDetail


class VersionList(Reply):
    count: int
    result: list[Version]


@route(
    api,
    "/pipeline/<id:pipeline_id>/version/",
    permission=Permission.PIPELINE_READ,
    tag="pipeline",
    query=ListQuery,
    reply=VersionList,
    errors=(404,),
)
def get_versions(call: Call, pipeline_id: int) -> Any:
    """The versions of a pipeline, newest first"""
    page = list_versions(call.context, call.actor, pipeline_id, page=call.query.page, page_size=call.query.page_size)
    return {"count": page.count, "result": page.result}


@route(
    api,
    "/pipeline/<id:pipeline_id>/version/<number:number>",
    permission=Permission.PIPELINE_READ,
    tag="pipeline",
    reply=VersionReply,
    errors=(404,),
)
def get_version(call: Call, pipeline_id: int, number: int) -> Any:
    """One version with its graph and document"""
    return {"result": describe_version(call.context, call.actor, pipeline_id, number)}
