"""What the machines have and what is taken of it: the same for every tenant, and nobody's secret."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from myapp.persistence.tables import ALLOCATION, FLAVOR


def flavors(connection: Connection) -> dict[str, dict[str, dict[str, int]]]:
    """backend -> flavor -> resource -> amount there is in all."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for backend, name, resource, amount in connection.execute(
        select(FLAVOR.c.backend, FLAVOR.c.name, FLAVOR.c.resource, FLAVOR.c.amount)
    ):
        found.setdefault(backend, {}).setdefault(name, {})[resource] = int(amount)
    return found


def held(connection: Connection) -> dict[str, dict[str, int]]:
    """backend -> resource -> sum of the open allocations."""
    found: dict[str, dict[str, int]] = {}
    for backend, resource, amount in connection.execute(
        select(ALLOCATION.c.backend, ALLOCATION.c.resource, func.sum(ALLOCATION.c.amount))
        .where(ALLOCATION.c.released_at.is_(None))
        .group_by(ALLOCATION.c.backend, ALLOCATION.c.resource)
    ):
        found.setdefault(backend, {})[resource] = int(amount)
    return found
