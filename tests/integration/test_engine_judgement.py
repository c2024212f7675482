"""What a task is told when it is judged: what its condition compared, and what its rendered job may not ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from myapp.domain.permissions import PLATFORM
from myapp.services.read_runs import describe_run
from tests.integration.engine_harness import House, shell, tasks_of


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    made = House.build(fresh_url("sqlite"), tmp_path / "home")
    yield made
    made.close()


def reason_of(house: House, run_id: int, key: str) -> str:
    tasks = describe_run(house.context, PLATFORM, run_id)["tasks"]
    return str(next(task["reason"] for task in tasks if task["key"] == key))


def test_a_skip_tells_what_was_compared(house: House) -> None:
    measure = shell('mkdir -p "$CUBE_OUTPUT_DIR/values"; echo 0.8889 > "$CUBE_OUTPUT_DIR/values/accuracy"')
    told = {
        "dependsOn": ["measure"],
        "when": ["{{ tasks.measure.outputs.accuracy }} >= 0.99", "{{ tasks.measure.phase }} == succeeded"],
        **shell("true"),
    }
    run = house.end(house.submit(tasks_of(measure=measure, tell=told)))
    assert (run.phase, house.phases(run.id)["tell"]) == ("succeeded", "skipped")
    expected = "its condition did not hold: {{ tasks.measure.outputs.accuracy }} >= 0.99 (0.8889 >= 0.99)"
    assert reason_of(house, run.id, "tell") == expected


def test_a_skip_names_the_tasks_that_kept_it_from_running(house: House) -> None:
    after = {"dependsOn": ["good", "bad"], **shell("true")}
    run = house.end(house.submit(tasks_of(good=shell("true"), bad=shell("exit 1"), after=after)))
    assert house.phases(run.id)["after"] == "skipped"
    assert reason_of(house, run.id, "after") == "because bad failed (trigger all_succeeded)"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"environment": {"interpreter": "{{ run.name }}"}}, "there is no interpreter"),
        ({"volumes": [{"type": "{{ tasks.first.outputs.kind }}"}]}, "needs a Kubernetes cluster"),
    ],
)
def test_what_only_rendering_reveals_fails_the_task(house: House, job: dict[str, Any], words: str) -> None:
    first = shell('mkdir -p "$CUBE_OUTPUT_DIR/values"; echo \'"pvc"\' > "$CUBE_OUTPUT_DIR/values/kind"')
    run = house.end(house.submit(tasks_of(first=first, last={"dependsOn": ["first"], **shell("true", job=job)})))
    assert house.phases(run.id) == {"first": "succeeded", "last": "failed"}
    assert (words in run.reason, run.reason_code) == (True, "invalid_spec")
