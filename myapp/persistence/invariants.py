"""The invariants that hold whatever was killed: I1 to I4 and I6 of the design, as queries over the whole database.

I5 (every owned object maps to an attempt) needs the backends, and is checked beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Select, Table, and_, func, or_, select

from myapp.domain.runs.phases import (
    ATTEMPT_LIVE,
    ATTEMPT_TERMINAL,
    RUN_TERMINAL,
    TASK_TERMINAL,
    TERMINAL,
    Entity,
)
from myapp.persistence.tables import ALLOCATION, ATTEMPT, FLAVOR, RUN, TASK, TRANSITION

EXAMPLES = 20
RULES = {
    "I1": "at most one live attempt per task",
    "I2": "open allocations never exceed capacity",
    "I3": "ended rows never change",
    "I4": "the history of every row is whole",
    "I6": "an ended attempt holds nothing, a live one what it needs",
}
_LIVE = sorted(ATTEMPT_LIVE)
_ENDED = sorted(ATTEMPT_TERMINAL)
_ROWS: dict[Entity, Table] = {Entity.RUN: RUN, Entity.TASK: TASK, Entity.ATTEMPT: ATTEMPT}


@dataclass(frozen=True)
class Violation:
    """`rule` is I1 ... I6."""

    rule: str
    message: str


def violations(connection: Connection) -> list[Violation]:
    """What is broken, at most a few examples of each kind. Wants a snapshot: the queries must see one state."""
    checks: list[tuple[str, Callable[[Connection], Iterator[str]]]] = [
        ("I1", _live_attempts),
        ("I2", _capacity),
        ("I3", _ended),
        ("I4", _history),
        ("I4", _cursors),
        ("I6", _allocations),
    ]
    return [Violation(rule, message) for rule, check in checks for message in check(connection)]


def _live_attempts(connection: Connection) -> Iterator[str]:
    live = ATTEMPT.c.phase.in_(_LIVE)
    several = select(ATTEMPT.c.task_run_id, func.count()).where(live).group_by(ATTEMPT.c.task_run_id)
    for task, count in connection.execute(several.having(func.count() > 1).limit(EXAMPLES)):
        yield f"task {task} has {count} live attempts"
    guard = ATTEMPT.c.live_guard
    wrong = or_(
        and_(live, or_(guard.is_(None), guard != ATTEMPT.c.task_run_id)),
        and_(ATTEMPT.c.phase.in_(_ENDED), guard.is_not(None)),
    )
    for attempt, phase in connection.execute(select(ATTEMPT.c.id, ATTEMPT.c.phase).where(wrong).limit(EXAMPLES)):
        yield f"attempt {attempt} is {phase} with the wrong live_guard"


def _capacity(connection: Connection) -> Iterator[str]:
    held = (
        select(
            ALLOCATION.c.backend,
            ALLOCATION.c.flavor,
            ALLOCATION.c.resource,
            func.sum(ALLOCATION.c.amount).label("held"),
        )
        .where(ALLOCATION.c.released_at.is_(None))
        .group_by(ALLOCATION.c.backend, ALLOCATION.c.flavor, ALLOCATION.c.resource)
        .subquery()
    )
    has = (
        select(FLAVOR.c.backend, FLAVOR.c.resource, func.sum(FLAVOR.c.amount).label("amount"))
        .group_by(FLAVOR.c.backend, FLAVOR.c.resource)
        .subquery()
    )
    query = select(held.c.backend, held.c.resource, held.c.held, has.c.amount).join(
        has, and_(has.c.backend == held.c.backend, has.c.resource == held.c.resource)
    )
    for backend, resource, taken, amount in connection.execute(query.where(held.c.held > has.c.amount).limit(EXAMPLES)):
        yield f"{backend}: {int(taken)} {resource} are taken, it has {int(amount)}"


def _ended(connection: Connection) -> Iterator[str]:
    for entity, phases in TERMINAL.items():
        left = select(TRANSITION.c.entity_id, TRANSITION.c.from_phase, TRANSITION.c.to_phase).where(
            TRANSITION.c.entity == str(entity), TRANSITION.c.from_phase.in_(sorted(phases))
        )
        for row in connection.execute(left.limit(EXAMPLES)):
            yield f"{entity} {row.entity_id} had ended ({row.from_phase}) and became {row.to_phase}"
    open_task = (
        select(TASK.c.run_id, TASK.c.node_key, TASK.c.phase)
        .join(RUN, RUN.c.id == TASK.c.run_id)
        .where(RUN.c.phase.in_(sorted(RUN_TERMINAL)), TASK.c.phase.not_in(sorted(TASK_TERMINAL)))
    )
    for row in connection.execute(open_task.limit(EXAMPLES)):
        yield f"run {row.run_id} has ended with its task {row.node_key} still {row.phase}"
    orphan = (
        select(ATTEMPT.c.id, TASK.c.node_key, TASK.c.phase)
        .join(TASK, TASK.c.id == ATTEMPT.c.task_run_id)
        .where(ATTEMPT.c.phase.in_(_LIVE), TASK.c.phase.in_(sorted(TASK_TERMINAL)))
    )
    for row in connection.execute(orphan.limit(EXAMPLES)):
        yield f"task {row.node_key} is {row.phase} with its attempt {row.id} still live"


def _history(connection: Connection) -> Iterator[str]:
    """`seq` runs 1 to the row's version, each step starts where the one before ended, the last is where the row is."""
    for entity, table in _ROWS.items():
        kept = (
            select(TRANSITION.c.entity_id, func.count().label("steps"), func.max(TRANSITION.c.seq).label("last"))
            .where(TRANSITION.c.entity == str(entity))
            .group_by(TRANSITION.c.entity_id)
            .subquery()
        )
        query = select(table.c.id, table.c.version, kept.c.steps, kept.c.last).outerjoin(
            kept, kept.c.entity_id == table.c.id
        )
        steps, last = func.coalesce(kept.c.steps, 0), func.coalesce(kept.c.last, 0)
        for row in connection.execute(
            query.where(or_(steps != table.c.version, last != table.c.version)).limit(EXAMPLES)
        ):
            known = f"its history has {row.steps or 0} steps, up to {row.last or 0}"
            yield f"{entity} {row.id} is at version {row.version}; {known}"
        yield from _broken(connection, entity, _chain(entity), "does not start where the last one ended")
        yield from _broken(connection, entity, _last(entity, table), "is not where the row is")


def _broken(connection: Connection, entity: Entity, query: Select[int, int], what: str) -> Iterator[str]:
    for identifier, seq in connection.execute(query.limit(EXAMPLES)):
        yield f"{entity} {identifier}: step {seq} {what}"


def _chain(entity: Entity) -> Select[int, int]:
    step, before = TRANSITION.alias("step"), TRANSITION.alias("before")
    return (
        select(step.c.entity_id, step.c.seq)
        .join(
            before,
            and_(
                before.c.entity == step.c.entity, before.c.entity_id == step.c.entity_id, before.c.seq == step.c.seq - 1
            ),
        )
        .where(step.c.entity == str(entity), step.c.from_phase != before.c.to_phase)
    )


def _last(entity: Entity, table: Table) -> Select[int, int]:
    return (
        select(TRANSITION.c.entity_id, TRANSITION.c.seq)
        .join(table, and_(table.c.id == TRANSITION.c.entity_id, table.c.version == TRANSITION.c.seq))
        .where(TRANSITION.c.entity == str(entity), TRANSITION.c.to_phase != table.c.phase)
    )


def _cursors(connection: Connection) -> Iterator[str]:
    """`run_seq` runs from 1 to the run's `event_seq`: no event stream misses a step."""
    kept = (
        select(TRANSITION.c.run_id, func.count().label("steps"), func.max(TRANSITION.c.run_seq).label("last"))
        .group_by(TRANSITION.c.run_id)
        .subquery()
    )
    query = select(RUN.c.id, RUN.c.event_seq, kept.c.steps, kept.c.last).outerjoin(kept, kept.c.run_id == RUN.c.id)
    steps, last = func.coalesce(kept.c.steps, 0), func.coalesce(kept.c.last, 0)
    for row in connection.execute(query.where(or_(steps != RUN.c.event_seq, last != RUN.c.event_seq)).limit(EXAMPLES)):
        yield f"run {row.id} is at event {row.event_seq}; it has {row.steps or 0} up to {row.last or 0}"


def _allocations(connection: Connection) -> Iterator[str]:
    unreleased = ALLOCATION.c.released_at.is_(None)
    held = (
        select(ATTEMPT.c.id, ATTEMPT.c.phase, ALLOCATION.c.resource)
        .join(ALLOCATION, ALLOCATION.c.attempt_id == ATTEMPT.c.id)
        .where(unreleased, ATTEMPT.c.phase.in_(_ENDED))
    )
    for row in connection.execute(held.limit(EXAMPLES)):
        yield f"attempt {row.id} is {row.phase} and still holds {row.resource}"
    for resource, needed in (("cpu", TASK.c.cpu_milli), ("memory", TASK.c.memory), ("gpu", TASK.c.gpu)):
        has = (
            select(ALLOCATION.c.attempt_id, func.sum(ALLOCATION.c.amount).label("amount"))
            .where(unreleased, ALLOCATION.c.resource == resource)
            .group_by(ALLOCATION.c.attempt_id)
            .subquery()
        )
        query = (
            select(ATTEMPT.c.id, needed.label("needed"), has.c.amount)
            .join(TASK, TASK.c.id == ATTEMPT.c.task_run_id)
            .outerjoin(has, has.c.attempt_id == ATTEMPT.c.id)
            .where(ATTEMPT.c.phase.in_(_LIVE), needed > 0, func.coalesce(has.c.amount, 0) < needed)
        )
        for row in connection.execute(query.limit(EXAMPLES)):
            yield f"attempt {row.id} is live and holds {int(row.amount or 0)} of the {row.needed} {resource} it needs"
