"""Pipelines, their immutable versions, and their schedules."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Key, Label, Moment


class Pipeline(Base):
    """`lock_version` is the ETag of the draft: a save names the one it read."""

    __tablename__ = "pipeline"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(Key)
    title: Mapped[str] = mapped_column(String(200), default="")
    description: Mapped[str] = mapped_column(String(2000), default="")
    current_version_id: Mapped[int | None] = mapped_column(Id, default=None)
    draft: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
    lock_version: Mapped[int] = mapped_column(Integer, default=1)
    created_by: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[float] = mapped_column(Moment)
    updated_at: Mapped[float] = mapped_column(Moment)


class PipelineVersion(Base):
    """Immutable. `graph` is `domain.graph.PipelineGraph.to_json()`; `document` the Pipeline (or AIJob) as given.

    `pipeline_id` is NULL for the one-task graph of an AIJob submitted on its own.
    """

    __tablename__ = "pipeline_version"
    __table_args__ = (
        UniqueConstraint("pipeline_id", "number"),
        Index("ix_pipeline_version_project_id_sha256", "project_id", "sha256"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    pipeline_id: Mapped[int | None] = mapped_column(ForeignKey("pipeline.id", ondelete="CASCADE"), default=None)
    number: Mapped[int] = mapped_column(Integer)
    sha256: Mapped[str] = mapped_column(String(64))
    graph: Mapped[dict[str, Any]] = mapped_column(JSONText)
    document: Mapped[dict[str, Any]] = mapped_column(JSONText)
    created_by: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[float] = mapped_column(Moment)


class Schedule(Base):
    """When a pipeline runs by itself. `next_due_at` is the first due time not yet turned into a run (or skipped)."""

    __tablename__ = "schedule"
    __table_args__ = (Index("ix_schedule_paused_next_due_at", "paused", "next_due_at"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    pipeline_id: Mapped[int] = mapped_column(ForeignKey("pipeline.id", ondelete="CASCADE"), unique=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    cron: Mapped[str] = mapped_column(String(100))
    timezone: Mapped[str] = mapped_column(String(64), default="UTC")
    catchup: Mapped[str] = mapped_column(Label, default="none")
    max_active_runs: Mapped[int] = mapped_column(Integer, default=1)
    paused: Mapped[bool] = mapped_column(Boolean, default=False)
    params: Mapped[dict[str, Any]] = mapped_column(JSONText)
    next_due_at: Mapped[float] = mapped_column(Moment)
    created_by: Mapped[str] = mapped_column(String(64), default="")
    user_id: Mapped[int] = mapped_column(Id, default=0)
    version: Mapped[int] = mapped_column(Integer, default=0)
