"""What the machines have, and who holds it. Usage is the sum of open allocations; nothing counts it."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from myapp.models.base import Base, Id, Key, Label, Moment


class Allocation(Base):
    """`released_at` NULL: in use. cpu in millicores, memory in bytes, gpu by count."""

    __tablename__ = "allocation"
    __table_args__ = (Index("ix_allocation_backend_released_at", "backend", "released_at", "flavor", "resource"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"), index=True)
    backend: Mapped[str] = mapped_column(Label)
    queue: Mapped[str] = mapped_column(Key, default="default")
    flavor: Mapped[str] = mapped_column(Key)
    resource: Mapped[str] = mapped_column(String(64))
    amount: Mapped[int] = mapped_column(BigInteger)
    reserved_at: Mapped[float] = mapped_column(Moment)
    released_at: Mapped[float | None] = mapped_column(Moment, default=None)


class Flavor(Base):
    """Capacity of one resource of one kind of node, as its backend last reported it."""

    __tablename__ = "flavor"

    backend: Mapped[str] = mapped_column(Label, primary_key=True)
    name: Mapped[str] = mapped_column(Key, primary_key=True)
    resource: Mapped[str] = mapped_column(String(64), primary_key=True)
    amount: Mapped[int] = mapped_column(BigInteger)
    note: Mapped[str] = mapped_column(String(500), default="")
    updated_at: Mapped[float] = mapped_column(Moment)
