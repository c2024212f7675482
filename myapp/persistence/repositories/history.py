"""The history of a run (also the cursor of its event stream), and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, bindparam, case, func, insert, select

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import ATTEMPT, AUDIT, RUN, TASK, TRANSITION

_EVENTS = (
    select(
        TRANSITION.c.run_seq,
        TRANSITION.c.entity,
        TRANSITION.c.entity_id,
        TRANSITION.c.seq,
        TRANSITION.c.from_phase,
        TRANSITION.c.to_phase,
        TRANSITION.c.actor,
        TRANSITION.c.reason,
        TRANSITION.c.at,
        TASK.c.node_key,
        ATTEMPT.c.attempt_no,
    )
    .join(RUN, RUN.c.id == TRANSITION.c.run_id)
    .join(ATTEMPT, and_(TRANSITION.c.entity == "attempt", ATTEMPT.c.id == TRANSITION.c.entity_id), isouter=True)
    .join(
        TASK,
        TASK.c.id
        == func.coalesce(ATTEMPT.c.task_run_id, case((TRANSITION.c.entity == "task", TRANSITION.c.entity_id))),
        isouter=True,
    )
    .where(TRANSITION.c.run_id == bindparam("b_run"), TRANSITION.c.run_seq > bindparam("b_after"))
    .order_by(TRANSITION.c.run_seq)
)


def events_after(
    connection: Connection, scope: TenantScope, run_id: int, after_seq: int, *, limit: int
) -> Sequence[RowMapping]:
    """Changes of a run, its tasks and attempts with `run_seq > after_seq`, in order."""
    return (
        connection.execute(
            _EVENTS.where(scope.where(RUN.c.project_id)).limit(limit), {"b_run": run_id, "b_after": after_seq}
        )
        .mappings()
        .all()
    )


def insert_audit(
    connection: Connection,
    *,
    at: float,
    actor: str,
    user_id: int,
    action: str,
    target: str = "",
    project_id: int | None = None,
    outcome: str = "ok",
    address: str = "",
    detail: dict[str, Any] | None = None,
) -> None:
    connection.execute(
        insert(AUDIT),
        {
            "at": at,
            "actor": actor[:64],
            "user_id": user_id,
            "project_id": project_id,
            "action": action[:64],
            "target": target[:128],
            "outcome": outcome[:32],
            "address": address[:64],
            "detail": detail,
        },
    )


def list_audit(
    connection: Connection, scope: TenantScope, *, before_id: int | None = None, limit: int
) -> Sequence[RowMapping]:
    """Newest first. Rows of no project are for those who see every project."""
    query = select(AUDIT).where(scope.where(AUDIT.c.project_id))
    if before_id is not None:
        query = query.where(AUDIT.c.id < before_id)
    return connection.execute(query.order_by(AUDIT.c.id.desc()).limit(limit)).mappings().all()
