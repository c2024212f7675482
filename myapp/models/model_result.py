"""What tasks leave behind: output values, artifacts, metrics, and the index of their logs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Label, Moment


class Output(Base):
    """A value or an artifact that the successful attempt of a task published.

    `kind` value: `value` is JSON. `kind` artifact: `path` is relative to the artifact store, `size` in bytes.
    """

    __tablename__ = "output"
    __table_args__ = (UniqueConstraint("task_run_id", "name"), Index("ix_output_run_id", "run_id"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    task_run_id: Mapped[int] = mapped_column(ForeignKey("task_run.id", ondelete="CASCADE"))
    attempt_id: Mapped[int] = mapped_column(Id)
    name: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(Label)
    value: Mapped[Any | None] = mapped_column(JSONText, nullable=True, default=None)
    path: Mapped[str | None] = mapped_column(String(500), default=None)
    size: Mapped[int | None] = mapped_column(BigInteger, default=None)
    media_type: Mapped[str | None] = mapped_column(String(100), default=None)


class Metric(Base):
    __tablename__ = "metric"
    __table_args__ = (Index("ix_metric_run_id_name_id", "run_id", "name", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    task_run_id: Mapped[int] = mapped_column(ForeignKey("task_run.id", ondelete="CASCADE"), index=True)
    attempt_id: Mapped[int] = mapped_column(Id)
    name: Mapped[str] = mapped_column(String(128))
    value: Mapped[float] = mapped_column(Moment)
    step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    at: Mapped[float] = mapped_column(Moment)


class LogChunk(Base):
    """One log object of one rank: bytes `byte_start` to `byte_end` of its log; bodies never in SQL."""

    __tablename__ = "log_chunk"
    __table_args__ = (UniqueConstraint("attempt_id", "rank", "seq"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))
    rank: Mapped[int] = mapped_column(Integer)
    seq: Mapped[int] = mapped_column(Integer)
    byte_start: Mapped[int] = mapped_column(BigInteger)
    byte_end: Mapped[int] = mapped_column(BigInteger)
    object_key: Mapped[str] = mapped_column(String(500))
    sealed: Mapped[bool] = mapped_column(Boolean, default=False)
