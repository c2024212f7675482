"""How the platform itself is: is the database there, is somebody answering the doorbells, how much is going on."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import func, select

from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import ATTEMPT_LIVE, RUN_TERMINAL, TASK_TERMINAL, RunPhase, TaskPhase
from myapp.models import Allocation, Attempt, Outbox, Run, TaskRun
from myapp.services.context import Context


@dataclass(frozen=True)
class Load:
    """What is not over. `allocated`: open allocations by (flavor, resource). `oldest_bell`: seconds, 0 for none."""

    runs: dict[str, int]
    tasks: dict[str, int]
    attempts: dict[str, int]
    bells: int
    oldest_bell: float
    allocated: dict[tuple[str, str], float] = field(default_factory=dict)


def oldest_bell(ctx: Context) -> float:
    """Seconds since the oldest unanswered doorbell was rung; 0 when there is none. Raises when the database is away."""
    with ctx.database.read() as connection:
        moment = connection.execute(select(func.min(Outbox.created_at))).scalar_one()
    return 0.0 if moment is None else max(0.0, ctx.database.clock() - float(moment))


def read_load(ctx: Context, actor: Actor) -> Load:
    """Counts over what is active: their cost does not grow with the history."""
    actor.require(Permission.METRICS_READ)
    runs, tasks = sorted(set(RunPhase) - RUN_TERMINAL), sorted(set(TaskPhase) - TASK_TERMINAL)
    live = sorted(ATTEMPT_LIVE)
    with ctx.database.read() as connection:
        by_run = dict(
            connection.execute(select(Run.phase, func.count()).where(Run.phase.in_(runs)).group_by(Run.phase))
            .tuples()
            .all()
        )
        by_task = dict(
            connection.execute(
                select(TaskRun.phase, func.count()).where(TaskRun.phase.in_(tasks)).group_by(TaskRun.phase)
            )
            .tuples()
            .all()
        )
        by_attempt = dict(
            connection.execute(
                select(Attempt.phase, func.count()).where(Attempt.phase.in_(live)).group_by(Attempt.phase)
            )
            .tuples()
            .all()
        )
        bells = connection.execute(select(func.count()).select_from(Outbox)).scalar_one()
        allocated = connection.execute(
            select(Allocation.flavor, Allocation.resource, func.sum(Allocation.amount))
            .where(Allocation.released_at.is_(None))
            .group_by(Allocation.flavor, Allocation.resource)
        ).all()
    return Load(
        runs={str(p): by_run.get(p, 0) for p in runs},
        tasks={str(p): by_task.get(p, 0) for p in tasks},
        attempts={str(p): by_attempt.get(p, 0) for p in live},
        bells=bells,
        oldest_bell=oldest_bell(ctx),
        allocated={(flavor, resource): float(amount) for flavor, resource, amount in allocated},
    )
