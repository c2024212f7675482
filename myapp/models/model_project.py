"""Projects and their members: the tenants of the platform."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, JSONText, Key, Label, Moment


class Project(Base):
    __tablename__ = "project"

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    slug: Mapped[str] = mapped_column(String(32), unique=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    description: Mapped[str] = mapped_column(String(2000), default="")
    namespace: Mapped[str] = mapped_column(Key, default="")
    backend: Mapped[str] = mapped_column(Label, default="local")
    settings: Mapped[dict[str, object] | None] = mapped_column(JSONText, default=None)
    created_by: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[float] = mapped_column(Moment)


class ProjectUser(Base):
    """`role` is one of owner, ops, dev, viewer (`domain.permissions.Role`)."""

    __tablename__ = "project_user"
    __table_args__ = (UniqueConstraint("project_id", "user_id"), Index("ix_project_user_user_id", "user_id"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    user_id: Mapped[int] = mapped_column(Id)
    role: Mapped[str] = mapped_column(Label)
    created_at: Mapped[float] = mapped_column(Moment)
