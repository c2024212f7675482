"""Shapes of requests and replies that several routes share. Replies are described by these models, not passed through
them: what a service returns goes out as it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from myapp.views.query import MAX_ID

Id = Annotated[int, Field(ge=1, le=MAX_ID)]
Time = Annotated[
    str, Field(description="ISO 8601, UTC, e.g. `2026-11-30T22:45:01.123Z`.", examples=["2026-11-30T22:45:01.123Z"])
]


class Body(BaseModel):
    """Base of every small request body: unknown fields are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Reply(BaseModel):
    """Base of every reply; later versions may add fields."""

    model_config = ConfigDict(extra="allow")


class ProblemReply(Reply):
    """One thing wrong with a document, and where."""

    code: str
    message: str
    field: str | None = None
    node: str | None = None
    resolution: str | None = None
    line: int | None = None
    severity: str = "error"


class ErrorReply(Reply):
    """Every error. `detail` is the list of problems when a document is wrong."""

    code: str
    message: str
    detail: Any = None
    resolution: str | None = None


class IdReply(Reply):
    id: Id


class SubmittedReply(Reply):
    """`created` is false when the idempotency key named a run that exists already."""

    id: Id
    created: bool
    warnings: list[ProblemReply] = Field([], description="Of an AIJob: what it holds without effect.")


class RunSubmission(Body):
    """Parameters left out take their defaults."""

    params: dict[str, Any] = Field({}, description="Values of the pipeline's parameters.")
    priority: Literal["low", "normal", "high"] | None = None
    version: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Number of the version to run; default: the current one."
    )
