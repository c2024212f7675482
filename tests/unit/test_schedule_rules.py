"""Beat rings, the database decides: which due moments become runs, and never one of them twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, update

from myapp.backends.fake.backend import FakeBackend, Script
from myapp.controllers import schedule, sweep
from myapp.controllers.schedule import MOST_AT_ONCE, ON_TIME_S, chosen, due_times, latest_due
from myapp.domain.permissions import PLATFORM
from myapp.models import Run, Schedule
from myapp.services.cancel_run import cancel_run
from myapp.services.cron import next_times
from myapp.services.save_schedule import pause_schedule
from myapp.services.submit_run import submit_run
from tests.integration.engine_harness import Clock, House, shell

HOUR, DAY = 3600.0, 86400.0
START = datetime(2025, 3, 1, tzinfo=UTC).timestamp()


def row(cron: str, due: float, catchup: str = "none") -> Any:
    return SimpleNamespace(cron=cron, timezone="UTC", next_due_at=due, catchup=catchup)


@pytest.mark.parametrize(
    ("catchup", "times", "now", "expected"),
    [
        ("none", [100.0, 200.0], 100.0, ([100.0], 200.0)),
        ("none", [100.0, 1000.0], 100.0 + ON_TIME_S, ([100.0], 1000.0)),
        ("none", [100.0, 1000.0], 101.0 + ON_TIME_S, ([], 1000.0)),
        ("latest", [100.0, 9000.0], 8000.0, ([100.0], 9000.0)),
        ("all", [100.0, 200.0, 300.0, 400.0], 350.0, ([100.0, 200.0, 300.0], 400.0)),
        ("all", [100.0, 200.0, 300.0], 350.0, ([100.0, 200.0], 300.0)),
    ],
)
def test_which_moments_become_runs(
    catchup: str, times: list[float], now: float, expected: tuple[list[float], float]
) -> None:
    assert chosen(catchup, times, now) == expected


@pytest.mark.parametrize(
    ("cron", "off", "newest"),
    [
        ("* * * * *", 60.0, 60.0),
        ("* * * * *", 30 * DAY, 30 * DAY),
        ("0 * * * *", 30 * DAY + 100, 30 * DAY),
        ("0 0 * * *", 400 * DAY + 100, 400 * DAY),
        ("0 0 1 * *", 100 * DAY, 92 * DAY),
        ("0 0 1 3 *", 800 * DAY, 730 * DAY),
        ("0 0 29 2 *", 1500 * DAY, (datetime(2028, 2, 29, tzinfo=UTC).timestamp() - START)),
    ],
)
def test_the_newest_due_moment_after_a_long_night(cron: str, off: float, newest: float) -> None:
    assert latest_due(cron, "UTC", START, START + off) == START + newest


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/5 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * 1", "0 0 1 * *"]),
    st.floats(0, 40 * DAY),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
)
def test_the_newest_is_due_and_nothing_lies_between_it_and_now(cron: str, off: float, zone: str) -> None:
    [first] = next_times(cron, zone, START, 1)
    now = first + off
    newest = latest_due(cron, zone, first, now)
    assert first <= newest <= now
    [following] = next_times(cron, zone, newest, 1)
    assert following > now
    assert next_times(cron, zone, newest - 1, 1) == [newest]


def test_all_that_is_due_comes_in_bounded_portions() -> None:
    now, due, made = START + 200 * HOUR, START, []
    for _ in range(10):
        wanted, due = chosen("all", due_times(row("0 * * * *", due, "all"), now), now)
        assert len(wanted) <= MOST_AT_ONCE
        made += wanted
        if due > now:
            break
    assert made == [START + n * HOUR for n in range(201)]
    assert due == START + 201 * HOUR


# -- on a database ----------------------------------------------------------------------------------------------------


class SteppedClock(Clock):
    def __init__(self) -> None:
        super().__init__(frozen=True)
        self._at = START - 1.0

    def set(self, moment: float) -> None:
        self._ahead = moment - (START - 1.0)


Build = Callable[..., tuple[House, int]]


@pytest.fixture
def build(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[Build]:
    made: list[House] = []

    def make(kind: str = "sqlite", **plan: Any) -> tuple[House, int]:
        clock = SteppedClock()
        house = House.build(fresh_url(kind), tmp_path / "home", backend=FakeBackend(Script(), clock), clock=clock)
        made.append(house)
        plan = {"cron": "0 * * * *", **plan}
        pipeline = house.publish(
            [{"name": "a", **shell("true", env={"AT": "{{ run.scheduled_at }}", "N": "{{ params.n }}"})}],
            schedule=plan,
            params=[{"name": "n", "type": "int", "default": 5}],
        )
        return house, pipeline

    yield make
    for house in made:
        house.close()


def end_all(house: House) -> None:
    """Do all there is to do without letting time pass."""
    house.drain()
    while sweep.live(house.engine) and len(house.bell.rung) > 1:
        house.drain()
    house.drain()


def go(house: House, moment: float, *, finish: bool = True) -> list[float]:
    """Beat rings at that moment; the due moments that became runs, in hours since the start."""
    assert isinstance(house.clock, SteppedClock)
    house.clock.set(moment)
    with house.database.read() as connection:
        last = connection.execute(select(func.coalesce(func.max(Run.id), 0))).scalar_one()
    schedule.step(house.engine)
    rows = house.rows(select(Run.id, Run.scheduled_at).where(Run.id > last).order_by(Run.id))
    if finish:
        end_all(house)
        assert {house.run(one.id).phase for one in rows} <= {"succeeded"}
    return [(r.scheduled_at - START) / HOUR for r in rows]


def test_one_run_for_each_due_moment(build: Build) -> None:
    house, _ = build(params={"n": 7})
    assert go(house, START - 1) == []
    assert go(house, START) == [0]
    assert go(house, START + 1) == []
    assert go(house, START + HOUR + 4) == [1]
    [first, second] = house.rows(select(Run).order_by(Run.id))
    assert (first.params, first.schedule_id is not None, first.idempotency_key) == (
        {"n": 7},
        True,
        f"schedule:{first.schedule_id}:2025-03-01T00:00:00.000Z",
    )
    spec = house.tasks(second.id)["a"].spec
    assert spec["job"]["env"] == {"AT": "2025-03-01T01:00:00+00:00", "N": "7"}


@pytest.mark.parametrize(
    ("catchup", "expected"),
    [("none", []), ("latest", [30 * 24]), ("all", [float(n) for n in range(MOST_AT_ONCE)])],
)
def test_the_platform_was_off_for_a_month(build: Build, catchup: str, expected: list[float]) -> None:
    house, _ = build(catchup=catchup, maxActiveRuns=1000)
    assert go(house, START + 30 * DAY + 20 * 60) == expected
    if catchup != "all":
        assert go(house, START + 30 * DAY + 20 * 60) == []
    assert go(house, START + 30 * DAY + HOUR)[-1:] == ([2 * MOST_AT_ONCE - 1.0] if catchup == "all" else [30 * 24 + 1])


def test_catching_up_on_everything_goes_on_until_it_is_done(build: Build) -> None:
    house, _ = build(catchup="all", maxActiveRuns=1000)
    now, made = START + 6 * DAY, []
    while got := go(house, now):
        made += got
    assert made == [float(n) for n in range(6 * 24 + 1)]
    assert go(house, now + HOUR) == [6 * 24 + 1]


@pytest.mark.parametrize(("catchup", "after_the_pause"), [("none", []), ("latest", [3.0]), ("all", [1.0, 2.0, 3.0])])
def test_the_limit_of_active_runs(build: Build, catchup: str, after_the_pause: list[float]) -> None:
    house, _ = build(catchup=catchup, maxActiveRuns=1)
    assert go(house, START, finish=False) == [0]
    for hour in (1, 2, 3):
        assert go(house, START + hour * HOUR, finish=False) == []
    end_all(house)
    made: list[float] = []
    for n in range(4):
        made += go(house, START + 3 * HOUR + 400 + n)
    assert made == after_the_pause
    assert go(house, START + 4 * HOUR) == [4.0]


@pytest.mark.parametrize(("catchup", "expected"), [("none", []), ("latest", [5.0]), ("all", [1.0, 2.0, 3.0, 4.0, 5.0])])
def test_pause_and_resume(build: Build, catchup: str, expected: list[float]) -> None:
    house, pipeline = build(catchup=catchup, maxActiveRuns=10)
    assert go(house, START) == [0]
    pause_schedule(house.context, PLATFORM, pipeline)
    for hour in (1, 2, 3, 4, 5):
        assert go(house, START + hour * HOUR) == []
    pause_schedule(house.context, PLATFORM, pipeline, paused=False)
    assert go(house, START + 5 * HOUR + 60) == expected
    assert go(house, START + 6 * HOUR) == [6]


def test_a_cancelled_run_makes_room(build: Build) -> None:
    house, _ = build(catchup="latest")
    go(house, START, finish=False)
    [run] = house.rows(select(Run.id))
    assert go(house, START + HOUR, finish=False) == []
    cancel_run(house.context, PLATFORM, run.id)
    end_all(house)
    assert go(house, START + HOUR) == [1]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_many_beats_at_once_make_one_run_for_each_due_moment(build: Build, kind: str, catchup: str) -> None:
    house, _ = build(kind, catchup=catchup, maxActiveRuns=1000)
    assert isinstance(house.clock, SteppedClock)
    for hour in (0, 1, 12):
        house.clock.set(START + hour * HOUR)
        gate = threading.Barrier(8)

        def beat(gate: threading.Barrier = gate) -> None:
            gate.wait()
            schedule.step(house.engine)

        threads = [threading.Thread(target=beat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    schedule.step(house.engine)
    moments = sorted((r.scheduled_at - START) / HOUR for r in house.rows(select(Run.scheduled_at)))
    assert moments == ([0, 1, 12] if catchup == "latest" else [float(n) for n in range(13)])


def test_a_schedule_that_can_make_no_run_does_not_keep_the_others(build: Build) -> None:
    house, pipeline = build()
    good = house.publish([{"name": "a", **shell("true")}], name="good", schedule={"cron": "0 * * * *"})
    with house.database.write() as unit:
        unit.connection.execute(update(Schedule).where(Schedule.pipeline_id == pipeline).values(params={"gone": 1}))
    house.clock.set(START)  # type: ignore[attr-defined]
    assert schedule.step(house.engine) == 1
    assert [r.pipeline_id for r in house.rows(select(Run.pipeline_id))] == [good]
    [due] = [r.next_due_at for r in house.rows(select(Schedule.next_due_at).where(Schedule.pipeline_id == pipeline))]
    assert due == START + HOUR


def test_a_key_that_somebody_else_took_does_not_stop_the_schedule(build: Build) -> None:
    house, pipeline = build()
    [row] = house.rows(select(Schedule.id))
    submit_run(
        house.context, PLATFORM, pipeline_id=pipeline, idempotency_key=f"schedule:{row.id}:2025-03-01T00:00:00.000Z"
    )
    house.clock.set(START)  # type: ignore[attr-defined]
    assert schedule.step(house.engine) == 0
    assert go(house, START + HOUR) == [1]


def test_a_new_version_is_what_runs_next(build: Build) -> None:
    house, pipeline = build()
    go(house, START)
    house.clock.set(START + 60)  # type: ignore[attr-defined]
    assert (
        house.publish(
            [{"name": "b", **shell("true")}],
            schedule={"cron": "0 * * * *"},
            params=[{"name": "n", "type": "int", "default": 5}],
        )
        == pipeline
    )
    assert go(house, START + HOUR) == [1]
    [_, second] = house.rows(select(Run.id).order_by(Run.id))
    assert list(house.tasks(second.id)) == ["b"]
