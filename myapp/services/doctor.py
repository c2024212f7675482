"""Looks for rows that break an invariant (DESIGN, section 10) or that nobody takes care of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from myapp.domain.ports import BackendError, ExecutionBackend
from myapp.domain.runs.phases import ATTEMPT_TERMINAL
from myapp.persistence import schema
from myapp.persistence.repositories import invariants
from myapp.persistence.repositories.invariants import Window
from myapp.services.context import Context
from myapp.utils.clock import iso

RECENT_RUNS = 1000
MOST = 100  # findings of one kind
OUTBOX_AGE_S = 60.0
OVERDUE_S = 300.0
ORPHAN_AGE_S = 120.0
_ENDED = frozenset(str(phase) for phase in ATTEMPT_TERMINAL)
_BUG = "this is a defect: keep the database and report it with the run's history"


@dataclass(frozen=True)
class Finding:
    """`code`: I1 to I6, or a word. `severity`: error (an invariant is broken) or warning (something is late)."""

    code: str
    severity: str
    entity: str
    entity_id: int | str
    message: str
    resolution: str
    run_id: int | None = None


def doctor(
    ctx: Context, backends: Mapping[str, ExecutionBackend] | None = None, *, full: bool = False
) -> list[Finding]:
    """What is wrong, worst first; empty when all is well. `full` checks every run ever, else live and recent ones.

    `backends`: also asks them for the objects they own (I5). Reads only.
    """
    revision = schema.current(ctx.database.url)
    if revision != schema.HEAD:
        return [
            Finding(
                "migration",
                "error",
                "database",
                revision or "empty",
                f"the schema is at {revision or 'nothing'}, this version needs {schema.HEAD}",
                "run `cube db upgrade`",
            )
        ]
    owned = _owned(backends or {})
    now = ctx.database.clock()
    with ctx.database.snapshot() as connection:
        over = invariants.window(connection, None if full else RECENT_RUNS)
        found = [
            *_attempts(connection, over),
            *_capacity(connection),
            *_history(connection, over),
            *_objects(connection, owned, now),
            *_allocations(connection),
            *_stuck(connection, over),
            *_late(connection, now),
        ]
    return sorted(found, key=lambda finding: (finding.severity != "error", finding.code))


def _broken(
    code: str, entity: Any, entity_id: Any, message: str, run_id: Any = None, resolution: str = _BUG
) -> Finding:
    return Finding(code, "error", str(entity), entity_id, message, resolution, run_id)


def _attempts(connection: Connection, over: Window) -> list[Finding]:
    found = [
        _broken("I1", "task", task, f"task {task} has {number} live attempts")
        for task, number in invariants.doubly_live(connection, MOST)
    ]
    found += [
        _broken("I1", "attempt", attempt, f"attempt {attempt} is {phase}, but its guard says otherwise", run)
        for attempt, run, phase in invariants.wrong_guards(connection, over, MOST)
    ]
    return found


def _capacity(connection: Connection) -> list[Finding]:
    found = [
        _broken("I2", "backend", backend, f"{held} of {resource} is handed out on {backend}, which has {there}")
        for backend, resource, held, there in invariants.overcommitted(connection)
    ]
    holders: dict[tuple[Any, int], Any] = {}
    for attempt, run, backend, devices in invariants.held_devices(connection):
        for device in devices:  # type: ignore[attr-defined]
            other = holders.setdefault((backend, device), attempt)
            if other != attempt:
                found.append(
                    _broken("I2", "attempt", attempt, f"device {device} of {backend} is also attempt {other}'s", run)
                )
    return found


def _history(connection: Connection, over: Window) -> list[Finding]:
    found = [
        _broken("I3", entity, row, f"{entity} {row} went from {source} to {target} after its end", run)
        for entity, row, run, source, target in invariants.left_terminal(connection, over, MOST)
    ]
    found += [
        _broken("I4", entity, row, f"{entity} {row} has {number} history rows, the last numbered {last}", run)
        for entity, row, run, number, last in invariants.broken_sequences(connection, over, MOST)
    ]
    found += [
        _broken("I4", entity, row, f"{entity} {row}: change {seq} ended at {target}, the next began at {source}", run)
        for entity, row, run, seq, target, source in invariants.broken_chains(connection, over, MOST)
    ]
    found += [
        _broken(
            "I4",
            entity,
            row,
            f"{entity} {row} is {phase} v{version}, its history ends at {to or 'nothing'} v{seq}",
            run,
        )
        for entity, row, run, version, phase, seq, to in invariants.wrong_versions(connection, over, MOST)
    ]
    found += [
        _broken("I4", "run", run, f"run {run} counts {seq} events, there are {number}, the last numbered {last}", run)
        for run, seq, number, last in invariants.wrong_event_numbers(connection, over, MOST)
    ]
    return found


def _owned(backends: Mapping[str, ExecutionBackend]) -> dict[str, dict[str, float] | str]:
    """backend -> object name -> when it was made, or why it could not be asked. Asked before the database is."""
    owned: dict[str, dict[str, float] | str] = {}
    for kind, backend in backends.items():
        try:
            owned[kind] = {item.object_name: item.created_at for item in backend.list_owned()}
        except (BackendError, OSError) as error:
            owned[kind] = str(error) or type(error).__name__
    return owned


def _objects(connection: Connection, owned: Mapping[str, dict[str, float] | str], now: float) -> list[Finding]:
    found = []
    for backend, objects in owned.items():
        if isinstance(objects, str):
            message = f"{backend} could not be asked for its objects: {objects}"
            found.append(Finding("backend", "warning", "backend", backend, message, "check that it can be reached"))
            continue
        old = [name for name, created in objects.items() if created < now - ORPHAN_AGE_S]
        known = invariants.known_objects(connection, backend, old)
        for name in old:
            if name not in known:
                message = f"{name} on {backend} is no attempt's, and was not swept"
                found.append(
                    _broken("I5", "object", name, message, resolution="check that a worker and beat are running")
                )
            elif known[name][2] and known[name][1] in _ENDED:
                message = f"{name} on {backend} still exists though attempt {known[name][0]} was cleaned up"
                found.append(
                    _broken("I5", "object", name, message, resolution="check that a worker and beat are running")
                )
    return found[:MOST]


def _allocations(connection: Connection) -> list[Finding]:
    found = [
        _broken("I6", "attempt", attempt, f"attempt {attempt} is {phase} and still holds {number} allocations", run)
        for attempt, run, phase, number in invariants.held_by_ended(connection, MOST)
    ]
    found += [
        _broken("I6", "attempt", attempt, f"attempt {attempt} is {phase} and holds nothing", run)
        for attempt, run, phase in invariants.live_without(connection, MOST)
    ]
    return found


def _stuck(connection: Connection, over: Window) -> list[Finding]:
    found = [
        _broken(
            "asleep", "task", task, f"task {key} of run {run} waits for {upstream}, which has ended or is missing", run
        )
        for task, run, key, upstream in invariants.asleep(connection, MOST)
    ]
    found += [
        _broken("open_task", "task", task, f"task {key} is {phase} though run {run} has ended", run)
        for task, run, key, phase in invariants.open_below_ended(connection, over, MOST)
    ]
    ended = {str(run): (run, phase) for run, phase in invariants.unfinished(connection, MOST)}
    for key in sorted(set(ended) - invariants.rung(connection, "run", list(ended))):
        run, phase = ended[key]
        found.append(_broken("unfinished", "run", run, f"run {run} is {phase} though all its tasks have ended", run))
    return found


def _late(connection: Connection, now: float) -> list[Finding]:
    remedy = "check that worker, beat and Redis are running (`cube up` starts all)"
    found = [
        Finding(
            "outbox",
            "warning",
            str(topic),
            str(key),
            f"{topic} {key} has waited for an answer since {_when(at)}",
            remedy,
        )
        for topic, key, at in invariants.old_doorbells(connection, now - OUTBOX_AGE_S, MOST)
    ]
    found += [
        Finding(
            "overdue", "warning", str(entity), int(str(row)), f"{entity} {row} was to be looked at {_when(at)}", remedy
        )
        for entity, row, at in invariants.overdue(connection, now - OVERDUE_S, MOST)
    ]
    return found


def _when(moment: object) -> str:
    return str(iso(float(str(moment))))
