"""The net below every event: rings what is due, what nobody answered, and what a dead process left unfinished."""

from __future__ import annotations

import structlog

from myapp.controllers.engine import Engine
from myapp.domain.ports import AttemptKey, Handle, OwnedObject
from myapp.domain.runs.phases import ATTEMPT_LIVE, ATTEMPT_TERMINAL
from myapp.persistence import due_store
from myapp.persistence.unit_of_work import Topic

log = structlog.get_logger(__name__)
LIMIT = 500
REAP_BATCH = 50
UNANSWERED_AFTER_S = 2.0
REAP_RETRY_S = 60.0
ORPHAN_AFTER_S = 60.0  # an object younger than this may still be about to be recorded


class Rung:
    """When each bell was last rung, and for what: as long as it stays due for the same reason (`since`, a moment) it is
    rung ever more rarely, up to every `most_s`; due anew, it rings at once.
    """

    def __init__(self, first_s: float = 2.0, most_s: float = 30.0) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._rung: dict[tuple[Topic, str], tuple[float, float, float]] = {}

    def may(self, bell: tuple[Topic, str], since: float, now: float) -> bool:
        known, at, wait = self._rung.get(bell, (since, 0.0, 0.0))
        if known != since:
            wait = 0.0
        elif now < at + wait:
            return False
        self._rung[bell] = (since, now, min(wait * 2 or self._first_s, self._most_s))
        return True

    def forget(self, now: float) -> None:
        """Drop what has not been due for a while."""
        self._rung = {b: rung for b, rung in self._rung.items() if now < rung[1] + 4 * self._most_s}


def due(engine: Engine, rung: Rung) -> int:
    """Ring every row whose time has come and every doorbell left unanswered; how many there are."""
    database = engine.context.database
    with database.read() as connection:
        now = database.clock()
        attempts = due_store.due_attempts(connection, now, LIMIT)
        runs = due_store.due_runs(connection, now, LIMIT)
        bells = due_store.unanswered(connection, now - UNANSWERED_AFTER_S, LIMIT)
    rings = {(Topic(topic), key): at for (topic, key), at in bells.items()}
    rings |= {(Topic.RUN, str(run_id)): at for run_id, at in runs.items()}
    rings |= {(Topic.ATTEMPT, str(attempt_id)): at for attempt_id, at in attempts.items()}
    for bell, since in rings.items():
        if rung.may(bell, since, now):
            database.bell.ring(*bell)
    rung.forget(now)
    return len(rings)


def reap(engine: Engine) -> int:
    """Delete the objects of ended attempts, one batch; how many were due. Slow: never where bells are rung."""
    database = engine.context.database
    with database.read() as connection:
        now = database.clock()
        ended = due_store.unreaped(connection, now, REAP_BATCH)
    reaped: list[int] = []
    left: list[int] = []
    for row in ended:
        backend = engine.backends.get(row.backend)
        if backend is None:
            left.append(row.id)
            continue
        try:
            if row.handle:
                backend.reap(
                    AttemptKey(row.project, row.id, row.object_name), Handle(row.handle["uid"], row.handle["data"])
                )
            reaped.append(row.id)
        except Exception as error:  # one object that cannot be deleted must not keep the others
            log.warning("reap failed, will be tried again", attempt=row.id, error=str(error))
            left.append(row.id)
    if ended:
        with database.write() as unit:
            due_store.mark_reaped(unit.connection, reaped)
            due_store.look_later(unit.connection, left, now + REAP_RETRY_S)
    return len(ended)


def live(engine: Engine) -> int:
    """Ring every attempt that is not ended: after a start, when nobody knows what was missed. How many."""
    database = engine.context.database
    count, last = 0, 0
    while True:
        with database.read() as connection:
            found = due_store.live_attempts_after(connection, last, LIMIT)
        for attempt_id in found.values():
            database.bell.ring(Topic.ATTEMPT, str(attempt_id))
        count += len(found)
        if len(found) < LIMIT:
            break
        last = max(found)
    for kind in engine.backends:
        database.bell.ring(Topic.ADMISSION, kind)
    return count


def orphans(engine: Engine, kind: str) -> list[str]:
    """Delete, by uid, the backend's objects that belong to no live attempt; their names.

    An inert object that a stalled worker created late is one: its attempt has another uid or has ended, so nothing
    will ever fire it.
    """
    backend = engine.backends[kind]
    database = engine.context.database
    now = database.clock()
    owned = [o for o in backend.list_owned() if now - o.created_at > ORPHAN_AFTER_S]
    if not owned:
        return []
    with database.read() as connection:
        owners = due_store.owners(connection, kind, [o.object_name for o in owned])
    swept: list[str] = []
    for one in owned:
        owner = owners.get(one.object_name)
        if owner is not None and not _is_orphan(one, owner.phase, owner.handle):
            continue
        try:
            backend.destroy(one)
            swept.append(one.object_name)
        except Exception as error:
            log.warning("orphan could not be deleted", object=one.object_name, error=str(error))
    return swept


def _is_orphan(owned: OwnedObject, phase: str, handle: dict[str, object] | None) -> bool:
    if phase in ATTEMPT_TERMINAL:
        return handle is None or handle["uid"] != owned.uid  # its own object is reaped by `due`
    assert phase in ATTEMPT_LIVE
    return handle is not None and handle["uid"] != owned.uid
