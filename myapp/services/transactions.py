"""Whole transactions, tried again when another one came first; and the audit row each of them writes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError, OperationalError

from myapp.domain.errors import Conflict, Unavailable
from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.transitions import StaleRow
from myapp.persistence.database import Database
from myapp.persistence.repositories.history import insert_audit
from myapp.persistence.unit_of_work import UnitOfWork

T = TypeVar("T")
ATTEMPTS = 6
_AGAIN = ("1205", "1213", "1020", "40001", "40P01", "deadlock", "could not serialize")


def write(database: Database, work: Callable[[UnitOfWork], T]) -> T:
    """Run `work` in one transaction; from the start again when it lost a race (unique key, deadlock, stale row).

    Raises Conflict when it keeps losing, Unavailable when the database cannot be used.
    """
    last: Exception | None = None
    for attempt in range(ATTEMPTS):
        try:
            with database.write() as unit:
                return work(unit)
        except (IntegrityError, StaleRow) as error:
            last = error
        except OperationalError as error:
            if not _lost_race(error):
                raise
            last = error
        time.sleep(random.uniform(0, 0.01 * 2**attempt))
    if isinstance(last, OperationalError):
        raise Unavailable("the database is too busy", resolution="try again", retry_after=1.0) from last
    raise Conflict(
        "somebody else changed the same thing at the same time", code="lost_race", resolution="try again"
    ) from last


def _lost_race(error: OperationalError) -> bool:
    text = f"{getattr(error.orig, 'sqlstate', '')} {error.orig}".lower()
    return any(mark.lower() in text for mark in _AGAIN)


def audit(
    unit: UnitOfWork,
    actor: Actor,
    action: Permission | str,
    target: str,
    *,
    project_id: int | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Who did what, in the same transaction."""
    insert_audit(
        unit.connection,
        at=unit.now,
        actor=actor.username,
        user_id=actor.user_id,
        project_id=project_id,
        action=str(action),
        target=target,
        address=actor.address,
        detail=detail,
    )
