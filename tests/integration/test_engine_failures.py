"""Backends that fail at the worst moment, and engines that die at every named crash point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from myapp.backends.fake.backend import FakeBackend, Script
from myapp.backends.fake.misbehaving import AmnesiacBackend, FlakyBackend, LyingBackend, NeverBackend, SlowBackend
from myapp.controllers import sweep, work
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import (
    AttemptKey,
    BackendError,
    Collected,
    Handle,
    IdentityConflict,
    LaunchSpec,
    Rejected,
    Transient,
)
from myapp.persistence import due_store
from myapp.persistence.run_store import ATTEMPT
from myapp.persistence.unit_of_work import Topic
from myapp.services.cancel_run import cancel_run
from tests.integration.engine_harness import (
    Clock,
    CollectingBell,
    CountingBackend,
    Died,
    House,
    dies_at,
    shell,
    tasks_of,
)

Build = Callable[..., House]
CHAIN = tasks_of(a=shell("true"), b={"dependsOn": ["a"], **shell("true")})


@pytest.fixture
def build(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[Build]:
    made: list[House] = []

    def make(backend: Callable[[Clock], FakeBackend], **options: Any) -> House:
        clock = Clock(frozen=True)
        made.append(House.build(fresh_url("sqlite"), tmp_path / "home", backend=backend(clock), clock=clock, **options))
        return made[-1]

    yield make
    for house in made:
        house.close()


def fake(house: House) -> FakeBackend:
    assert isinstance(house.backend, FakeBackend)
    return house.backend


def history(house: House) -> list[tuple[str, str]]:
    """(phase, cause) of every attempt."""
    return [(a.phase, a.cause) for a in house.rows(select(ATTEMPT.c.phase, ATTEMPT.c.cause).order_by(ATTEMPT.c.id))]


# -- timing -----------------------------------------------------------------------------------------------------------


def test_a_slow_backend_is_waited_for(build: Build) -> None:
    house = build(lambda clock: SlowBackend(pending_s=100, run_s=1000, clock=clock))
    assert house.end(house.submit(CHAIN), skipping=True).phase == "succeeded"
    assert history(house) == [("succeeded", "")] * 2


def test_a_job_that_never_ends_is_stopped_by_its_timeout_after_its_grace(build: Build) -> None:
    house = build(lambda clock: NeverBackend(clock))
    run = house.end(house.submit(tasks_of(a=shell("true", timeout=100))), skipping=True)
    [attempt] = house.attempts(run.id)
    assert (run.phase, run.reason_code) == ("failed", "timeout")
    assert attempt.finished_at - attempt.released_at >= 100 + house.tasks(run.id)["a"].spec["grace"]
    house.check()


@pytest.mark.parametrize("seed", range(4))
def test_trouble_in_every_verb_is_got_over(build: Build, seed: int) -> None:
    house = build(lambda clock: FlakyBackend(rate=0.5, seed=seed))
    run = house.end(house.submit(CHAIN), skipping=True)
    assert run.phase == "succeeded"
    assert history(house) == [("succeeded", "")] * 2
    house.check(ignore=("I5",))


def test_unknown_ends_nothing_however_long(build: Build) -> None:
    house = build(lambda clock: LyingBackend(storm=200))
    run = house.end(house.submit(CHAIN), skipping=True)
    assert run.phase == "succeeded"
    assert history(house) == [("succeeded", "")] * 2


def test_an_object_that_vanished_is_lost_after_two_looks(build: Build) -> None:
    house = build(lambda clock: AmnesiacBackend(clock=clock))
    run_id = house.submit(tasks_of(a=shell("true", retry={"limit": 7})))
    house.drain()
    [attempt] = house.attempts(run_id)
    house.answer((Topic.ATTEMPT, str(attempt.id)))
    [attempt] = house.attempts(run_id)
    assert (attempt.phase, attempt.absent_since) == ("released", house.clock())
    house.answer((Topic.ATTEMPT, str(attempt.id)))
    assert house.attempts(run_id)[0].phase == "released"
    house.clock.advance(2.1)
    house.answer((Topic.ATTEMPT, str(attempt.id)))
    assert house.attempts(run_id)[0].phase == "lost"
    run = house.end(run_id, skipping=True)
    task = house.tasks(run_id)["a"]
    assert (run.phase, run.reason_code) == ("failed", "lost")
    assert (task.attempts, task.infra_failures, task.user_failures) == (4, 4, 0)
    house.check()


def test_an_absence_that_was_an_error_of_sight_is_forgotten(build: Build) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=10), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.drain()
    [attempt] = house.attempts(run_id)
    hidden = fake(house)._objects.pop(attempt.object_name)
    house.answer((Topic.ATTEMPT, str(attempt.id)))
    assert house.attempts(run_id)[0].absent_since is not None
    fake(house)._objects[attempt.object_name] = hidden
    house.clock.advance(60)
    house.answer((Topic.ATTEMPT, str(attempt.id)))
    assert house.end(run_id, skipping=True).phase == "succeeded"
    assert history(house) == [("succeeded", "")]


# -- launching --------------------------------------------------------------------------------------------------------


def test_a_launch_that_fails_for_now_is_tried_again_when_the_backend_says(build: Build) -> None:
    house = build(lambda clock: FakeBackend(clock=clock))
    fake(house).fail("arm", Transient("busy", retry_after=40), Transient("busy", retry_after=40))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.drain()
    [attempt] = house.attempts(run_id)
    assert (attempt.phase, attempt.message, attempt.next_check_at) == ("planned", "busy", house.clock() + 40)
    began = house.clock()
    run = house.end(run_id, skipping=True)
    assert run.phase == "succeeded"
    assert house.clock() - began >= 80
    assert history(house) == [("succeeded", "")]


@pytest.mark.parametrize("verb", ["arm", "addresses"])
def test_a_refused_job_fails_with_the_remedy(build: Build, verb: str) -> None:
    house = build(lambda clock: FakeBackend(clock=clock))
    fake(house).fail(verb, Rejected("no such queue", resolution="Use another queue."))
    tasks = tasks_of(
        a=shell("true", retry={"limit": 5}), b={"dependsOn": ["a"], "trigger": "any_failed", **shell("true")}
    )
    if verb == "addresses":
        tasks[0]["distributed"] = {"type": "rendezvous", "workers": 2}
        tasks[0]["job"]["framework"] = "python"
    run = house.end(house.submit(tasks), skipping=True)
    assert (run.phase, run.reason_code) == ("failed", "rejected")
    assert "no such queue" in run.reason
    assert "Use another queue" in run.reason
    assert [(a.node_key, a.phase, a.handle is None) for a in house.attempts(run.id)] == [
        ("a", "failed", True),
        ("b", "succeeded", False),
    ]
    house.check()


@pytest.mark.parametrize("error", [IdentityConflict("the name is taken"), BackendError("broken")])
def test_a_launch_that_the_backend_spoils_costs_the_infrastructures_budget(build: Build, error: BackendError) -> None:
    house = build(lambda clock: FakeBackend(clock=clock))
    fake(house).fail("arm", error)
    run = house.end(house.submit(tasks_of(a=shell("true"))), skipping=True)
    assert run.phase == "succeeded"
    assert history(house) == [("failed", "backend"), ("succeeded", "")]
    assert house.tasks(run.id)["a"].user_failures == 0


def test_a_release_that_fails_is_not_hammered(build: Build) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=1.0), clock))
    fake(house).fail("fire", *[Transient("away")] * 3)
    run_id = house.submit(tasks_of(a=shell("true")))
    house.drain()
    assert [verb for verb, _ in fake(house).calls].count("fire") == 1
    assert [a.next_check_at for a in house.attempts(run_id)] == [house.clock() + 2.0]
    assert house.end(run_id, skipping=True).phase == "succeeded"
    assert [verb for verb, _ in fake(house).calls].count("fire") == 4


@pytest.mark.parametrize("verb", ["fire", "stop", "collect", "observe", "reap"])
def test_a_verb_that_fails_once_is_tried_again_soon(build: Build, verb: str) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=None if verb == "stop" else 1.0), clock))
    fake(house).fail(verb, Transient("away"))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.step()
    if verb == "stop":
        cancel_run(house.context, PLATFORM, run_id)
    began = house.clock()
    run = house.end(run_id, skipping=True)
    assert run.phase == ("stopped" if verb == "stop" else "succeeded")
    assert house.clock() - began <= 45
    if verb == "stop":
        assert house.clock() - began <= 10
    while (due := house.next_due()) is not None:
        house.clock.advance(max(0.0, due - house.clock()) + 0.01)
        house.sweep()
    assert list(fake(house).list_owned()) == []


def test_what_cannot_be_deleted_does_not_stand_before_what_can(build: Build) -> None:
    house = build(lambda clock: FakeBackend(clock=clock))
    runs = [house.submit(CHAIN, name=f"run-{n}") for n in range(3)]
    house.wait(*runs, skipping=True)
    left = len(list(fake(house).list_owned()))
    assert left > 0
    house.clock.advance(20)
    fake(house).fail("reap", *[BackendError("stuck")] * left)
    assert sweep.reap(house.engine) == left
    assert len(list(fake(house).list_owned())) == left
    assert sweep.reap(house.engine) == 0
    with house.database.read() as connection:
        assert due_store.due_attempts(connection, house.clock(), 500) == {}
    house.clock.advance(61)
    assert sweep.reap(house.engine) == left
    assert list(fake(house).list_owned()) == []


def test_a_store_that_is_full_delays_the_end_and_loses_nothing(build: Build) -> None:
    class Full(FakeBackend):
        left = 3

        def collect(self, key: AttemptKey, handle: Handle) -> Collected:
            if self.left:
                self.left -= 1
                raise OSError(28, "No space left on device")
            return super().collect(key, handle)

    house = build(lambda clock: Full(Script(collected=Collected(values={"x": 1})), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.until(lambda: [a.phase for a in house.attempts(run_id)] == ["finalizing"], skipping=True)
    assert "No space left" in house.attempts(run_id)[0].message
    assert house.end(run_id, skipping=True).phase == "succeeded"
    assert house.outputs(run_id) == {"a": {"x": 1}}
    assert history(house) == [("succeeded", "")]


def test_results_that_cannot_be_read_do_not_keep_a_run_open(build: Build) -> None:
    class Unreadable(FakeBackend):
        def collect(self, key: AttemptKey, handle: Handle) -> Collected:
            raise RecursionError("maximum depth exceeded")

    house = build(lambda clock: Unreadable(Script(), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    assert house.end(run_id, skipping=True).phase == "succeeded"
    assert "could not be kept: RecursionError" in house.tasks(run_id)["a"].reason
    assert house.outputs(run_id) == {}


# -- crash points -----------------------------------------------------------------------------------------------------

POINTS = ("admitted", "created", "released", "fired", "finalizing", "sealed", "closed")


def until_end(house: House, run_id: int, crash: Callable[[str], None]) -> int:
    """Work; when the engine dies, a new one goes on with what the database and the backend know. How often it died."""
    house.reborn(crash)
    deaths = 0
    while True:
        try:
            house.end(run_id, skipping=True)
            return deaths
        except Died:
            deaths += 1
            house.bell.rung.clear()  # what it had taken, and what was ringing, is gone with it
            house.reborn(crash)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("lost", [False, True], ids=["bells heard", "bells lost"])
def test_death_at_each_point(build: Build, point: str, times: int, lost: bool) -> None:
    house = build(
        lambda clock: CountingBackend(Script(run_s=1.0, collected=Collected(values={"x": 1})), clock),
        bell=CollectingBell(loses=lost),
    )
    run_id = house.submit(
        tasks_of(
            a=shell("true"),
            b={"dependsOn": ["a"], **shell("true", env={"X": "{{ tasks.a.outputs.x }}"})},
            c={"dependsOn": ["a"], **shell("true")},
            d={"dependsOn": ["b", "c"], **shell("true")},
        )
    )
    assert until_end(house, run_id, dies_at(point, times)) == times
    assert house.run(run_id).phase == "succeeded"
    assert [(a.node_key, a.phase, a.attempt_no) for a in sorted(house.attempts(run_id), key=lambda a: a.node_key)] == [
        (key, "succeeded", 1) for key in "abcd"
    ]
    assert sorted(house.backend.fired.values()) == [1, 1, 1, 1]  # type: ignore[attr-defined]
    assert house.outputs(run_id) == {key: {"x": 1} for key in "abcd"}
    house.check()


class Mortal(CollectingBell):
    """The process dies right after its n-th commit, before it can ring for it or go on."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def moved(self, runs: Mapping[int, int]) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died("after a commit")


SHAPES: dict[str, list[dict[str, Any]]] = {
    "diamond": tasks_of(
        a=shell("true"),
        b={"dependsOn": ["a"], **shell("true", retry={"limit": 1, "backoff": 3})},
        c={"dependsOn": ["a"], **shell("true")},
        d={"dependsOn": ["b", "c"], **shell("true")},
    ),
    "several batches of tasks that are skipped": tasks_of(
        **{f"s{i}": {"skip": True, **shell("true")} for i in range(250)},
        last={"dependsOn": [f"s{i}" for i in range(250)], "trigger": "all_done", **shell("true")},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_death_after_every_single_commit(build: Build, shape: str) -> None:
    house = build(lambda clock: CountingBackend(Script(run_s=1.0), clock))
    deaths = 0
    for commit in range(1, 1000):
        run_id = house.submit(SHAPES[shape], name=f"run-{commit}")
        bell = Mortal(commit)
        house.bell = house.database.bell = bell
        died = until_end(house, run_id, lambda point: None)
        assert house.run(run_id).phase == "succeeded"
        assert {a.attempt_no for a in house.attempts(run_id)} == {1}
        deaths += died
        if not died:
            break
    assert deaths == commit - 1 >= 3
    assert isinstance(house.backend, CountingBackend)
    assert set(house.backend.fired.values()) == {1}
    house.check()


@pytest.mark.parametrize("command", ["stops", "stubborn"])
def test_death_after_the_stop_was_noted(build: Build, command: str) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=None, ignores_stop=command == "stubborn"), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.step()
    cancel_run(house.context, PLATFORM, run_id)
    began = house.clock()
    assert until_end(house, run_id, dies_at("stop_noted")) == 1
    assert house.run(run_id).phase == "stopped"
    assert house.clock() - began < (8 if command == "stops" else 18)
    house.check()


@pytest.mark.parametrize("point", ["admitted", "created", "released"])
def test_a_run_cancelled_while_its_worker_lies_dead_starts_nothing_more(build: Build, point: str) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=None), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.reborn(dies_at(point))
    with pytest.raises(Died):
        house.end(run_id, skipping=True)
    house.bell.rung.clear()
    cancel_run(house.context, PLATFORM, run_id)
    house.reborn()
    assert house.end(run_id, skipping=True).phase == "stopped"
    [attempt] = house.attempts(run_id)
    assert fake(house).starts(attempt.object_name) == 0
    house.check(ignore=("I5",))
    house.clock.advance(3600)
    house.sweep()
    sweep.orphans(house.engine, "fake")
    assert list(fake(house).list_owned()) == []


def test_a_late_twin_is_swept_and_never_fired(build: Build) -> None:
    """A stalled worker creates the object again after its attempt has ended and was reaped."""
    house = build(lambda clock: FakeBackend(clock=clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    kept: list[tuple[LaunchSpec, AttemptKey]] = []
    arm = fake(house).arm
    fake(house).arm = lambda spec, key: kept.append((spec, key)) or arm(spec, key)  # type: ignore[method-assign,func-returns-value]
    house.end(run_id, skipping=True)
    house.clock.advance(60)
    house.sweep()
    assert list(fake(house).list_owned()) == []
    arm(*kept[0])
    assert sweep.orphans(house.engine, "fake") == []  # young: its record may be on its way
    house.clock.advance(100)
    assert sweep.orphans(house.engine, "fake") == [kept[0][1].object_name]
    assert fake(house).starts(kept[0][1].object_name) == 0


def test_a_worker_that_comes_up_looks_at_everything_alive(build: Build) -> None:
    house = build(lambda clock: FakeBackend(Script(run_s=1.0), clock))
    run_id = house.submit(tasks_of(a=shell("true")))
    house.reborn(dies_at("admitted"))
    with pytest.raises(Died):
        house.drain()
    house.bell.rung.clear()
    house.reborn()
    work.started(house.engine)  # a planned attempt, and nobody rang
    house.drain()
    assert house.attempts(run_id)[0].phase == "released"
