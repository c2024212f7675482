"""Set-based queries for rows that break an invariant. Platform-wide; each is bounded by `limit` and by `Window`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, func, literal, or_, select

from myapp.domain.runs.phases import (
    ATTEMPT_LIVE,
    ATTEMPT_TERMINAL,
    RUN_TERMINAL,
    TASK_TERMINAL,
    TERMINAL,
    Entity,
    TaskPhase,
)
from myapp.persistence.tables import ALLOCATION, ATTEMPT, FLAVOR, OUTBOX, PROJECT, RUN, TASK, TRANSITION

_LIVE = sorted(str(p) for p in ATTEMPT_LIVE)
_ENDED_ATTEMPT = sorted(str(p) for p in ATTEMPT_TERMINAL)
_ENDED_TASK = sorted(str(p) for p in TASK_TERMINAL)
_ENDED_RUN = sorted(str(p) for p in RUN_TERMINAL)
_OPEN_RUN = ("queued", "running")
_ROWS: tuple[tuple[Entity, Table], ...] = ((Entity.RUN, RUN), (Entity.TASK, TASK), (Entity.ATTEMPT, ATTEMPT))

Rows = Sequence[Row[*tuple[object, ...]]]


@dataclass(frozen=True)
class Window:
    """Which runs are looked at: those that have not ended, and those with an id above `above` (-1: all)."""

    above: int

    def runs(self) -> Select[tuple[int]]:
        return select(RUN.c.id).where(or_(RUN.c.phase.in_(_OPEN_RUN), RUN.c.id > self.above))


def window(connection: Connection, recent: int | None) -> Window:
    """The `recent` newest runs beside the live ones; None: all."""
    if recent is None:
        return Window(-1)
    newest = connection.execute(select(func.max(RUN.c.id))).scalar_one()
    return Window(int(newest or 0) - recent)


def doubly_live(connection: Connection, limit: int) -> Rows:
    """I1: (task_run_id, number of live attempts) above one."""
    return _all(
        connection,
        select(ATTEMPT.c.task_run_id, func.count())
        .where(ATTEMPT.c.live_guard.is_not(None), ATTEMPT.c.phase.in_(_LIVE))
        .group_by(ATTEMPT.c.task_run_id)
        .having(func.count() > 1)
        .limit(limit),
    )


def wrong_guards(connection: Connection, over: Window, limit: int) -> Rows:
    """I1: (attempt, run, phase) whose `live_guard` does not say whether it is live."""
    guard = ATTEMPT.c.live_guard
    dead = and_(guard.is_not(None), or_(ATTEMPT.c.phase.in_(_ENDED_ATTEMPT), guard != ATTEMPT.c.task_run_id))
    unguarded = and_(guard.is_(None), ATTEMPT.c.phase.in_(_LIVE), ATTEMPT.c.run_id.in_(over.runs()))
    columns = (ATTEMPT.c.id, ATTEMPT.c.run_id, ATTEMPT.c.phase)
    return [
        *_all(connection, select(*columns).where(dead).limit(limit)),
        *_all(connection, select(*columns).where(unguarded).limit(limit)),
    ]


def overcommitted(connection: Connection) -> list[tuple[str, str, int, int]]:
    """I2: (backend, resource, held, there is) where more is held than there is."""
    there = {
        (r[0], r[1]): int(r[2])
        for r in connection.execute(
            select(FLAVOR.c.backend, FLAVOR.c.resource, func.sum(FLAVOR.c.amount)).group_by(
                FLAVOR.c.backend, FLAVOR.c.resource
            )
        )
    }
    known = {backend for backend, _ in there}
    found = []
    for backend in sorted(known | set(connection.execute(select(PROJECT.c.backend).distinct()).scalars())):
        held = connection.execute(
            select(ALLOCATION.c.resource, func.sum(ALLOCATION.c.amount))
            .where(ALLOCATION.c.backend == backend, ALLOCATION.c.released_at.is_(None))
            .group_by(ALLOCATION.c.resource)
        )
        for resource, amount in held:
            if backend in known and int(amount) > there.get((backend, resource), 0):
                found.append((backend, str(resource), int(amount), there.get((backend, resource), 0)))
    return found


def held_devices(connection: Connection) -> Rows:
    """(attempt, run, backend, devices) of every live attempt that holds some."""
    return _all(
        connection,
        select(ATTEMPT.c.id, ATTEMPT.c.run_id, ATTEMPT.c.backend, ATTEMPT.c.devices)
        .where(ATTEMPT.c.live_guard.is_not(None), ATTEMPT.c.devices.is_not(None))
        .order_by(ATTEMPT.c.id),
    )


def left_terminal(connection: Connection, over: Window, limit: int) -> Rows:
    """I3: (entity, entity_id, run, from, to) of changes away from a terminal phase."""
    away = or_(
        *(
            and_(TRANSITION.c.entity == str(entity), TRANSITION.c.from_phase.in_(sorted(str(p) for p in phases)))
            for entity, phases in TERMINAL.items()
        )
    )
    return _all(
        connection,
        select(
            TRANSITION.c.entity,
            TRANSITION.c.entity_id,
            TRANSITION.c.run_id,
            TRANSITION.c.from_phase,
            TRANSITION.c.to_phase,
        )
        .where(TRANSITION.c.run_id.in_(over.runs()), away)
        .limit(limit),
    )


def broken_sequences(connection: Connection, over: Window, limit: int) -> Rows:
    """I4: (entity, entity_id, run, number of rows, last seq) whose history is not 1, 2, 3 ..."""
    seq = TRANSITION.c.seq
    return _all(
        connection,
        select(TRANSITION.c.entity, TRANSITION.c.entity_id, func.min(TRANSITION.c.run_id), func.count(), func.max(seq))
        .where(TRANSITION.c.run_id.in_(over.runs()))
        .group_by(TRANSITION.c.entity, TRANSITION.c.entity_id)
        .having(or_(func.count() != func.max(seq), func.min(seq) != 1))
        .limit(limit),
    )


def broken_chains(connection: Connection, over: Window, limit: int) -> Rows:
    """I4: (entity, entity_id, run, seq, to, next from) where a change does not begin where the one before ended."""
    before, after = TRANSITION.alias("before"), TRANSITION.alias("after")
    return _all(
        connection,
        select(
            before.c.entity, before.c.entity_id, before.c.run_id, before.c.seq, before.c.to_phase, after.c.from_phase
        )
        .join(
            after,
            and_(
                after.c.entity == before.c.entity,
                after.c.entity_id == before.c.entity_id,
                after.c.seq == before.c.seq + 1,
            ),
        )
        .where(before.c.run_id.in_(over.runs()), before.c.to_phase != after.c.from_phase)
        .limit(limit),
    )


def wrong_versions(connection: Connection, over: Window, limit: int) -> Rows:
    """I4: (entity, id, run, version, phase, last seq, last phase) where a row and its history disagree."""
    found: list[Row[*tuple[object, ...]]] = []
    for entity, table in _ROWS:
        run_id = table.c.id if entity is Entity.RUN else table.c.run_id
        last = (
            select(TRANSITION.c.entity_id, func.max(TRANSITION.c.seq).label("seq"))
            .where(TRANSITION.c.entity == str(entity), TRANSITION.c.run_id.in_(over.runs()))
            .group_by(TRANSITION.c.entity_id)
            .subquery("last")
        )
        newest = TRANSITION.alias("newest")
        query = (
            select(
                literal(str(entity)),
                table.c.id,
                run_id,
                table.c.version,
                table.c.phase,
                func.coalesce(last.c.seq, 0),
                newest.c.to_phase,
            )
            .join(last, last.c.entity_id == table.c.id, isouter=True)
            .join(
                newest,
                and_(newest.c.entity == str(entity), newest.c.entity_id == table.c.id, newest.c.seq == last.c.seq),
                isouter=True,
            )
            .where(
                run_id.in_(over.runs()),
                or_(
                    table.c.version != func.coalesce(last.c.seq, 0),
                    and_(last.c.seq.is_not(None), newest.c.to_phase != table.c.phase),
                ),
            )
            .limit(limit)
        )
        found.extend(_all(connection, query))
    return found


def wrong_event_numbers(connection: Connection, over: Window, limit: int) -> Rows:
    """I4: (run, event_seq, number of events, last) where a run's events are not numbered 1, 2, 3 ... event_seq."""
    numbers = (
        select(TRANSITION.c.run_id, func.count().label("number"), func.max(TRANSITION.c.run_seq).label("last"))
        .where(TRANSITION.c.run_id.in_(over.runs()))
        .group_by(TRANSITION.c.run_id)
        .subquery("numbers")
    )
    number, last = func.coalesce(numbers.c.number, 0), func.coalesce(numbers.c.last, 0)
    return _all(
        connection,
        select(RUN.c.id, RUN.c.event_seq, number, last)
        .join(numbers, numbers.c.run_id == RUN.c.id, isouter=True)
        .where(RUN.c.id.in_(over.runs()), or_(RUN.c.event_seq != last, number != last))
        .limit(limit),
    )


def held_by_ended(connection: Connection, limit: int) -> Rows:
    """I6: (attempt, run, phase, number) of ended attempts whose allocations are open."""
    return _all(
        connection,
        select(ATTEMPT.c.id, ATTEMPT.c.run_id, ATTEMPT.c.phase, func.count())
        .join(ALLOCATION, ALLOCATION.c.attempt_id == ATTEMPT.c.id)
        .where(ALLOCATION.c.released_at.is_(None), ATTEMPT.c.phase.in_(_ENDED_ATTEMPT))
        .group_by(ATTEMPT.c.id, ATTEMPT.c.run_id, ATTEMPT.c.phase)
        .limit(limit),
    )


def live_without(connection: Connection, limit: int) -> Rows:
    """I6: (attempt, run, phase) of live attempts of tasks that ask for something, without an open allocation."""
    held = select(ALLOCATION.c.id).where(ALLOCATION.c.attempt_id == ATTEMPT.c.id, ALLOCATION.c.released_at.is_(None))
    return _all(
        connection,
        select(ATTEMPT.c.id, ATTEMPT.c.run_id, ATTEMPT.c.phase)
        .join(TASK, TASK.c.id == ATTEMPT.c.task_run_id)
        .where(
            ATTEMPT.c.live_guard.is_not(None),
            ATTEMPT.c.phase.in_(_LIVE),
            ~held.exists(),
            or_(TASK.c.cpu_milli > 0, TASK.c.memory > 0, TASK.c.gpu > 0),
        )
        .limit(limit),
    )


def asleep(connection: Connection, limit: int) -> Rows:
    """(task, run, node_key, waits_for) of blocked tasks that wait for one that has ended, or that does not exist."""
    upstream = TASK.alias("upstream")
    return _all(
        connection,
        select(TASK.c.id, TASK.c.run_id, TASK.c.node_key, TASK.c.waits_for)
        .join(upstream, and_(upstream.c.run_id == TASK.c.run_id, upstream.c.node_key == TASK.c.waits_for), isouter=True)
        .where(
            TASK.c.phase == str(TaskPhase.BLOCKED),
            TASK.c.waits_for.is_not(None),
            TASK.c.waits_for != "",
            or_(upstream.c.id.is_(None), upstream.c.phase.in_(_ENDED_TASK)),
        )
        .limit(limit),
    )


def unfinished(connection: Connection, limit: int) -> Rows:
    """(run, phase) of runs that have not ended though all their tasks have."""
    unended = select(TASK.c.id).where(TASK.c.run_id == RUN.c.id, TASK.c.phase.not_in(_ENDED_TASK))
    return _all(
        connection, select(RUN.c.id, RUN.c.phase).where(RUN.c.phase.in_(_OPEN_RUN), ~unended.exists()).limit(limit)
    )


def open_below_ended(connection: Connection, over: Window, limit: int) -> Rows:
    """(task, run, node_key, phase) of tasks that have not ended though their run has."""
    return _all(
        connection,
        select(TASK.c.id, TASK.c.run_id, TASK.c.node_key, TASK.c.phase)
        .join(RUN, RUN.c.id == TASK.c.run_id)
        .where(RUN.c.id.in_(over.runs()), RUN.c.phase.in_(_ENDED_RUN), TASK.c.phase.not_in(_ENDED_TASK))
        .limit(limit),
    )


def old_doorbells(connection: Connection, before: float, limit: int) -> Rows:
    """(topic, key, created_at) of doorbells nobody has answered, oldest first."""
    return _all(
        connection,
        select(OUTBOX.c.topic, OUTBOX.c.key, OUTBOX.c.created_at)
        .where(OUTBOX.c.created_at < before)
        .order_by(OUTBOX.c.created_at)
        .limit(limit),
    )


def rung(connection: Connection, topic: str, keys: Sequence[str]) -> set[str]:
    """Those of the keys that have a doorbell."""
    return set(
        connection.execute(select(OUTBOX.c.key).where(OUTBOX.c.topic == topic, OUTBOX.c.key.in_(keys))).scalars()
    )


def overdue(connection: Connection, before: float, limit: int) -> Rows:
    """(entity, id, next_check_at) of rows that somebody should have looked at by now."""
    found: list[Row[*tuple[object, ...]]] = []
    for entity, table in _ROWS:
        due: ColumnElement[bool] = table.c.next_check_at < before
        query = (
            select(literal(str(entity)), table.c.id, table.c.next_check_at).where(due).order_by(table.c.next_check_at)
        )
        found.extend(_all(connection, query.limit(limit)))
    return found


def known_objects(connection: Connection, backend: str, names: Sequence[str]) -> dict[str, tuple[int, str, bool]]:
    """object name -> (attempt, phase, reaped) of those that are some attempt's."""
    found: dict[str, tuple[int, str, bool]] = {}
    for start in range(0, len(names), 500):
        rows = connection.execute(
            select(ATTEMPT.c.object_name, ATTEMPT.c.id, ATTEMPT.c.phase, ATTEMPT.c.reaped).where(
                ATTEMPT.c.backend == backend, ATTEMPT.c.object_name.in_(names[start : start + 500])
            )
        )
        found.update((str(r[0]), (int(r[1]), str(r[2]), bool(r[3]))) for r in rows)
    return found


def _all(connection: Connection, query: Select[*tuple[object, ...]]) -> Rows:
    return connection.execute(query).all()
