"""Messages are doorbells: lost, doubled or reordered, and with several engines at once, the outcome is the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from myapp.backends.fake.backend import Script
from myapp.controllers import advance, sweep, work
from myapp.controllers.engine import Engine
from myapp.domain.errors import Conflict
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import AttemptKey, Cause, LaunchSpec
from myapp.domain.runs.phases import RUN_TERMINAL
from myapp.domain.scheduling.plan import PATIENCE_S
from myapp.persistence.unit_of_work import Topic
from myapp.services.cancel_run import cancel_run
from myapp.services.retry_run import retry_run
from tests.integration.engine_harness import Clock, CollectingBell, CountingBackend, House, shell, tasks_of

# how the job of a task behaves, by the first word of its command
SCRIPTS = {
    "ok": Script(),
    "slow": Script(pending_s=3.0, run_s=40.0),
    "bad": Script(exit_code=1),
    "never": Script(run_s=None),
    "stubborn": Script(run_s=None, ignores_stop=True),
    "lost": Script(exit_code=1, cause=Cause.INTERRUPTED),
}


def play(spec: LaunchSpec, key: AttemptKey, rank: int) -> Script:
    return SCRIPTS[spec.ranks[rank].command[-1].split()[0]]


BELLS: dict[str, Callable[[], CollectingBell]] = {
    "all heard": CollectingBell,
    "all lost": lambda: CollectingBell(loses=True),
    "doubled": lambda: CollectingBell(doubles=True),
    "reordered": lambda: CollectingBell(shuffles=7),
    "doubled and reordered": lambda: CollectingBell(doubles=True, shuffles=11),
}

Tasks = dict[str, dict[str, Any]]
DIAMOND: Tasks = {
    "a": shell("ok"),
    "b": {"dependsOn": ["a"], **shell("slow")},
    "c": {"dependsOn": ["a"], **shell("ok")},
    "d": {"dependsOn": ["b", "c"], **shell("ok")},
}
# name -> tasks, options of the pipeline, the phases to come, the phase of the run
RUNS: dict[str, tuple[Tasks, dict[str, Any], dict[str, str], str]] = {
    "diamond": (DIAMOND, {}, dict.fromkeys("abcd", "succeeded"), "succeeded"),
    "parallelism": (
        {f"t{i}": shell("slow") for i in range(7)},
        {"parallelism": 2},
        {f"t{i}": "succeeded" for i in range(7)},
        "succeeded",
    ),
    "more than one batch is skipped": (
        {
            "first": shell("bad"),
            **{f"s{i}": {"dependsOn": ["first"], **shell("ok")} for i in range(230)},
            "last": {"dependsOn": [f"s{i}" for i in range(230)], "trigger": "all_done", **shell("ok")},
        },
        {},
        {"first": "failed", **{f"s{i}": "skipped" for i in range(230)}, "last": "succeeded"},
        "failed",
    ),
    "retries": ({"a": shell("bad", retry={"limit": 2, "backoff": 100})}, {}, {"a": "failed"}, "failed"),
    "infrastructure": ({"a": shell("lost")}, {}, {"a": "failed"}, "failed"),
    "task timeout": (
        {"a": shell("never", timeout=50), "b": {"dependsOn": ["a"], "trigger": "all_done", **shell("ok")}},
        {},
        {"a": "failed", "b": "succeeded"},
        "failed",
    ),
    "run timeout": (
        {"a": shell("stubborn"), "b": {"dependsOn": ["a"], **shell("ok")}},
        {"timeout": 50},
        {"a": "stopped", "b": "stopped"},
        "failed",
    ),
}


@pytest.fixture
def build(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[[CollectingBell], House]]:
    made: list[House] = []

    def make(bell: CollectingBell) -> House:
        clock = Clock(frozen=True)
        made.append(
            House.build(
                fresh_url("sqlite"), tmp_path / "home", backend=CountingBackend(play, clock), clock=clock, bell=bell
            )
        )
        return made[-1]

    yield make
    for house in made:
        house.close()


def starts(house: House, run_id: int) -> dict[str, int]:
    """How many times the command of each attempt was started, by task."""
    assert isinstance(house.backend, CountingBackend)
    found: dict[str, int] = {}
    for attempt in house.attempts(run_id):
        count = house.backend.fired[attempt.object_name]
        assert count <= 1
        found[attempt.node_key] = found.get(attempt.node_key, 0) + count
    return found


@pytest.mark.parametrize("bell", BELLS)
@pytest.mark.parametrize("name", RUNS)
def test_every_run_ends_the_same(build: Callable[[CollectingBell], House], bell: str, name: str) -> None:
    tasks, options, phases, phase = RUNS[name]
    house = build(BELLS[bell]())
    run_id = house.submit([{"name": key, **task} for key, task in tasks.items()], **options)
    run = house.end(run_id, skipping=True)
    assert run.phase == phase
    assert house.phases(run_id) == phases
    attempts = house.attempts(run_id)
    expected = {"retries": 3, "infrastructure": 4}.get(name)
    if expected is not None:
        assert len(attempts) == expected
    else:
        assert len(attempts) == sum(p not in ("skipped", "stopped") or k == "a" for k, p in phases.items())
    house.check()


@pytest.mark.parametrize("bell", BELLS)
@pytest.mark.parametrize("command", ["never", "stubborn", "slow"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_cancelled_run_stops(build: Callable[[CollectingBell], House], bell: str, command: str, after: int) -> None:
    house = build(BELLS[bell]())
    run_id = house.submit(tasks_of(a=shell(command), b={"dependsOn": ["a"], **shell("never")}))
    for _ in range(after):
        house.step()
        house.skip()
    cancel_run(house.context, PLATFORM, run_id)
    assert house.end(run_id, skipping=True).phase == "stopped"
    assert house.phases(run_id)["b"] == "stopped"
    assert [a.stop_reason for a in house.attempts(run_id) if a.phase == "stopped" and a.handle] in ([], ["cancel"])
    house.check()


def test_a_retried_run_needs_no_bell(build: Callable[[CollectingBell], House]) -> None:
    house = build(CollectingBell(loses=True))
    first = house.end(
        house.submit(tasks_of(a=shell("ok"), b=shell("bad"), c={"dependsOn": ["a", "b"], **shell("ok")})), skipping=True
    )
    second = house.end(retry_run(house.context, PLATFORM, first.id).run_id, skipping=True)
    assert second.phase == "failed"
    assert starts(house, second.id) == {"b": 1}


def test_a_stopped_run_makes_way_though_the_worker_dies_at_once(build: Callable[[CollectingBell], House]) -> None:
    """Its queued task held up another run, and nothing else will end: the doorbell of admission outlives the worker."""
    house = build(CollectingBell())
    house.capacity(cpu=4000, memory=1 << 40)
    holder = house.submit(tasks_of(a=shell("never", resources={"cpu": 1})), name="holder")
    house.step()
    first = house.submit(tasks_of(a=shell("ok", resources={"cpu": 4})), name="first")
    house.step()
    house.clock.advance(PATIENCE_S)
    second = house.submit(tasks_of(a=shell("ok", resources={"cpu": 3})), name="second")
    house.step()
    assert house.phases(first) == house.phases(second) == {"a": "queued"}
    cancel_run(house.context, PLATFORM, first)
    assert house.bell.take() == (Topic.RUN, str(first))
    advance.step(house.engine, first)  # ... and the worker dies before it admits anything
    house.bell.rung.clear()
    assert [r.phase for r in house.wait(first, second, skipping=True)] == ["stopped", "succeeded"]
    assert house.phases(holder) == {"a": "active"}


def test_a_bell_due_for_another_reason_rings_at_once() -> None:
    rung, bell = sweep.Rung(first_s=2.0, most_s=30.0), (Topic.RUN, "1")
    heard = [now for now in range(200) if rung.may(bell, 7.0, float(now))]
    assert heard == [0, 2, 6, 14, 30, 60, 90, 120, 150, 180]
    assert rung.may(bell, 8.0, 181.0)
    assert not rung.may(bell, 8.0, 182.0)
    rung.forget(1000.0)
    assert rung.may(bell, 8.0, 1000.0)


def test_a_long_job_is_still_stopped_on_time(build: Callable[[CollectingBell], House]) -> None:
    """The sweep has rung for it many times by then; its deadline must not wait for the sweep's longest pause."""
    house = build(CollectingBell(loses=True))
    run_id = house.submit(tasks_of(a=shell("never", timeout=3600)))
    house.until(lambda: [a.run_deadline_at for a in house.attempts(run_id)] not in ([], [None]), "start", skipping=True)
    [attempt] = house.attempts(run_id)
    while house.clock() < attempt.run_deadline_at + 2:
        house.clock.advance(1.0)
        house.sweep()
    [attempt] = house.attempts(run_id)
    assert attempt.stop_reason == "timeout"


# -- several engines at once ------------------------------------------------------------------------------------------


class Racing(CollectingBell):
    """One queue for several workers, each of which takes any of its bells."""

    def __init__(self, seed: int) -> None:
        super().__init__(doubles=True, shuffles=seed)
        self.lock = threading.Lock()

    def ring(self, topic: Topic, key: str) -> None:
        with self.lock:
            super().ring(topic, key)

    def take(self) -> tuple[Topic, str] | None:
        with self.lock:
            return super().take()


def race(houses: list[House], run_ids: list[int], seed: int) -> None:
    """Workers, one per house, answer the bells of all in any order, until every run has ended."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def worker(house: House, number: int) -> None:
        pick = random.Random(seed * 100 + number)
        rung = sweep.Rung(first_s=0.05, most_s=0.05)
        try:
            while not stop.is_set():
                bell = house.bell.take()
                if bell is None or pick.random() < 0.1:
                    sweep.due(house.engine, rung)
                    for attempt_id in live(house):
                        house.bell.ring(Topic.ATTEMPT, str(attempt_id))
                    stop.wait(0.002)
                if bell is not None:
                    getattr(work, str(bell[0]))(house.engine, bell[1])
        except BaseException as error:
            errors.append(error)
            stop.set()

    def live(house: House) -> list[int]:
        return [a.id for run_id in run_ids for a in house.attempts(run_id) if a.live_guard is not None]

    threads = [threading.Thread(target=worker, args=(house, n)) for n, house in enumerate(houses)]
    for thread in threads:
        thread.start()
    try:
        waited = 0.0
        while not stop.is_set() and not all(houses[0].run(i).phase in RUN_TERMINAL for i in run_ids):
            stop.wait(0.05)
            waited += 0.05
            assert waited < 60, houses[0].picture()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    if errors:
        raise errors[0]


@pytest.mark.parametrize(
    ("kind", "seed"), [("sqlite", 0), ("sqlite", 1), ("sqlite", 2), ("postgresql", 3), ("mariadb", 4)]
)
def test_engines_on_the_same_rows(fresh_url: Callable[[str], str], tmp_path: Path, kind: str, seed: int) -> None:
    url = fresh_url(kind)
    backend = CountingBackend(lambda spec, key, rank: Script(run_s=0.01, exit_code=0))
    bell = Racing(seed)
    houses = [House.build(url, tmp_path / "home", backend=backend, bell=bell, new=n == 0) for n in range(3)]
    try:
        keys = [f"t{i}" for i in range(10)]
        runs = [
            houses[0].submit(
                [
                    {"name": "first", **shell("ok")},
                    *({"name": k, "dependsOn": ["first"], **shell("ok")} for k in keys),
                    {"name": "last", "dependsOn": keys, **shell("ok")},
                ],
                name=f"run-{n}",
                parallelism=3 if n else None,
            )
            for n in range(3)
        ]
        race(houses, runs, seed)
        for run_id in runs:
            assert houses[0].run(run_id).phase == "succeeded"
            assert starts(houses[0], run_id) == dict.fromkeys(["first", *keys, "last"], 1)
            assert len(houses[0].attempts(run_id)) == 12
        houses[0].check()
    finally:
        for house in houses:
            house.database.dispose()


def test_engines_and_a_cancel_at_once(fresh_url: Callable[[str], str], tmp_path: Path) -> None:
    url = fresh_url("sqlite")
    backend = CountingBackend(lambda spec, key, rank: Script(run_s=0.005))
    bell = Racing(1)
    houses = [House.build(url, tmp_path / "home", backend=backend, bell=bell, new=n == 0) for n in range(2)]
    try:
        runs = [
            houses[0].submit(
                [{"name": f"t{i}", **({"dependsOn": [f"t{i - 1}"]} if i else {}), **shell("ok")} for i in range(30)],
                name=f"run-{n}",
            )
            for n in range(4)
        ]
        timers = [
            threading.Timer(0.02 * n, lambda run_id=run_id: cancel_quietly(houses[0], run_id))
            for n, run_id in enumerate(runs)
        ]
        for timer in timers:
            timer.start()
        race(houses, runs, 5)
        for timer in timers:
            timer.join()
        for run_id in runs:
            assert set(starts(houses[0], run_id).values()) <= {0, 1}
        houses[0].check()
    finally:
        for house in houses:
            house.database.dispose()


def cancel_quietly(house: House, run_id: int) -> None:
    try:
        cancel_run(house.context, PLATFORM, run_id)
    except Conflict:
        pass


def test_an_engine_without_the_backend_leaves_the_row_to_others(build: Callable[[CollectingBell], House]) -> None:
    house = build(CollectingBell())
    run_id = house.submit(tasks_of(a=shell("ok")))
    house.drain()
    [attempt] = house.attempts(run_id)
    bare = Engine(context=house.context, backends={})
    work.attempt(bare, str(attempt.id))
    assert house.attempts(run_id)[0].phase == attempt.phase
    assert house.end(run_id, skipping=True).phase == "succeeded"
