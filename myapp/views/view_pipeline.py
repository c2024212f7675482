"""Pipelines: documents in, versions out."""

from __future__ import annotations

from typing import Any

from flask import Response
from pydantic import Field

from myapp.domain.errors import Conflict
from myapp.domain.permissions import Permission
from myapp.services.delete_pipeline import delete_pipeline as delete
from myapp.services.publish_pipeline import Published, publish_pipeline
from myapp.services.read_pipelines import PipelineFilter, describe_pipeline, list_pipelines
from myapp.services.submit_run import submit_run
from myapp.services.validate_pipeline import validate_document
from myapp.views.blueprints import api
from myapp.views.etag import as_precondition, etag, if_match, not_modified
from myapp.views.http import Answer, Call, DocumentBody, route
from myapp.views.query import ListQuery
from myapp.views.schemas import Id, ProblemReply, Reply, RunSubmission, SubmittedReply, Time
from myapp.views.submission import idempotency_key


class ScheduleBrief(Reply):
    cron: str
    timezone: str
    paused: bool
    next_due_at: Time | None


class Pipeline(Reply):
    id: Id
    project: str
    name: str
    title: str
    description: str
    lock_version: int
    version: int | None
    created_by: str
    created_at: Time | None
    updated_at: Time | None
    schedule: ScheduleBrief | None


class PipelineDetail(Pipeline):
    sha256: str | None
    document: dict[str, Any] | None = Field(description="The document last applied.")
    graph: dict[str, Any] | None = Field(description="The current version, checked and pinned.")
    params: list[dict[str, Any]]


class PipelineReply(Reply):
    result: PipelineDetail


class PipelineList(Reply):
    count: int
    result: list[Pipeline]


class PublishedReply(Reply):
    """`created` is false when the current version was the same already."""

    id: Id
    version: int
    created: bool
    changes: list[str] = Field(description="What else was changed, such as `schedule changed`.")
    warnings: list[ProblemReply] = Field(description="What the document holds without effect.")


class Verdict(Reply):
    valid: bool
    problems: list[ProblemReply]


class VerdictReply(Reply):
    result: Verdict


class PipelineQuery(ListQuery):
    project: str = Field("", max_length=63)
    name: str = Field("", max_length=63)
    contains: str = Field("", max_length=100, description="Only pipelines with this in their name.")


@route(api, "/pipeline/", permission=Permission.PIPELINE_READ, tag="pipeline", query=PipelineQuery, reply=PipelineList)
def get_pipelines(call: Call) -> Any:
    """Pipelines, newest first"""
    query = call.query
    wanted = PipelineFilter(project=query.project, name=query.name, contains=query.contains)
    page = list_pipelines(call.context, call.actor, wanted, page=query.page, page_size=query.page_size)
    return {"count": page.count, "result": page.result}


@route(
    api,
    "/pipeline/",
    methods=("POST",),
    permission=Permission.PIPELINE_WRITE,
    tag="pipeline",
    body=DocumentBody("Pipeline"),
    replies={201: PublishedReply},
    errors=(404, 409, 412),
    headers=("If-Match",),
    reply_headers=("ETag", "Location"),
)
def post_pipeline(call: Call) -> Any:
    """Create a pipeline, or give it a new version

    The body is the document itself. Sending it again changes nothing.
    """
    return _published(call, _publish(call, if_match()), 201)


@route(
    api,
    "/pipeline/validate",
    methods=("POST",),
    permission=Permission.PIPELINE_READ,
    tag="pipeline",
    body=DocumentBody(),
    reply=VerdictReply,
    errors=(404,),
)
def post_pipeline_validate(call: Call) -> Any:
    """Everything wrong with a document, without changing anything

    Takes an AIJob or a JobTemplate as well.
    """
    problems = call.body.located(validate_document(call.context, call.actor, call.body.data))
    shown = [problem.model_dump() for problem in problems]
    return {"result": {"valid": not any(p["severity"] == "error" for p in shown), "problems": shown}}


@route(
    api,
    "/pipeline/<id:pipeline_id>",
    permission=Permission.PIPELINE_READ,
    tag="pipeline",
    replies={200: PipelineReply, 304: None},
    errors=(404,),
    headers=("If-None-Match",),
    reply_headers=("ETag",),
)
def get_pipeline(call: Call, pipeline_id: int) -> Any:
    """One pipeline with its document"""
    result = describe_pipeline(call.context, call.actor, pipeline_id)
    tag = {"ETag": etag(result["lock_version"])}
    if not_modified(result["lock_version"]):
        return Response(status=304, headers=tag)
    return Answer({"result": result}, 200, tag)


@route(
    api,
    "/pipeline/<id:pipeline_id>",
    methods=("PUT",),
    permission=Permission.PIPELINE_WRITE,
    tag="pipeline",
    body=DocumentBody("Pipeline"),
    reply=PublishedReply,
    errors=(404, 409, 412, 428),
    headers=("If-Match",),
    reply_headers=("ETag", "Location"),
)
def put_pipeline(call: Call, pipeline_id: int) -> Any:
    """Change a pipeline that one has read

    `If-Match` carries the ETag of that reading: 412 when somebody else has changed it meanwhile.
    """
    expected = if_match(required=True)
    current = describe_pipeline(call.context, call.actor, pipeline_id)
    metadata = call.body.data.get("metadata") if isinstance(call.body.data, dict) else None
    named = metadata if isinstance(metadata, dict) else {}
    if named.get("name") != current["name"] or named.get("project", "public") != current["project"]:
        raise Conflict(
            f"the document is not that of pipeline {current['project']}/{current['name']}",
            code="other_pipeline",
            resolution="A pipeline keeps its project and name; POST /api/v1/pipeline/ makes another one.",
        )
    return _published(call, _publish(call, expected), 200)


@route(
    api,
    "/pipeline/<id:pipeline_id>",
    methods=("DELETE",),
    permission=Permission.PIPELINE_DELETE,
    tag="pipeline",
    replies={204: None},
    errors=(404, 409),
)
def delete_pipeline(call: Call, pipeline_id: int) -> Any:
    """Delete a pipeline; its runs stay"""
    delete(call.context, call.actor, pipeline_id)
    return Answer(None, 204)


@route(
    api,
    "/pipeline/<id:pipeline_id>/run",
    methods=("POST",),
    permission=Permission.RUN_SUBMIT,
    tag="pipeline",
    body=RunSubmission,
    body_optional=True,
    replies={202: SubmittedReply},
    errors=(404, 409),
    headers=("Idempotency-Key",),
    reply_headers=("Location",),
)
def post_pipeline_run(call: Call, pipeline_id: int) -> Any:
    """Run a pipeline

    With an `Idempotency-Key`, sending the same request again answers with the same run.
    """
    body = call.body
    done = submit_run(
        call.context,
        call.actor,
        pipeline_id=pipeline_id,
        params=body.params,
        priority=body.priority,
        version=body.version,
        idempotency_key=idempotency_key(),
    )
    return Answer({"id": done.run_id, "created": done.created}, 202, {"Location": f"/api/v1/run/{done.run_id}"})


def _publish(call: Call, expected: int | None) -> Published:
    try:
        return publish_pipeline(call.context, call.actor, call.body.data, if_match=expected)
    except Conflict as error:
        raise as_precondition(error) from None


def _published(call: Call, done: Published, status: int) -> Answer:
    headers = {"ETag": etag(done.lock_version), "Location": f"/api/v1/pipeline/{done.id}"}
    data = {
        "id": done.id,
        "version": done.version,
        "created": done.created,
        "changes": list(done.changes),
        "warnings": [problem.model_dump() for problem in call.body.located(list(done.warnings))],
    }
    return Answer(data, status, headers)
