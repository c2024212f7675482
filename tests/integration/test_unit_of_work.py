"""Guarded transitions: one winner however many race, history without gaps, one live attempt per task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from myapp.domain.runs.phases import Entity, RunPhase, TaskPhase
from myapp.domain.runs.transitions import IllegalTransition, StaleRow
from myapp.persistence.database import Database
from myapp.persistence.tables import ATTEMPT, OUTBOX, RUN, TASK, TRANSITION, insert_row
from myapp.persistence.unit_of_work import Topic
from tests.factories.rows import add_project, add_run, add_version, task_id

RACERS = 32


@pytest.fixture
def run_id(database: Database) -> int:
    project = add_project(database, "alpha")
    return add_run(database, project, add_version(database, project))


def history(database: Database, run_id: int) -> list[tuple[str, int, int, str, str]]:
    with database.read() as connection:
        rows = connection.execute(
            select(
                TRANSITION.c.entity,
                TRANSITION.c.seq,
                TRANSITION.c.run_seq,
                TRANSITION.c.from_phase,
                TRANSITION.c.to_phase,
            )
            .where(TRANSITION.c.run_id == run_id)
            .order_by(TRANSITION.c.run_seq)
        )
        return [tuple(row) for row in rows]


def move_run(database: Database, run_id: int, version: int, *path: RunPhase) -> None:
    with database.write() as unit:
        unit.lock_run(run_id)
        unit.post(Topic.RUN, run_id)
        unit.move(Entity.RUN, run_id, run_id, version, *path)


def test_of_many_racing_writers_one_wins(database: Database, run_id: int) -> None:
    gate = Barrier(RACERS)

    def race(number: int) -> bool:
        gate.wait()
        try:
            with database.write() as unit:
                unit.lock_run(run_id)
                unit.move(Entity.RUN, run_id, run_id, 0, RunPhase.QUEUED, RunPhase.RUNNING, actor=f"racer-{number}")
                unit.post(Topic.RUN, number)
        except StaleRow:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        won = list(pool.map(race, range(RACERS)))
    assert won.count(True) == 1
    assert history(database, run_id) == [("run", 1, 1, "queued", "running")]
    with database.read() as connection:
        assert connection.execute(select(RUN.c.phase, RUN.c.version, RUN.c.event_seq)).one() == ("running", 1, 1)
        assert connection.execute(select(OUTBOX.c.key)).scalars().all() == [str(won.index(True))]


def test_writers_of_one_run_number_their_events_without_gaps(database: Database, run_id: int) -> None:
    with database.write() as unit:
        for n in range(RACERS):
            insert_row(unit.connection, TASK, {"run_id": run_id, "node_key": f"t{n}", "ordinal": n + 1})
    ids = [task_id(database, run_id, f"t{n}") for n in range(RACERS)]
    gate = Barrier(RACERS)

    def race(task: int) -> None:
        gate.wait()
        with database.write() as unit:
            unit.lock_run(run_id)
            unit.move(Entity.TASK, task, run_id, 0, TaskPhase.BLOCKED, TaskPhase.READY, TaskPhase.QUEUED)

    with ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(race, ids))
    rows = history(database, run_id)
    assert [row[2] for row in rows] == list(range(1, 2 * RACERS + 1))
    assert sorted(row[1] for row in rows) == sorted([1, 2] * RACERS)


def test_a_stale_version_or_phase_changes_nothing(database: Database, run_id: int) -> None:
    for version, source, target in ((7, RunPhase.QUEUED, RunPhase.RUNNING), (0, RunPhase.RUNNING, RunPhase.SUCCEEDED)):
        with pytest.raises(StaleRow):
            move_run(database, run_id, version, source, target)
    assert history(database, run_id) == []
    with database.read() as connection:
        assert connection.execute(select(OUTBOX.c.id)).all() == []
        assert connection.execute(select(RUN.c.phase)).scalar_one() == "queued"


def test_an_edge_that_does_not_exist_is_a_defect(database: Database, run_id: int) -> None:
    with pytest.raises(IllegalTransition):
        move_run(database, run_id, 0, RunPhase.QUEUED, RunPhase.SUCCEEDED)
    assert history(database, run_id) == []


def test_nothing_moves_without_the_lock_of_its_run(database: Database, run_id: int) -> None:
    with pytest.raises(RuntimeError, match="without locking"), database.write() as unit:
        unit.move(Entity.RUN, run_id, run_id, 0, RunPhase.QUEUED, RunPhase.RUNNING)
    assert history(database, run_id) == []


def test_a_task_has_one_live_attempt_at_most(database: Database, run_id: int) -> None:
    task = task_id(database, run_id)
    values = {
        "run_id": run_id,
        "task_run_id": task,
        "live_guard": task,
        "backend": "local",
        "created_at": 0.0,
    }
    with database.write() as unit:
        insert_row(unit.connection, ATTEMPT, {**values, "attempt_no": 1, "object_name": "a"})
    with pytest.raises(IntegrityError), database.write() as unit:
        insert_row(unit.connection, ATTEMPT, {**values, "attempt_no": 2, "object_name": "b"})
    with database.write() as unit:
        insert_row(unit.connection, ATTEMPT, {**values, "attempt_no": 2, "object_name": "b", "live_guard": None})
        insert_row(unit.connection, ATTEMPT, {**values, "attempt_no": 3, "object_name": "c", "live_guard": None})
