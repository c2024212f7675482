"""The history of a run as events: what its stream sends and resumes from."""

from __future__ import annotations

from typing import Any

from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import RUN_TERMINAL
from myapp.persistence.repositories import history
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.read_runs import require_run
from myapp.utils.clock import iso

MAX_EVENTS = 1000


def events_after(
    ctx: Context, actor: Actor, run_id: int, after_seq: int = 0, limit: int = MAX_EVENTS
) -> list[dict[str, Any]]:
    """Changes with `seq > after_seq`, in order: `{seq, entity, id, task, attempt, from, to, actor, reason, at, final}`.

    `seq` is the cursor; `final` is True on the last event there will ever be. Raises NotFound.
    """
    with ctx.database.read() as connection:
        require_run(connection, actor, run_id, Permission.RUN_READ)
        rows = history.events_after(
            connection, TenantScope.of(actor), run_id, max(0, after_seq), limit=max(1, min(limit, MAX_EVENTS))
        )
    return [
        {
            "seq": row["run_seq"],
            "entity": row["entity"],
            "id": row["entity_id"],
            "task": row["node_key"],
            "attempt": row["attempt_no"],
            "from": row["from_phase"],
            "to": row["to_phase"],
            "actor": row["actor"],
            "reason": row["reason"],
            "at": iso(row["at"]),
            "final": row["entity"] == "run" and row["to_phase"] in RUN_TERMINAL,
        }
        for row in rows
    ]
