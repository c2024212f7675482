"""SIGKILL of the worker exactly between two of its steps: at each named point, at its first and at a later passage."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.crash.harness import Parts, all_succeeded, keys, parts, pipeline, task, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600), pytest.mark.xdist_group("crash-points")]

POINTS = ("admitted", "created", "released", "fired", "finalizing", "sealed", "closed")
LATER = 4
TEN = [
    task("load"),
    *(task(f"train-{i}", "load", seconds=0.2) for i in range(5)),
    task("evaluate", *(f"train-{i}" for i in range(5))),
    task("report", "evaluate"),
    task("publish", "evaluate"),
    task("end", "report", "publish"),
]


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Everything but the worker."""
    with parts(tmp_path_factory.mktemp("points"), "web", "beat", "watch") as started:
        yield started


def die_at(cube: Parts, point: str) -> None:
    """A worker that kills itself there."""
    worker = cube.launch("worker", CUBE_CRASH_AT=point)
    assert worker.wait(timeout=90) == -signal.SIGKILL


@pytest.fixture
def rest(cube: Parts) -> Iterator[None]:
    """The worker that a test leaves running ends with it."""
    yield
    worker = cube.running["worker"]
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=60)


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("point", POINTS)
def test_a_run_of_ten_tasks_survives_the_worker_dying_at(cube: Parts, point: str) -> None:
    run_id = cube.api.start(cube.api.publish(pipeline("ten", TEN)), f"ten-{point}")
    die_at(cube, f"{point}:1")
    die_at(cube, f"{point}:{LATER}")
    assert cube.api.run(run_id)["phase"] == "running"
    cube.launch("worker")
    run = cube.api.ended(run_id)
    all_succeeded(run)
    cube.witness.exactly_once(run_id, keys(TEN))
    assert cube.doctor() == []


@pytest.mark.usefixtures("rest")
def test_a_cancelled_run_is_stopped_though_the_worker_dies_while_stopping_it(cube: Parts) -> None:
    tasks = [*(task(f"long-{i}", seconds=600) for i in range(5)), *(task(f"never-{i}", f"long-{i}") for i in range(5))]
    run_id = cube.api.start(cube.api.publish(pipeline("cancelled", tasks)), "cancelled")
    worker = cube.launch("worker", CUBE_CRASH_AT="stop_noted:1")
    until(lambda: len(cube.witness.ran(run_id)) == 5)
    cube.api.patiently("POST", f"/run/{run_id}/cancel", {"reason": "enough"})
    assert worker.wait(timeout=90) == -signal.SIGKILL
    die_at(cube, "stop_noted:2")
    die_at(cube, "closed:1")
    cube.launch("worker")
    run = cube.api.ended(run_id)
    assert (run["phase"], run["reason"]) == ("stopped", "enough")
    assert {t["phase"] for t in run["tasks"]} == {"stopped"}
    assert {len(t["attempts"]) for t in run["tasks"] if t["key"].startswith("never")} == {0}
    assert dict(cube.witness.ran(run_id)) == {f"long-{i}": 1 for i in range(5)}
    assert dict(cube.witness.finished(run_id)) == {}
    assert cube.doctor() == []


def test_afterwards_nothing_is_left(cube: Parts) -> None:
    """After all of the above: the objects go, and with the parts every process."""
    worker = cube.launch("worker")
    cube.no_objects()
    for process in cube.running.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=30) for process in cube.running.values()] == [0] * len(cube.running)
    assert worker.returncode == 0
    cube.nothing_alive()
