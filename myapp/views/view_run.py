"""Runs: listed, looked at, cancelled, run again."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from myapp.domain.permissions import Permission
from myapp.services.cancel_run import cancel_run
from myapp.services.read_runs import RunFilter, describe_run, list_metrics, list_runs
from myapp.services.retry_run import retry_run
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.query import ListQuery, Query, Whole
from myapp.views.run_schemas import Cancel, CancelReply, MetricList, Retry, RunList, RunPhaseName, RunReply
from myapp.views.schemas import SubmittedReply
from myapp.views.submission import idempotency_key


class RunQuery(ListQuery):
    phase: RunPhaseName | None = None
    project: str = Field("", max_length=63)
    pipeline_id: Whole | None = None
    pipeline: str = Field("", max_length=63, description="Name of the pipeline.")
    contains: str = Field("", max_length=100, description="Only runs with this in their name.")
    created_by: str = Field("", max_length=64)
    kind: str = Field("", pattern="^(pipeline|job)?$")
    before: Whole | None = Field(None, description="`next` of the page before: its cost does not grow.")


class TasksQuery(Query):
    tasks_limit: Whole = Field(1000, le=10_000, description="Most tasks in the answer.")
    after_ordinal: Whole | None = Field(None, le=2**31 - 1, description="`next_ordinal` of the answer before.")


class MetricQuery(Query):
    name: str = Field("", max_length=128)
    after: Whole = Field(0, description="Id of the last point seen.")
    limit: Whole = Field(1000, ge=1, le=10_000)


@route(api, "/run/", permission=Permission.RUN_READ, tag="run", query=RunQuery, reply=RunList)
def get_runs(call: Call) -> Any:
    """Runs, newest first"""
    query = call.query
    wanted = RunFilter(
        phases=(query.phase,) if query.phase else (),
        project=query.project,
        pipeline_id=query.pipeline_id,
        pipeline=query.pipeline,
        contains=query.contains,
        created_by=query.created_by,
        kind=query.kind,
        before_id=query.before,
    )
    page = list_runs(call.context, call.actor, wanted, page=query.page, page_size=query.page_size)
    return {"count": page.count, "count_exact": page.count_exact, "next": page.next_before_id, "result": page.result}


@route(
    api, "/run/<id:run_id>", permission=Permission.RUN_READ, tag="run", query=TasksQuery, reply=RunReply, errors=(404,)
)
def get_run(call: Call, run_id: int) -> Any:
    """One run: its state and why, its tasks, what they published and measured"""
    after = call.query.after_ordinal
    result = describe_run(
        call.context,
        call.actor,
        run_id,
        tasks_limit=call.query.tasks_limit,
        after_ordinal=-1 if after is None else after,
    )
    return {"result": result}


@route(
    api,
    "/run/<id:run_id>/cancel",
    methods=("POST",),
    permission=Permission.RUN_CANCEL,
    tag="run",
    body=Cancel,
    body_optional=True,
    replies={202: CancelReply},
    errors=(404, 409),
)
def post_run_cancel(call: Call, run_id: int) -> Any:
    """Ask a run to stop; cancelling twice is the same as once"""
    cancel_run(call.context, call.actor, run_id, reason=call.body.reason)
    return Answer({"id": run_id, "desired": "stop"}, 202)


@route(
    api,
    "/run/<id:run_id>/retry",
    methods=("POST",),
    permission=Permission.RUN_SUBMIT,
    tag="run",
    body=Retry,
    body_optional=True,
    replies={202: SubmittedReply},
    errors=(404, 409),
    headers=("Idempotency-Key",),
    reply_headers=("Location",),
)
def post_run_retry(call: Call, run_id: int) -> Any:
    """Run an ended run again, as a new run"""
    done = retry_run(
        call.context,
        call.actor,
        run_id,
        mode=call.body.mode,
        params=call.body.params,
        idempotency_key=idempotency_key(),
    )
    return Answer({"id": done.run_id, "created": done.created}, 202, {"Location": f"/api/v1/run/{done.run_id}"})


@route(
    api,
    "/run/<id:run_id>/metric/",
    permission=Permission.RUN_READ,
    tag="run",
    query=MetricQuery,
    reply=MetricList,
    errors=(404,),
)
def get_run_metrics(call: Call, run_id: int) -> Any:
    """The points of a run's metrics, in the order they were written"""
    query = call.query
    points = list_metrics(call.context, call.actor, run_id, name=query.name, after_id=query.after, limit=query.limit)
    return {"result": points}
