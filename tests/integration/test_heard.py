"""The watch rings again for what it has heard, until somebody has looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from myapp.controllers.engine import Engine
from myapp.controllers.heard import FIRST_S, FORGET_S, MOST_S, Heard
from myapp.persistence.database import Database
from myapp.persistence.unit_of_work import Topic
from tests.factories import rows
from tests.integration.engine_harness import CollectingBell, House


@pytest.fixture
def house(sqlite_database: Database, tmp_path: Path) -> House:
    return House.build(sqlite_database.url, tmp_path, bell=CollectingBell())


def started(house: House) -> tuple[int, int]:
    """A run and its released attempt."""
    project = rows.add_project(house.database, "heard")
    run_id = rows.add_run(house.database, project, rows.add_version(house.database, project))
    return run_id, rows.start_task(house.database, run_id)


def rings(heard: Heard, engine: Engine, bell: CollectingBell, times: list[float]) -> list[float]:
    """At which of these times it rang."""
    rang = []
    for now in times:
        bell.rung.clear()
        heard.again(engine, now)
        if bell.rung:
            rang.append(now)
    return rang


def test_it_rings_again_ever_more_rarely_while_nobody_answers(house: House) -> None:
    _, attempt_id = started(house)
    heard = Heard()
    heard.rung(attempt_id, 0.0)
    times = [float(t) for t in range(int(FORGET_S) + 60)]
    rang = rings(heard, house.engine, house.bell, times)
    assert rang[:4] == [FIRST_S, 3 * FIRST_S, 3 * FIRST_S + MOST_S, 3 * FIRST_S + 2 * MOST_S]
    assert FORGET_S - MOST_S <= rang[-1] <= FORGET_S + MOST_S
    house.close()


def test_it_is_silent_about_what_has_ended(house: House) -> None:
    run_id, attempt_id = started(house)
    heard = Heard()
    heard.rung(attempt_id, 0.0)
    assert heard.again(house.engine, FIRST_S) == 1
    assert house.bell.take() == (Topic.ATTEMPT, str(attempt_id))
    rows.finish_task(house.database, run_id)
    assert rings(heard, house.engine, house.bell, [100.0, 200.0]) == []
    house.close()


def test_heard_anew_it_is_rung_soon_again(house: House) -> None:
    _, attempt_id = started(house)
    heard = Heard()
    heard.rung(attempt_id, 0.0)
    rings(heard, house.engine, house.bell, [FIRST_S, 10.0, 22.0])
    heard.rung(attempt_id, 30.0)
    assert rings(heard, house.engine, house.bell, [30.0 + FIRST_S - 1, 30.0 + FIRST_S]) == [30.0 + FIRST_S]
    house.close()
