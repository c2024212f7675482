"""What a backend has in all, as it last reported: read by validation, so that what can never fit is refused at once."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from myapp.domain.capacity import CapacityView
from myapp.domain.ports import Capacity
from myapp.models import Flavor
from myapp.persistence.database import Database


def capacity_view(connection: Connection, backend: str) -> CapacityView | None:
    """None while the backend has not reported yet: then nothing is said about size."""
    rows = connection.execute(
        select(Flavor.name, Flavor.resource, Flavor.amount).where(Flavor.backend == backend)
    ).all()
    if not rows:
        return None
    where = "this machine" if backend == "local" else f"the cluster {backend}"
    return CapacityView.of([Capacity(r.name, r.resource, r.amount) for r in rows], where)


def report_capacity(database: Database, backend: str, capacities: list[Capacity], note: str = "") -> None:
    """Write what a backend has; resources it no longer has vanish."""
    with database.write() as unit:
        before = {
            (r.name, r.resource): r.amount
            for r in unit.connection.execute(
                select(Flavor.name, Flavor.resource, Flavor.amount).where(Flavor.backend == backend)
            )
        }
        if before == {(c.flavor, c.resource): c.amount for c in capacities}:
            return
        unit.connection.execute(delete(Flavor).where(Flavor.backend == backend))
        unit.connection.execute(
            insert(Flavor),
            [
                {
                    "backend": backend,
                    "name": c.flavor,
                    "resource": c.resource,
                    "amount": c.amount,
                    "note": note[:500],
                    "updated_at": unit.now,
                }
                for c in capacities
            ],
        )
