"""What a run looks like from outside."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from myapp.views.schemas import Body, Id, Reply, Time

RunPhaseName = Literal["queued", "running", "succeeded", "failed", "stopped"]
TaskPhaseName = Literal["blocked", "ready", "queued", "admitted", "active", "succeeded", "failed", "stopped", "skipped"]


class Run(Reply):
    id: Id
    project: str
    pipeline_id: int | None
    kind: Literal["pipeline", "job"]
    name: str
    phase: RunPhaseName
    desired: Literal["run", "stop"]
    event_seq: int = Field(description="Cursor of the newest event; `events?after=` goes on from here.")
    priority: str
    reason_code: str
    reason: str
    retry_of: int | None
    schedule_id: int | None
    scheduled_at: Time | None
    submitted_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    created_by: str
    duration_s: float | None


class RunList(Reply):
    """`count` is exact when `count_exact`, else there are more. `next` goes into `before` for the next page."""

    count: int
    count_exact: bool
    next: int | None
    result: list[Run]


class Attempt(Reply):
    no: int
    phase: str
    exit_code: int | None
    cause: str
    message: str
    diagnosis: dict[str, Any] | None = Field(description="What went wrong, and what to do about it.")
    ranks: list[dict[str, Any]]
    started_at: Time | None
    finished_at: Time | None


class Artifact(Reply):
    name: str
    size: int | None
    media_type: str | None


class Task(Reply):
    key: str
    phase: TaskPhaseName
    reason: str
    reason_code: str
    waiting: str | None = Field(description="Why it does not run yet.")
    depends_on: list[str]
    started_at: Time | None
    finished_at: Time | None
    duration_s: float | None
    attempts: list[Attempt]
    outputs: dict[str, Any]
    artifacts: list[Artifact]


class RunArtifact(Artifact):
    task: str


class Metric(Reply):
    task: str
    name: str
    value: float | None
    step: int | None
    at: Time | None


class RunDetail(Run):
    params: dict[str, Any]
    waiting: str | None
    task_counts: dict[str, int]
    tasks: list[Task]
    next_ordinal: int | None = Field(description="Goes into `after_ordinal` for more tasks; null on the last page.")
    outputs: dict[str, dict[str, Any]] = Field(description="Values by task and name.")
    artifacts: list[RunArtifact]
    metrics: list[Metric] = Field(description="The newest value of each.")


class RunReply(Reply):
    result: RunDetail


class MetricPoint(Metric):
    id: Id


class MetricList(Reply):
    result: list[MetricPoint]


class Cancel(Body):
    reason: str = Field("", max_length=500, pattern=r"^[^\x00]*$")


class Retry(Body):
    mode: Literal["failed", "all"] = Field(
        "failed", description="`failed` takes over what succeeded; `all` repeats everything."
    )
    params: dict[str, Any] | None = Field(None, description="With mode `all`: parameters to change.")


class CancelReply(Reply):
    id: Id
    desired: Literal["stop"]
