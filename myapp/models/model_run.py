"""Runs, their tasks, and the attempts at each task: the rows with a phase."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Key, Label, Moment


class Run(Base):
    """`event_seq` numbers the transitions of the run and its tasks and attempts: the cursor of its event stream.

    Its row is the lock that every transaction changing any of them takes first.
    """

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("project_id", "idempotency_key"),
        Index("ix_run_project_id_id", "project_id", "id"),
        Index("ix_run_pipeline_id_phase_id", "pipeline_id", "phase", "id"),
        Index("ix_run_phase_id", "phase", "id"),
        Index("ix_run_next_check_at", "next_check_at"),
        Index("ix_run_schedule_id_phase", "schedule_id", "phase"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    pipeline_id: Mapped[int | None] = mapped_column(ForeignKey("pipeline.id", ondelete="SET NULL"), default=None)
    pipeline_version_id: Mapped[int] = mapped_column(ForeignKey("pipeline_version.id"))
    kind: Mapped[str] = mapped_column(Label, default="pipeline")  # pipeline | job
    name: Mapped[str] = mapped_column(Key)
    params: Mapped[dict[str, Any]] = mapped_column(JSONText)
    backend: Mapped[str] = mapped_column(Label, default="local")
    desired: Mapped[str] = mapped_column(Label, default="run")
    phase: Mapped[str] = mapped_column(Label, default="queued")
    version: Mapped[int] = mapped_column(Integer, default=0)
    event_seq: Mapped[int] = mapped_column(Integer, default=0)
    precedence: Mapped[int] = mapped_column(Integer, default=0)  # minus the priority: low goes first
    queue: Mapped[str] = mapped_column(Key, default="default")
    idempotency_key: Mapped[str | None] = mapped_column(String(128), default=None)
    request_sha256: Mapped[str | None] = mapped_column(String(64), default=None)
    reason_code: Mapped[str] = mapped_column(Label, default="")
    reason: Mapped[str] = mapped_column(String(1000), default="")
    parallelism: Mapped[int | None] = mapped_column(Integer, default=None)
    retry_of: Mapped[int | None] = mapped_column(Id, default=None)
    schedule_id: Mapped[int | None] = mapped_column(Id, default=None)
    scheduled_at: Mapped[float | None] = mapped_column(Moment, default=None)
    submitted_at: Mapped[float] = mapped_column(Moment)
    started_at: Mapped[float | None] = mapped_column(Moment, default=None)
    finished_at: Mapped[float | None] = mapped_column(Moment, default=None)
    deadline_at: Mapped[float | None] = mapped_column(Moment, default=None)
    timeout_s: Mapped[float | None] = mapped_column(Moment, default=None)
    next_check_at: Mapped[float | None] = mapped_column(Moment, default=None)
    created_by: Mapped[str] = mapped_column(String(64), default="")
    user_id: Mapped[int] = mapped_column(Id, default=0)


class TaskRun(Base):
    """One task of one run. `waits_for` is one upstream task that has not ended: only its end wakes this row.

    `spec` is frozen when the task becomes ready. Requests are sums over all ranks.
    """

    __tablename__ = "task_run"
    __table_args__ = (
        UniqueConstraint("run_id", "node_key"),
        Index("ix_task_run_run_id_phase_ordinal", "run_id", "phase", "ordinal"),
        Index("ix_task_run_run_id_waits_for_ordinal", "run_id", "waits_for", "ordinal"),
        Index("ix_task_run_backend_phase_precedence_run_id_id", "backend", "phase", "precedence", "run_id", "id"),
        Index("ix_task_run_next_check_at", "next_check_at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    node_key: Mapped[str] = mapped_column(Key)
    ordinal: Mapped[int] = mapped_column(Integer)
    phase: Mapped[str] = mapped_column(Label, default="blocked")
    version: Mapped[int] = mapped_column(Integer, default=0)
    waits_for: Mapped[str | None] = mapped_column(Key, default=None)
    precedence: Mapped[int] = mapped_column(Integer, default=0)
    backend: Mapped[str] = mapped_column(Label, default="local")
    spec: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
    spec_sha256: Mapped[str | None] = mapped_column(String(64), default=None)
    cpu_milli: Mapped[int] = mapped_column(BigInteger, default=0)
    memory: Mapped[int] = mapped_column(BigInteger, default=0)
    gpu: Mapped[int] = mapped_column(Integer, default=0)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    user_failures: Mapped[int] = mapped_column(Integer, default=0)
    infra_failures: Mapped[int] = mapped_column(Integer, default=0)
    allow_failure: Mapped[bool] = mapped_column(Boolean, default=False)
    carried_from: Mapped[int | None] = mapped_column(Id, default=None)
    reason_code: Mapped[str] = mapped_column(Label, default="")
    reason: Mapped[str] = mapped_column(String(2000), default="")
    ready_at: Mapped[float | None] = mapped_column(Moment, default=None)
    queued_at: Mapped[float | None] = mapped_column(Moment, default=None)
    started_at: Mapped[float | None] = mapped_column(Moment, default=None)
    finished_at: Mapped[float | None] = mapped_column(Moment, default=None)
    next_check_at: Mapped[float | None] = mapped_column(Moment, default=None)


class Attempt(Base):
    """`live_guard` equals `task_run_id` while the attempt is live, else NULL: at most one live attempt per task."""

    __tablename__ = "attempt"
    __table_args__ = (
        UniqueConstraint("task_run_id", "attempt_no"),
        UniqueConstraint("backend", "object_name"),
        Index("ix_attempt_next_check_at", "next_check_at"),
        Index("ix_attempt_run_id", "run_id"),
        Index("ix_attempt_backend_phase", "backend", "phase"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    task_run_id: Mapped[int] = mapped_column(ForeignKey("task_run.id", ondelete="CASCADE"))
    attempt_no: Mapped[int] = mapped_column(Integer)
    phase: Mapped[str] = mapped_column(Label, default="planned")
    version: Mapped[int] = mapped_column(Integer, default=0)
    live_guard: Mapped[int | None] = mapped_column(Id, unique=True, default=None)
    backend: Mapped[str] = mapped_column(Label)
    object_name: Mapped[str] = mapped_column(Key)
    handle: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
    devices: Mapped[list[int] | None] = mapped_column(JSONText, default=None)
    outcome: Mapped[str | None] = mapped_column(Label, default=None)
    stop_reason: Mapped[str | None] = mapped_column(Label, default=None)
    stop_asked_at: Mapped[float | None] = mapped_column(Moment, default=None)
    armed_at: Mapped[float | None] = mapped_column(Moment, default=None)
    released_at: Mapped[float | None] = mapped_column(Moment, default=None)
    started_at: Mapped[float | None] = mapped_column(Moment, default=None)
    finished_at: Mapped[float | None] = mapped_column(Moment, default=None)
    run_deadline_at: Mapped[float | None] = mapped_column(Moment, default=None)
    ready_deadline_at: Mapped[float | None] = mapped_column(Moment, default=None)
    absent_since: Mapped[float | None] = mapped_column(Moment, default=None)
    exit_code: Mapped[int | None] = mapped_column(Integer, default=None)
    cause: Mapped[str] = mapped_column(Label, default="")
    observed: Mapped[str] = mapped_column(Label, default="")
    message: Mapped[str] = mapped_column(String(2000), default="")
    ranks: Mapped[list[dict[str, Any]] | None] = mapped_column(JSONText, default=None)
    diagnosis: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
    reaped: Mapped[bool] = mapped_column(Boolean, default=False)
    next_check_at: Mapped[float | None] = mapped_column(Moment, default=None)
    created_at: Mapped[float] = mapped_column(Moment)
