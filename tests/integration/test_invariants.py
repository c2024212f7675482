"""`cube doctor`'s invariants: silent on what the engine writes, loud on each way it could be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, delete, update

from myapp.persistence.database import Database
from myapp.persistence.invariants import RULES, violations
from myapp.persistence.tables import ALLOCATION, ATTEMPT, RUN, TASK, TRANSITION
from tests.factories import platform, rows


@pytest.fixture
def healthy(database: Database) -> Database:
    """One run that has ended, one at work, one not yet looked at."""
    platform.add_capacity(database, cpu=2000, memory=2**30)
    project = rows.add_project(database, "health")
    version = rows.add_version(database, project)
    ended = rows.add_run(database, project, version)
    rows.start_task(database, ended)
    rows.finish_task(database, ended)
    rows.start_task(database, rows.add_run(database, project, version, keys=("one", "two")))
    rows.add_run(database, project, version)
    return database


def found(database: Database) -> list[str]:
    with database.snapshot() as connection:
        return sorted({violation.rule for violation in violations(connection)})


def live_attempt_moves_to_another_task(connection: Connection) -> None:
    connection.execute(update(ATTEMPT).where(ATTEMPT.c.live_guard.is_not(None)).values(live_guard=None))


def ended_attempt_is_still_guarded(connection: Connection) -> None:
    connection.execute(update(ATTEMPT).where(ATTEMPT.c.live_guard.is_(None)).values(live_guard=ATTEMPT.c.task_run_id))


def capacity_is_exceeded(connection: Connection) -> None:
    connection.execute(update(ALLOCATION).where(ALLOCATION.c.released_at.is_(None)).values(amount=3000))


def ended_task_moves_on(connection: Connection) -> None:
    connection.execute(update(TRANSITION).where(TRANSITION.c.to_phase == "ready").values(from_phase="succeeded"))


def run_ends_before_its_tasks(connection: Connection) -> None:
    connection.execute(update(RUN).where(RUN.c.phase == "running").values(phase="succeeded"))
    connection.execute(
        update(TRANSITION).where(TRANSITION.c.entity == "run", TRANSITION.c.seq == 1).values(to_phase="succeeded")
    )


def task_ends_before_its_attempt(connection: Connection) -> None:
    connection.execute(update(TASK).where(TASK.c.phase == "active").values(phase="failed"))


def version_runs_ahead(connection: Connection) -> None:
    connection.execute(update(TASK).where(TASK.c.phase == "active").values(version=TASK.c.version + 1))


def step_is_missing(connection: Connection) -> None:
    connection.execute(delete(TRANSITION).where(TRANSITION.c.to_phase == "queued"))


def phase_is_changed_by_hand(connection: Connection) -> None:
    connection.execute(update(TASK).where(TASK.c.phase == "active").values(phase="admitted"))


def stream_cursor_runs_ahead(connection: Connection) -> None:
    connection.execute(update(RUN).where(RUN.c.phase == "queued").values(event_seq=1))


def ended_attempt_holds_resources(connection: Connection) -> None:
    connection.execute(update(ALLOCATION).values(released_at=None))


def live_attempt_holds_nothing(connection: Connection) -> None:
    connection.execute(update(ALLOCATION).values(released_at=1.0))


def test_what_the_engine_writes_is_sound(healthy: Database) -> None:
    assert found(healthy) == []


@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (live_attempt_moves_to_another_task, "I1"),
        (ended_attempt_is_still_guarded, "I1"),
        (capacity_is_exceeded, "I2"),
        (ended_task_moves_on, "I3"),
        (run_ends_before_its_tasks, "I3"),
        (task_ends_before_its_attempt, "I3"),
        (version_runs_ahead, "I4"),
        (step_is_missing, "I4"),
        (phase_is_changed_by_hand, "I4"),
        (stream_cursor_runs_ahead, "I4"),
        (ended_attempt_holds_resources, "I6"),
        (live_attempt_holds_nothing, "I6"),
    ],
)
def test_each_break_is_found(healthy: Database, breaks: Callable[[Connection], None], rule: str) -> None:
    with healthy.write() as unit:
        breaks(unit.connection)
    assert rule in found(healthy)
    assert rule in RULES
