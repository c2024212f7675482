"""One write transaction: guarded changes of phase, their history, and the bells that ring after the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, cast

from sqlalchemy import Connection, Row, Table, Update, bindparam, delete, insert, select, update

from myapp.domain.runs.phases import Entity
from myapp.domain.runs.transitions import StaleRow, check_edge
from myapp.models import Attempt, Outbox, Run, TaskRun, Transition

_TABLES: dict[Entity, Table] = {
    Entity.RUN: cast(Table, Run.__table__),
    Entity.TASK: cast(Table, TaskRun.__table__),
    Entity.ATTEMPT: cast(Table, Attempt.__table__),
}
_RUN = _TABLES[Entity.RUN]
_INSERT_TRANSITION = insert(cast(Table, Transition.__table__))
_OUTBOX = cast(Table, Outbox.__table__)
_INSERT_OUTBOX = insert(_OUTBOX)
_SET_EVENT_SEQ = update(_RUN).where(_RUN.c.id == bindparam("b_id")).values(event_seq=bindparam("b_seq"))


_LOCK_RUN = select(_RUN).where(_RUN.c.id == bindparam("b_id")).with_for_update()
_LOCK_RUNS = select(_RUN).where(_RUN.c.id.in_(bindparam("b_ids", expanding=True))).order_by(_RUN.c.id).with_for_update()
_ANSWERED = delete(_OUTBOX).where(_OUTBOX.c.topic == bindparam("b_topic"), _OUTBOX.c.key == bindparam("b_key"))


@cache
def _guarded(entity: Entity, columns: tuple[str, ...]) -> Update:
    """The guarded UPDATE that also sets `columns`: built once, since building costs more than running it."""
    table = _TABLES[entity]
    return (
        update(table)
        .where(
            table.c.id == bindparam("b_id"),
            table.c.version == bindparam("b_version"),
            table.c.phase == bindparam("b_phase"),
        )
        .values({name: bindparam(name, type_=table.c[name].type) for name in ("phase", "version", *columns)})
    )


class Topic(StrEnum):
    """What an outbox row (and a bell) asks for. The key is an id, or `-`."""

    RUN = "run"  # look at this run: start it, stop it, see whether it has ended
    ATTEMPT = "attempt"  # look at this attempt
    ADMISSION = "admission"  # something was queued or released: admit what fits (key: backend)


class Bell(Protocol):
    """Rings workers and readers after a commit. May lose a ring: the outbox and `next_check_at` are the net."""

    def ring(self, topic: Topic, key: str) -> None: ...

    def moved(self, runs: Mapping[int, int]) -> None:
        """Runs that changed, with their `event_seq`: wakes their event streams."""
        ...


class SilentBell:
    def ring(self, topic: Topic, key: str) -> None:
        return None

    def moved(self, runs: Mapping[int, int]) -> None:
        return None


class UnitOfWork:
    """Made by `Database.write()`; holds the connection of one open transaction. `now`: unix seconds."""

    def __init__(self, connection: Connection, *, now: float) -> None:
        self.connection = connection
        self.now = now
        self._locked: dict[int, int] = {}
        self._history: list[dict[str, Any]] = []
        self._outbox: dict[tuple[Topic, str], dict[str, Any]] = {}
        self._rings: dict[tuple[Topic, str], None] = {}
        self._moved: dict[int, int] = {}

    def lock_run(self, run_id: int) -> Row[Any]:
        """Lock the run's row and return it. Every transaction that moves a run, its tasks or attempts does this first.

        Raises StaleRow when the run is gone.
        """
        row = self.connection.execute(_LOCK_RUN, {"b_id": run_id}).one_or_none()
        if row is None:
            raise StaleRow(f"run {run_id} is gone")
        self._locked.setdefault(run_id, row.event_seq)
        return row

    def lock_runs(self, run_ids: Sequence[int]) -> dict[int, Row[Any]]:
        """Lock several runs in the order of their ids, so that two such transactions cannot deadlock."""
        wanted = sorted(set(run_ids))
        if not wanted:
            return {}
        rows = self.connection.execute(_LOCK_RUNS, {"b_ids": wanted}).all()
        for row in rows:
            self._locked.setdefault(row.id, row.event_seq)
        return {row.id: row for row in rows}

    def move(
        self,
        entity: Entity,
        row_id: int,
        run_id: int,
        version: int,
        *path: StrEnum,
        actor: str = "engine",
        note: str = "",
        evidence: dict[str, Any] | None = None,
        **columns: Any,
    ) -> int:
        """Move a row from `path[0]` over the given phases to `path[-1]`; returns its new version.

        One guarded UPDATE; one history row per step (its reason: `note`, else the new `reason` column). Raises
        StaleRow when the row is no longer at (`path[0]`, `version`), IllegalTransition when an edge does not exist.
        """
        for source, target in pairwise(path):
            check_edge(entity, source, target)
        steps = len(path) - 1
        note = note or str(columns.get("reason") or "")
        changed = self.connection.execute(
            _guarded(entity, tuple(columns)),
            {
                "b_id": row_id,
                "b_version": version,
                "b_phase": str(path[0]),
                "phase": str(path[-1]),
                "version": version + steps,
                **columns,
            },
        ).rowcount
        if changed != 1:
            raise StaleRow(f"{entity} {row_id} is no longer {path[0]} at version {version}")
        for step in range(steps):
            self._record(entity, row_id, run_id, version + step + 1, path[step], path[step + 1], actor, note, evidence)
        return version + steps

    def _record(
        self,
        entity: Entity,
        row_id: int,
        run_id: int,
        seq: int,
        source: StrEnum,
        target: StrEnum,
        actor: str,
        reason: str,
        evidence: dict[str, Any] | None,
    ) -> None:
        if run_id not in self._locked:
            raise RuntimeError(f"{entity} {row_id} moved without locking run {run_id}")
        self._locked[run_id] += 1
        self._moved[run_id] = self._locked[run_id]
        self._history.append(
            {
                "entity": str(entity),
                "entity_id": row_id,
                "seq": seq,
                "run_id": run_id,
                "run_seq": self._locked[run_id],
                "from_phase": str(source),
                "to_phase": str(target),
                "actor": actor[:64],
                "reason": reason[:500],
                "evidence": evidence,
                "at": self.now,
            }
        )

    def post(self, topic: Topic, key: int | str, *, ring: bool = True) -> None:
        """Write a durable doorbell; `ring=False` when this same process goes on to do the work itself."""
        self._outbox[(topic, str(key))] = {"topic": str(topic), "key": str(key), "created_at": self.now}
        if ring:
            self._rings[(topic, str(key))] = None

    def ring(self, topic: Topic, key: int | str) -> None:
        """Ring after the commit without an outbox row (the row's `next_check_at` is the net)."""
        self._rings[(topic, str(key))] = None

    def answered(self, topic: Topic, key: int | str) -> None:
        """Delete the doorbells that this transaction answers."""
        self.connection.execute(_ANSWERED, {"b_topic": str(topic), "b_key": str(key)})

    def flush(self) -> None:
        """Write what was collected. Called once, just before the commit."""
        if self._history:
            self.connection.execute(_INSERT_TRANSITION, self._history)
            self.connection.execute(_SET_EVENT_SEQ, [{"b_id": r, "b_seq": s} for r, s in self._moved.items()])
        if self._outbox:
            self.connection.execute(_INSERT_OUTBOX, list(self._outbox.values()))

    def announce(self, bell: Bell) -> None:
        """Ring what the committed transaction asked for. A bell that fails is only late: nothing is raised."""
        if self._moved:
            bell.moved(self._moved)
        for topic, key in self._rings:
            bell.ring(topic, key)
