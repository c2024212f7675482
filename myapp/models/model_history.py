"""Append-only history (`transition`), undone work (`outbox`), and who did what (`audit`)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Label, Moment


class Transition(Base):
    """`seq` equals the entity's version after the change; `run_seq` orders all changes of one run."""

    __tablename__ = "transition"
    __table_args__ = (UniqueConstraint("entity", "entity_id", "seq"), UniqueConstraint("run_id", "run_seq"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    entity: Mapped[str] = mapped_column(String(16))
    entity_id: Mapped[int] = mapped_column(Id)
    seq: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[int] = mapped_column(Id)
    run_seq: Mapped[int] = mapped_column(Integer)
    from_phase: Mapped[str] = mapped_column(String(16))
    to_phase: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(64))
    reason: Mapped[str] = mapped_column(String(500), default="")
    evidence: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
    at: Mapped[float] = mapped_column(Moment)


class Outbox(Base):
    """A durable doorbell: written with the change it announces, deleted by the step that has handled it."""

    __tablename__ = "outbox"
    __table_args__ = (Index("ix_outbox_topic_key", "topic", "key"), Index("ix_outbox_created_at", "created_at"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    topic: Mapped[str] = mapped_column(Label)
    key: Mapped[str] = mapped_column(Label)
    created_at: Mapped[float] = mapped_column(Moment)


class Audit(Base):
    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_project_id_id", "project_id", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[float] = mapped_column(Moment)
    actor: Mapped[str] = mapped_column(String(64))
    user_id: Mapped[int] = mapped_column(Id, default=0)
    project_id: Mapped[int | None] = mapped_column(Id, default=None)
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(128), default="")
    outcome: Mapped[str] = mapped_column(String(32), default="ok")
    address: Mapped[str] = mapped_column(String(64), default="")
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSONText, default=None)
