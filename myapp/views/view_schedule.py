"""When a pipeline runs by itself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from myapp.domain.errors import NotFound
from myapp.domain.permissions import Permission
from myapp.services.read_pipelines import describe_pipeline
from myapp.services.save_schedule import delete_schedule as delete
from myapp.services.save_schedule import next_times, pause_schedule, save_schedule
from myapp.views.blueprints import api
from myapp.views.http import Answer, Call, route
from myapp.views.query import Query, Whole
from myapp.views.schemas import Body, Id, Reply, Time


class ScheduleBody(Body):
    """As `spec.schedule` of a Pipeline document."""

    cron: str = Field(max_length=100, description="Five fields: minute hour day-of-month month day-of-week.")
    timezone: str = Field("UTC", max_length=64, description="A name such as Europe/Berlin.")
    catchup: Literal["none", "latest", "all"] = "none"
    maxActiveRuns: int = Field(1, ge=1, le=1000)
    paused: bool | None = None
    params: dict[str, Any] = Field({})


class Schedule(Reply):
    id: Id
    cron: str
    timezone: str
    catchup: str
    max_active_runs: int
    paused: bool
    params: dict[str, Any]
    next_due_at: Time | None
    created_by: str
    next_times: list[Time]


class ScheduleReply(Reply):
    result: Schedule


class NextTimes(Reply):
    result: list[Time]


class NextTimesQuery(Query):
    count: Whole = Field(5, ge=1, le=100)


_RULE = "/pipeline/<id:pipeline_id>/schedule"


@route(api, _RULE, permission=Permission.PIPELINE_READ, tag="schedule", reply=ScheduleReply, errors=(404,))
def get_schedule(call: Call, pipeline_id: int) -> Any:
    """A pipeline's schedule and its next times"""
    return {"result": _schedule(call, pipeline_id)}


@route(
    api,
    _RULE,
    methods=("PUT",),
    permission=Permission.SCHEDULE_WRITE,
    tag="schedule",
    body=ScheduleBody,
    reply=ScheduleReply,
    errors=(404, 409),
)
def put_schedule(call: Call, pipeline_id: int) -> Any:
    """Set a pipeline's schedule"""
    save_schedule(call.context, call.actor, pipeline_id, call.body.model_dump(exclude_unset=True, exclude_none=True))
    return {"result": _schedule(call, pipeline_id)}


@route(
    api,
    _RULE,
    methods=("DELETE",),
    permission=Permission.SCHEDULE_WRITE,
    tag="schedule",
    replies={204: None},
    errors=(404, 409),
)
def delete_schedule(call: Call, pipeline_id: int) -> Any:
    """Remove a pipeline's schedule"""
    delete(call.context, call.actor, pipeline_id)
    return Answer(None, 204)


@route(
    api,
    f"{_RULE}/pause",
    methods=("POST",),
    permission=Permission.SCHEDULE_WRITE,
    tag="schedule",
    reply=ScheduleReply,
    errors=(404, 409),
)
def post_schedule_pause(call: Call, pipeline_id: int) -> Any:
    """Pause a schedule"""
    pause_schedule(call.context, call.actor, pipeline_id, paused=True)
    return {"result": _schedule(call, pipeline_id)}


@route(
    api,
    f"{_RULE}/resume",
    methods=("POST",),
    permission=Permission.SCHEDULE_WRITE,
    tag="schedule",
    reply=ScheduleReply,
    errors=(404, 409),
)
def post_schedule_resume(call: Call, pipeline_id: int) -> Any:
    """Resume a schedule; what was missed follows its catch-up policy"""
    pause_schedule(call.context, call.actor, pipeline_id, paused=False)
    return {"result": _schedule(call, pipeline_id)}


@route(
    api,
    f"{_RULE}/next",
    permission=Permission.PIPELINE_READ,
    tag="schedule",
    query=NextTimesQuery,
    reply=NextTimes,
    errors=(404,),
)
def get_schedule_next(call: Call, pipeline_id: int) -> Any:
    """The next times, in UTC, also of a paused schedule"""
    return {"result": next_times(call.context, call.actor, pipeline_id, count=call.query.count)}


def _schedule(call: Call, pipeline_id: int) -> dict[str, Any]:
    found: dict[str, Any] | None = describe_pipeline(call.context, call.actor, pipeline_id)["schedule"]
    if found is None:
        raise NotFound(f"pipeline {pipeline_id} has no schedule", code="no_schedule", resolution="PUT one here first.")
    return found
