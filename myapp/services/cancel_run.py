"""Cancel a run: write that it is to stop. The engine does the stopping; the web tier never talks to a backend."""

from __future__ import annotations

from sqlalchemy import select, update

from myapp.domain.errors import Conflict, NotFound
from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import RUN_TERMINAL, Desired
from myapp.models import Run
from myapp.persistence import run_store
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import Topic
from myapp.services.context import Context
from myapp.services.transactions import audit

NET_S = 5.0


def cancel_run(ctx: Context, actor: Actor, run_id: int, *, reason: str = "") -> None:
    """Twice is the same as once. Raises NotFound, Forbidden, Conflict (it has ended)."""
    with ctx.database.read() as connection:
        project_id = connection.execute(
            select(Run.project_id).where(Run.id == run_id, TenantScope.of(actor).where(Run.project_id))
        ).scalar_one_or_none()
    if project_id is None:
        raise NotFound(f"run {run_id} was not found", resolution="List yours with `cube get runs`.")
    actor.require(Permission.RUN_CANCEL, project_id, what=f"run {run_id}")
    with ctx.database.write() as unit:
        run = unit.lock_run(run_id)
        if run.phase in RUN_TERMINAL:
            raise Conflict(f"run {run_id} has already {run.phase}", code="run_ended")
        if run.desired == Desired.STOP:
            return
        text = (reason or f"cancelled by {actor.username}")[:1000]
        unit.connection.execute(
            update(Run)
            .where(Run.id == run_id)
            .values(desired=str(Desired.STOP), reason=text, reason_code="cancelled", next_check_at=unit.now + NET_S)
        )
        run_store.hasten(unit.connection, run_id, unit.now + NET_S)
        audit(unit, actor, Permission.RUN_CANCEL, f"run:{run_id}", project_id=project_id)
        unit.post(Topic.RUN, run_id)
