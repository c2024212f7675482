"""Job templates: a named, categorised recipe and its immutable versions (content-hashed)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Key, Moment


class JobTemplate(Base):
    """`project_id` NULL: from the catalogue, visible to every project."""

    __tablename__ = "job_template"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Key, unique=True)
    project_id: Mapped[int | None] = mapped_column(
        ForeignKey("project.id", ondelete="CASCADE"), index=True, default=None
    )
    title: Mapped[str] = mapped_column(String(200), default="")
    category: Mapped[str] = mapped_column(String(64), default="")
    description: Mapped[str] = mapped_column(String(2000), default="")
    current_version_id: Mapped[int | None] = mapped_column(Id, default=None)
    retired: Mapped[bool] = mapped_column(Boolean, default=False)
    updated_at: Mapped[float] = mapped_column(Moment)


class JobTemplateVersion(Base):
    """`document` is the validated JobTemplate document; `files` maps name to text (launcher, runtime)."""

    __tablename__ = "job_template_version"
    __table_args__ = (UniqueConstraint("job_template_id", "sha256"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    job_template_id: Mapped[int] = mapped_column(ForeignKey("job_template.id", ondelete="CASCADE"))
    number: Mapped[int] = mapped_column(Id)
    sha256: Mapped[str] = mapped_column(String(64))
    document: Mapped[dict[str, Any]] = mapped_column(JSONText)
    files: Mapped[dict[str, str]] = mapped_column(JSONText)
    created_at: Mapped[float] = mapped_column(Moment)
