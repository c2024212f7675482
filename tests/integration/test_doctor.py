"""The doctor finds each planted violation, and nothing in a healthy database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert, text

from myapp.domain.ports import OwnedObject, Transient
from myapp.persistence.database import Database
from myapp.persistence.tables import ALLOCATION, ATTEMPT, RUN, TASK, TRANSITION, insert_row
from myapp.persistence.unit_of_work import Topic
from myapp.services import doctor as doctors
from myapp.services.context import Context
from myapp.services.doctor import doctor
from tests.factories.platform import add_capacity, make_context
from tests.factories.rows import add_project, add_run, add_version, finish_task, start_task, task_id


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Context:
    return make_context(database, tmp_path, catalog=False)


@pytest.fixture
def ids(database: Database) -> dict[str, int]:
    """An ended run, one with an active and a blocked task, and a queued one."""
    project = add_project(database, "alpha")
    version = add_version(database, project)
    add_capacity(database, cpu=4000, memory=2**33, gpu=2)
    ended = add_run(database, project, version)
    ended_attempt = start_task(database, ended)
    finish_task(database, ended)
    live = add_run(database, project, version, ("one", "two"))
    attempt = start_task(database, live)
    with database.write() as unit:
        unit.connection.execute(TASK.update().where(TASK.c.node_key == "two").values(waits_for="one"))
    return {
        "project": project,
        "version": version,
        "ended": ended,
        "ended_attempt": ended_attempt,
        "live": live,
        "attempt": attempt,
        "task": task_id(database, live),
        "ended_task": task_id(database, ended),
        "queued": add_run(database, project, version),
    }


def planted(database: Database, *statements: Any) -> None:
    with database.write() as unit:
        for statement in statements:
            unit.connection.execute(statement)


def test_a_healthy_database_has_nothing_to_find(context: Context, ids: dict[str, int]) -> None:
    assert doctor(context) == []
    assert doctor(context, full=True) == []


def second_attempt(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "run_id": ids["live"],
        "task_run_id": ids["task"],
        "attempt_no": 2,
        "phase": "planned",
        "backend": "local",
        "object_name": "second",
        "created_at": 0.0,
    }


def extra_history(ids: dict[str, int], **values: Any) -> Any:
    row = {
        "entity": "run",
        "entity_id": ids["ended"],
        "seq": 3,
        "run_id": ids["ended"],
        "run_seq": 99,
        "actor": "x",
        "at": 0.0,
        "from_phase": "succeeded",
        "to_phase": "running",
        **values,
    }
    return insert(TRANSITION).values(**row)


# what is done to the database -> the finding it must give: (code, entity, id)
VIOLATIONS: dict[str, tuple[Callable[[dict[str, int]], list[Any]], tuple[str, str, str]]] = {
    "a second live attempt": (
        lambda i: [insert(ATTEMPT).values(**second_attempt(i), live_guard=i["ended_task"])],
        ("I1", "task", "task"),
    ),
    "a live attempt without its guard": (
        lambda i: [ATTEMPT.update().where(ATTEMPT.c.id == i["attempt"]).values(live_guard=None)],
        ("I1", "attempt", "attempt"),
    ),
    "an ended attempt with its guard": (
        lambda i: [ATTEMPT.update().where(ATTEMPT.c.id == i["ended_attempt"]).values(live_guard=i["ended_task"])],
        ("I1", "attempt", "ended_attempt"),
    ),
    "more cpu than there is": (
        lambda i: [ALLOCATION.update().where(ALLOCATION.c.attempt_id == i["attempt"]).values(amount=5000)],
        ("I2", "backend", "local"),
    ),
    "a resource that is not there": (
        lambda i: [ALLOCATION.update().where(ALLOCATION.c.attempt_id == i["attempt"]).values(resource="npu", amount=1)],
        ("I2", "backend", "local"),
    ),
    "one device twice": (
        lambda i: [
            ATTEMPT.update().where(ATTEMPT.c.id == i["attempt"]).values(devices=[0, 1]),
            insert(ATTEMPT).values(**second_attempt(i), live_guard=i["ended_task"], devices=[1]),
        ],
        ("I2", "attempt", "*"),
    ),
    "a run that went on after its end": (lambda i: [extra_history(i)], ("I3", "run", "ended")),
    "a hole in the history": (lambda i: [extra_history(i, seq=5)], ("I4", "run", "ended")),
    "a phase its history does not know": (
        lambda i: [RUN.update().where(RUN.c.id == i["ended"]).values(phase="failed")],
        ("I4", "run", "ended"),
    ),
    "a version its history does not know": (
        lambda i: [TASK.update().where(TASK.c.id == i["task"]).values(version=9)],
        ("I4", "task", "task"),
    ),
    "a change that begins elsewhere": (
        lambda i: [
            TRANSITION.update()
            .where(TRANSITION.c.entity == "task", TRANSITION.c.entity_id == i["task"], TRANSITION.c.seq == 2)
            .values(from_phase="queued")
        ],
        ("I4", "task", "task"),
    ),
    "an event number that is not counted": (
        lambda i: [RUN.update().where(RUN.c.id == i["live"]).values(event_seq=77)],
        ("I4", "run", "live"),
    ),
    "an ended attempt that holds something": (
        lambda i: [ALLOCATION.update().where(ALLOCATION.c.attempt_id == i["ended_attempt"]).values(released_at=None)],
        ("I6", "attempt", "ended_attempt"),
    ),
    "a live attempt that holds nothing": (
        lambda i: [ALLOCATION.update().where(ALLOCATION.c.attempt_id == i["attempt"]).values(released_at=1.0)],
        ("I6", "attempt", "attempt"),
    ),
    "a task that waits for an ended one": (
        lambda i: [TASK.update().where(TASK.c.id == i["task"]).values(phase="succeeded")],
        ("asleep", "task", "*"),
    ),
    "a task that waits for nobody": (
        lambda i: [TASK.update().where(TASK.c.node_key == "two").values(waits_for="gone")],
        ("asleep", "task", "*"),
    ),
    "a run that was not closed": (
        lambda i: [TASK.update().where(TASK.c.run_id == i["queued"]).values(phase="skipped")],
        ("unfinished", "run", "queued"),
    ),
    "an open task of an ended run": (
        lambda i: [TASK.update().where(TASK.c.id == i["ended_task"]).values(phase="ready")],
        ("open_task", "task", "ended_task"),
    ),
    "a run nobody looks at": (
        lambda i: [RUN.update().where(RUN.c.id == i["queued"]).values(next_check_at=1.0)],
        ("overdue", "run", "queued"),
    ),
    "an attempt nobody looks at": (
        lambda i: [ATTEMPT.update().where(ATTEMPT.c.id == i["attempt"]).values(next_check_at=1.0)],
        ("overdue", "attempt", "attempt"),
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
@pytest.mark.parametrize("full", [False, True])
def test_each_violation_is_found(context: Context, ids: dict[str, int], name: str, full: bool) -> None:
    plant, (code, entity, who) = VIOLATIONS[name]
    planted(context.database, *plant(ids))
    found = doctor(context, full=full)
    matching = [f for f in found if f.code == code and f.entity == entity]
    assert matching, f"not found; found only {found}"
    if who in ids:
        assert ids[who] in [f.entity_id for f in matching]
    assert all(f.message and f.resolution for f in found)


def test_an_unanswered_doorbell_is_found_only_when_old(context: Context, ids: dict[str, int]) -> None:
    with context.database.write() as unit:
        unit.post(Topic.RUN, ids["queued"])
    assert doctor(context) == []
    planted(context.database, text("UPDATE outbox SET created_at = created_at - 120"))
    assert [(f.code, f.severity, f.entity_id) for f in doctor(context)] == [("outbox", "warning", str(ids["queued"]))]


def test_a_run_whose_end_is_announced_is_not_unfinished(context: Context, ids: dict[str, int]) -> None:
    planted(context.database, TASK.update().where(TASK.c.run_id == ids["queued"]).values(phase="skipped"))
    with context.database.write() as unit:
        unit.post(Topic.RUN, ids["queued"])
    assert "unfinished" not in [f.code for f in doctor(context)]


def test_only_a_full_check_looks_at_old_ended_runs(
    context: Context, ids: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctors, "RECENT_RUNS", 1)
    planted(context.database, RUN.update().where(RUN.c.id == ids["ended"]).values(phase="failed"))
    assert doctor(context) == []
    assert [f.code for f in doctor(context, full=True)] == ["I4"]


def test_objects_are_compared_with_attempts(context: Context, ids: dict[str, int]) -> None:
    planted(
        context.database,
        ATTEMPT.update().where(ATTEMPT.c.id == ids["ended_attempt"]).values(reaped=True, object_name="reaped"),
        ATTEMPT.update().where(ATTEMPT.c.id == ids["attempt"]).values(object_name="mine"),
    )
    now = context.database.clock()

    def listed() -> Iterator[OwnedObject]:
        for name, age in (("mine", 999.0), ("reaped", 999.0), ("stray", 999.0), ("being-made", 1.0)):
            yield OwnedObject(name, name, None, now - age)

    found = doctor(context, {"local": SimpleNamespace(list_owned=listed)})
    assert sorted((f.code, f.entity_id) for f in found) == [("I5", "reaped"), ("I5", "stray")]


def test_a_backend_that_cannot_be_asked_is_a_warning(context: Context, ids: dict[str, int]) -> None:
    def listed() -> Iterator[OwnedObject]:
        raise Transient("not reachable")

    found = doctor(context, {"local": SimpleNamespace(list_owned=listed)})
    assert [(f.code, f.severity) for f in found] == [("backend", "warning")]


def test_a_schema_that_is_behind_is_all_it_says(
    context: Context, empty_url: Callable[[str], str], tmp_path: Path
) -> None:
    behind = Database(empty_url("sqlite"))
    found = doctor(make_context(behind, tmp_path, catalog=False))
    assert [(f.code, f.resolution) for f in found] == [("migration", "run `cube db upgrade`")]
    behind.dispose()


def test_findings_are_bounded(context: Context, ids: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors, "MOST", 5)
    with context.database.write() as unit:
        for n in range(20):
            insert_row(
                unit.connection,
                TASK,
                {"run_id": ids["queued"], "node_key": f"t{n}", "ordinal": n + 10, "waits_for": "gone"},
            )
    assert len([f for f in doctor(context) if f.code == "asleep"]) == 5
