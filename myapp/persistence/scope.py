"""Which projects' rows a query may touch: a required argument of every reader of tenant data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, false, true

from myapp.domain.permissions import Actor


@dataclass(frozen=True)
class TenantScope:
    """`project_ids` None means every project: only administrators and the platform itself have that."""

    project_ids: frozenset[int] | None

    @classmethod
    def of(cls, actor: Actor) -> TenantScope:
        return cls(None if actor.is_admin else frozenset(actor.roles))

    @classmethod
    def platform(cls) -> TenantScope:
        return cls(None)

    def where(self, column: Any) -> ColumnElement[bool]:
        """A condition on the query's project column; with no project at all it matches nothing."""
        if self.project_ids is None:
            return true()
        if not self.project_ids:
            return false()
        return column.in_(self.project_ids)  # type: ignore[no-any-return]

    def holds(self, project_id: int) -> bool:
        return self.project_ids is None or project_id in self.project_ids
