"""The guard of every change of phase: the pure rule and the guarded UPDATE of a real database mean the same."""

from __future__ import annotations

from enum import StrEnum

import pytest
from sqlalchemy import select, update

from myapp.domain.runs.phases import (
    EDGES,
    TERMINAL,
    AttemptPhase,
    Entity,
    RunPhase,
    TaskPhase,
    allowed,
    sources,
)
from myapp.domain.runs.transitions import IllegalTransition, StaleRow, check_edge, is_terminal, next_version
from myapp.persistence.database import Database
from myapp.persistence.tables import ATTEMPT, RUN, TASK, TRANSITION
from tests.factories.rows import add_project, add_run, add_version, start_task, task_id

PHASES: dict[Entity, type[StrEnum]] = {Entity.RUN: RunPhase, Entity.TASK: TaskPhase, Entity.ATTEMPT: AttemptPhase}
TABLES = {Entity.RUN: RUN, Entity.TASK: TASK, Entity.ATTEMPT: ATTEMPT}


@pytest.mark.parametrize("entity", Entity)
def test_every_phase_can_be_left_exactly_when_it_is_not_the_end(entity: Entity) -> None:
    phases = PHASES[entity]
    for phase in phases:
        assert any(a == phase for a, _ in EDGES[entity]) is (phase not in TERMINAL[entity])
        assert is_terminal(entity, phase) is is_terminal(entity, str(phase)) is (phase in TERMINAL[entity])


@pytest.mark.parametrize("entity", Entity)
def test_every_phase_but_the_first_can_be_reached(entity: Entity) -> None:
    first = next(iter(PHASES[entity]))
    reached, todo = {first}, [first]
    while todo:
        here = todo.pop()
        for source, target in EDGES[entity]:
            if source == here and target not in reached:
                reached.add(target)
                todo.append(target)
    assert reached == set(PHASES[entity])
    assert not sources(entity, first)


@pytest.mark.parametrize("entity", Entity)
def test_from_everywhere_an_end_can_be_reached(entity: Entity) -> None:
    good = set(TERMINAL[entity])
    while more := {a for a, b in EDGES[entity] if b in good} - good:
        good |= more
    assert good == set(PHASES[entity])


@pytest.mark.parametrize("entity", Entity)
def test_edges_and_versions(entity: Entity) -> None:
    for source in PHASES[entity]:
        for target in PHASES[entity]:
            edge = allowed(entity, source, target)
            assert edge is ((source, target) in EDGES[entity])
            if edge:
                check_edge(entity, source, target)
                assert next_version(entity, source, 4, target=target, expect_version=4) == 5
            else:
                with pytest.raises(IllegalTransition):
                    check_edge(entity, source, target)
                with pytest.raises(StaleRow):
                    next_version(entity, source, 4, target=target, expect_version=4)
            for other in (3, 5):
                with pytest.raises(StaleRow):
                    next_version(entity, source, 4, target=target, expect_version=other)


@pytest.mark.parametrize("entity", Entity)
def test_the_pure_rule_and_the_database_agree_on_every_combination(database: Database, entity: Entity) -> None:
    """Row at (phase, version) x wanted move from `source` at `expect` to `target`: same verdict, same version."""
    project = add_project(database, "alpha")
    run_id = add_run(database, project, add_version(database, project))
    row_id = {
        Entity.RUN: lambda: run_id,
        Entity.TASK: lambda: task_id(database, run_id),
        Entity.ATTEMPT: lambda: start_task(database, run_id),
    }[entity]()
    table, checked = TABLES[entity], 0
    for phase in PHASES[entity]:
        for target in PHASES[entity]:
            for expect in (6, 7):
                with database.write() as unit:
                    unit.connection.execute(
                        update(table).where(table.c.id == row_id).values(phase=str(phase), version=7)
                    )
                try:
                    pure: int | None = next_version(entity, phase, 7, target=target, expect_version=expect)
                except StaleRow:
                    pure = None
                before = steps(database, entity, row_id)
                try:
                    with database.write() as unit:
                        unit.lock_run(run_id)
                        real: int | None = unit.move(entity, row_id, run_id, expect, phase, target)
                        unit.connection.execute(TRANSITION.delete().where(TRANSITION.c.entity_id == -1))
                except (StaleRow, IllegalTransition):
                    real = None
                assert real == pure
                with database.read() as connection:
                    now = connection.execute(select(table.c.phase, table.c.version).where(table.c.id == row_id)).one()
                assert tuple(now) == ((str(target), pure) if pure is not None else (str(phase), 7))
                after = steps(database, entity, row_id)
                assert after[: len(before)] == before
                assert after[len(before) :] == ([(8, str(phase), str(target))] if pure is not None else [])
                forget(database, entity, row_id)
                checked += 1
    assert checked == 2 * len(PHASES[entity]) ** 2


def steps(database: Database, entity: Entity, row_id: int) -> list[tuple[int, str, str]]:
    with database.read() as connection:
        rows = connection.execute(
            select(TRANSITION.c.seq, TRANSITION.c.from_phase, TRANSITION.c.to_phase)
            .where(TRANSITION.c.entity == str(entity), TRANSITION.c.entity_id == row_id)
            .order_by(TRANSITION.c.run_seq)
        )
        return [(r.seq, r.from_phase, r.to_phase) for r in rows]


def forget(database: Database, entity: Entity, row_id: int) -> None:
    """Undo the history of the last move, so that the row may be at the same version again."""
    with database.write() as unit:
        unit.connection.execute(
            TRANSITION.delete().where(
                TRANSITION.c.entity == str(entity), TRANSITION.c.entity_id == row_id, TRANSITION.c.seq == 8
            )
        )


def test_a_path_is_moved_in_one_update_with_a_history_row_for_each_step(sqlite_database: Database) -> None:
    database = sqlite_database
    project = add_project(database, "alpha")
    run_id = add_run(database, project, add_version(database, project))
    task = task_id(database, run_id)
    with database.write() as unit:
        unit.lock_run(run_id)
        assert (
            unit.move(Entity.TASK, task, run_id, 0, TaskPhase.BLOCKED, TaskPhase.READY, TaskPhase.QUEUED, reason="go")
            == 2
        )
    assert steps(database, Entity.TASK, task) == [(1, "blocked", "ready"), (2, "ready", "queued")]
    with database.write() as unit:
        unit.lock_run(run_id)
        with pytest.raises(IllegalTransition):
            unit.move(Entity.TASK, task, run_id, 2, TaskPhase.QUEUED, TaskPhase.ADMITTED, TaskPhase.SUCCEEDED)
    assert len(steps(database, Entity.TASK, task)) == 2
