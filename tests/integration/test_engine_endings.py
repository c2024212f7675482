"""How runs end, and run again, on the real local backend: failures, timeouts, cancels, retries."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from myapp.domain.errors import Conflict, Invalid
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import AttemptKey, Handle
from myapp.domain.runs.retry import RetryPolicy
from myapp.models import Metric
from myapp.services.cancel_run import cancel_run
from myapp.services.retry_run import retry_run
from myapp.services.submit_run import submit_run
from tests.integration.engine_harness import House, shell, tasks_of

EXAMPLES = Path(__file__).parents[2] / "myapp" / "example" / "pipeline"


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    made = House.build(fresh_url("sqlite"), tmp_path / "home")
    yield made
    made.close()


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_spec_that_cannot_be_rendered_fails_its_task_by_field(house: House) -> None:
    run = house.end(
        house.submit(
            tasks_of(
                a=shell("true"),
                b={"dependsOn": ["a"], **shell("true", env={"X": "{{ tasks.a.outputs.missing }}"})},
                c={"dependsOn": ["b"], "trigger": "any_failed", **shell("true")},
            )
        )
    )
    assert house.phases(run.id) == {"a": "succeeded", "b": "failed", "c": "succeeded"}
    assert "tasks.b.env.X" in run.reason
    assert "missing" in run.reason
    assert run.reason_code == "invalid_spec"


@pytest.mark.parametrize(
    ("task", "words", "code"),
    [
        (shell("echo oh; exit 3"), "ended with exit code 3", "exit_nonzero"),
        (shell("kill -9 $$"), "killed by signal 9", "signal"),
        (
            {"job": {"framework": "shell", "command": ["/no/such"]}, "resources": {"cpu": "100m"}},
            "/no/such",
            "command_not_found",
        ),
    ],
)
def test_a_failure_says_its_cause_and_the_remedy(house: House, task: dict[str, Any], words: str, code: str) -> None:
    run = house.end(house.submit(tasks_of(a=task)))
    assert (run.phase, run.reason_code) == ("failed", code)
    assert words in run.reason
    [attempt] = house.attempts(run.id)
    assert attempt.diagnosis["resolution"]
    assert attempt.diagnosis["resolution"].rstrip(".") in house.tasks(run.id)["a"].reason


def test_a_missing_python_module_is_named_in_the_remedy(house: House) -> None:
    task = shell("echo \"ModuleNotFoundError: No module named 'pandas'\" >&2; exit 1")
    run = house.end(house.submit(tasks_of(a=task)))
    assert run.reason_code == "exit_nonzero"
    assert "add 'pandas' to environment.requirements" in run.reason
    [attempt] = house.attempts(run.id)
    assert "pandas" in attempt.diagnosis["resolution"]


def test_an_allowed_failure_does_not_fail_the_run(house: House) -> None:
    run = house.end(house.submit(tasks_of(a=shell("exit 1", allowFailure=True), b=shell("true"))))
    assert run.phase == "succeeded"
    assert house.phases(run.id)["a"] == "failed"


def test_retries_wait_longer_each_time_and_are_counted(house: House) -> None:
    count = "echo x >> tries; [ $(wc -l < tries) -ge 4 ]"
    run = house.end(
        house.submit(
            tasks_of(
                a=shell(count, retry={"limit": 3, "backoff": 0.02, "maxBackoff": 0.05}),
            )
        )
    )
    task = house.tasks(run.id)["a"]
    assert (run.phase, task.attempts, task.user_failures, task.infra_failures) == ("succeeded", 4, 3, 0)
    attempts = house.attempts(run.id)
    assert [a.phase for a in attempts] == ["failed"] * 3 + ["succeeded"]
    for before, after, wait in zip(attempts, attempts[1:], (0.02, 0.04, 0.05), strict=False):
        assert after.created_at - before.finished_at >= wait
    house.check()


def test_the_budget_of_retries_ends(house: House) -> None:
    run = house.end(house.submit(tasks_of(a=shell("echo x >> tries; exit 1", retry={"limit": 2, "backoff": 0.01}))))
    assert run.phase == "failed"
    assert len(house.lines("tries")) == 3


def shim_of(house: House, run_id: int) -> int:
    """The pid of the shim of the one live attempt, once its command has started."""
    house.until(lambda: house.lines("started"), "start of the job")
    live = [a for a in house.attempts(run_id) if a.live_guard is not None]
    return int(live[0].handle["data"]["ranks"][0]["pid"])


def test_a_killed_shim_costs_the_infrastructures_budget_only(house: House) -> None:
    run_id = house.submit(tasks_of(a=shell("echo x >> started; [ $(wc -l < started) -gt 1 ] || exec sleep 60")))
    pid = shim_of(house, run_id)
    os.kill(pid, signal.SIGKILL)
    run = house.until(
        lambda: house.run(run_id) if house.run(run_id).phase == "succeeded" else house.clock.advance(0.2),
        "second attempt",
    )
    task = house.tasks(run_id)["a"]
    assert (run.phase, task.attempts, task.user_failures, task.infra_failures) == ("succeeded", 2, 0, 1)
    assert [a.phase for a in house.attempts(run_id)] == ["lost", "succeeded"]
    house.check()


def test_infrastructure_retries_are_configured_apart(fresh_url: Callable[[str], str], tmp_path: Path) -> None:
    house = House.build(fresh_url("sqlite"), tmp_path / "home", retries=RetryPolicy(infra_limit=0))
    try:
        run_id = house.submit(
            tasks_of(a=shell("echo x >> started; exec sleep 60", retry={"limit": 5, "backoff": 0.01}))
        )
        os.kill(shim_of(house, run_id), signal.SIGKILL)
        run = house.until(
            lambda: house.run(run_id) if house.run(run_id).phase == "failed" else house.clock.advance(0.2), "end"
        )
        assert run.reason_code == "lost"
        assert house.tasks(run_id)["a"].attempts == 1
    finally:
        house.close()


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_timeout_of_a_task(house: House) -> None:
    run_id = house.submit(
        tasks_of(
            a=shell("echo x >> started; exec sleep 60", timeout=30),
            b={"dependsOn": ["a"], "trigger": "any_failed", **shell("true")},
        )
    )
    shim_of(house, run_id)
    house.clock.advance(31)
    run = house.end(run_id)
    assert (run.phase, run.reason_code) == ("failed", "timeout")
    assert house.phases(run_id) == {"a": "failed", "b": "succeeded"}
    assert "timeout" in house.tasks(run_id)["a"].reason


def test_the_timeout_of_a_run(house: House) -> None:
    run_id = house.submit(
        tasks_of(
            a=shell("echo x >> started; exec sleep 60"),
            b={"dependsOn": ["a"], "trigger": "all_done", **shell("echo b >> ran")},
            c=shell("true"),
        ),
        timeout=30,
    )
    shim_of(house, run_id)
    house.until(lambda: house.phases(run_id)["c"] == "succeeded")
    house.clock.advance(31)
    run = house.end(run_id)
    assert (run.phase, run.reason_code, run.reason) == ("failed", "timeout", "the run's timeout passed")
    assert house.phases(run_id) == {"a": "stopped", "b": "stopped", "c": "succeeded"}
    assert house.tasks(run_id)["a"].reason == "the run's timeout passed"
    assert house.lines("ran") == []
    house.check()


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_cancel_before_anything_happened(house: House) -> None:
    run_id = house.submit(tasks_of(a=shell("echo x >> ran"), b={"dependsOn": ["a"], **shell("true")}))
    cancel_run(house.context, PLATFORM, run_id, reason="not needed")
    cancel_run(house.context, PLATFORM, run_id)
    run = house.end(run_id)
    assert (run.phase, run.reason, run.reason_code, run.started_at) == ("stopped", "not needed", "cancelled", None)
    assert set(house.phases(run_id).values()) == {"stopped"}
    assert house.lines("ran") == []
    with pytest.raises(Conflict, match="already stopped"):
        cancel_run(house.context, PLATFORM, run_id)


def test_cancel_reaches_tasks_in_every_phase(fresh_url: Callable[[str], str], tmp_path: Path) -> None:
    house = House.build(fresh_url("sqlite"), tmp_path / "home", cpu=1000)
    try:
        small = {"cpu": "500m", "memory": "16Mi"}
        run_id = house.submit(
            tasks_of(
                running=shell("trap '' TERM; echo x >> started; while :; do sleep 0.05; done", resources=small),
                backoff=shell("exit 1", retry={"limit": 1, "backoff": "1h"}, resources=small),
                queued=shell("true", resources={"cpu": 1, "memory": "16Mi"}),
                blocked={"dependsOn": ["running"], **shell("true")},
                done=shell("true", resources={"cpu": "100m", "memory": "16Mi"}),
            )
        )
        shim_of(house, run_id)
        wanted = {
            "running": "active",
            "backoff": "ready",
            "queued": "queued",
            "blocked": "blocked",
            "done": "succeeded",
        }
        house.until(lambda: house.phases(run_id) == wanted, "one task in each phase")
        cancel_run(house.context, PLATFORM, run_id)
        house.until(lambda: any(a.stop_asked_at for a in house.attempts(run_id)), "stop asked")
        [attempt] = [a for a in house.attempts(run_id) if a.live_guard is not None]
        assert attempt.stop_reason == "cancel"
        key, handle = AttemptKey("public", attempt.id, attempt.object_name), Handle(**attempt.handle)
        house.backend.stop(key, handle, 0)  # as if the grace were over
        run = house.end(run_id)
        assert run.phase == "stopped"
        assert house.phases(run_id) == {
            "running": "stopped",
            "backoff": "stopped",
            "queued": "stopped",
            "blocked": "stopped",
            "done": "succeeded",
        }
        assert {t.reason for k, t in house.tasks(run_id).items() if k != "done"} == {"cancelled by platform"}
        house.check()
    finally:
        house.close()


def test_a_job_that_ends_well_while_it_is_cancelled_counts(house: House) -> None:
    run_id = house.submit(
        tasks_of(
            a=shell("trap 'exit 0' TERM; echo x >> started; while :; do sleep 0.02; done"),
            b={"dependsOn": ["a"], **shell("true")},
        )
    )
    shim_of(house, run_id)
    cancel_run(house.context, PLATFORM, run_id)
    run = house.end(run_id)
    assert run.phase == "stopped"
    assert house.phases(run_id)["b"] == "stopped"
    assert house.phases(run_id)["a"] in ("stopped", "succeeded")
    house.check()


@pytest.mark.parametrize("steps", range(8))
def test_cancel_at_any_moment(house: House, steps: int) -> None:
    """After so many bells have been answered: no later step may bring anything to life again."""
    run_id = house.submit(tasks_of(a=shell("true"), b={"dependsOn": ["a"], **shell("echo x >> late; sleep 60")}))
    for _ in range(steps):
        if (bell := house.bell.take()) is not None:
            house.answer(bell)
        else:
            house.step(0.005)
    if house.run(run_id).phase in ("queued", "running"):
        cancel_run(house.context, PLATFORM, run_id)
    run = house.end(run_id)
    assert run.phase == "stopped"
    assert set(house.phases(run_id).values()) <= {"stopped", "succeeded"}
    house.check()


# -- running again -----------------------------------------------------------------------------------------------------


def test_retry_of_what_failed_takes_over_the_rest(house: House) -> None:
    make = (
        "echo x >> makes; echo 7 > $CUBE_OUTPUT_DIR/values/n; echo content > $CUBE_OUTPUT_DIR/artifacts/f;"
        'echo \'{"name": "m", "value": 1}\' > $CUBE_OUTPUT_DIR/metrics.jsonl'
    )
    run = house.end(
        house.submit(
            tasks_of(
                make=shell(make),
                use={
                    "dependsOn": ["make"],
                    **shell(
                        "[ -e ready ] || exit 1; (cat $F; echo $N) > $CUBE_OUTPUT_DIR/values/seen",
                        env={"F": "{{ tasks.make.outputs.f }}", "N": "{{ tasks.make.outputs.n }}"},
                    ),
                },
                tidy={"dependsOn": ["use"], "trigger": "all_done", **shell("echo x >> tidied")},
                tell={"dependsOn": ["use"], "trigger": "any_failed", **shell("echo x >> told")},
                after={"dependsOn": ["use"], **shell("true")},
            )
        )
    )
    assert run.phase == "failed"
    assert house.phases(run.id) == {
        "make": "succeeded",
        "use": "failed",
        "tidy": "succeeded",
        "tell": "succeeded",
        "after": "skipped",
    }
    (house.workspace / "ready").touch()
    second = house.end(retry_run(house.context, PLATFORM, run.id).run_id)
    assert (second.phase, second.retry_of) == ("succeeded", run.id)
    assert house.phases(second.id) == {
        "make": "succeeded",
        "use": "succeeded",
        "tidy": "succeeded",
        "tell": "skipped",
        "after": "succeeded",
    }
    assert house.lines("makes") == ["x"]
    assert (house.lines("tidied"), house.lines("told")) == (["x", "x"], ["x"])
    assert house.outputs(second.id)["use"]["seen"] == "content\n7"
    assert house.outputs(second.id)["make"] == house.outputs(run.id)["make"]
    assert house.tasks(second.id)["make"].carried_from == house.tasks(run.id)["make"].id
    with house.database.read() as connection:
        assert connection.execute(select(Metric.value).where(Metric.run_id == second.id)).scalars().all() == [1.0]
    with pytest.raises(Conflict, match="no task has failed"):
        retry_run(house.context, PLATFORM, second.id)
    house.check()


def test_retry_of_everything_with_other_parameters(house: House) -> None:
    pipeline = house.publish(
        tasks_of(a=shell("printf $X > $CUBE_OUTPUT_DIR/values/x; exit $X", env={"X": "{{ params.x }}"})),
        params=[{"name": "x", "type": "int", "default": 1}],
    )
    first = house.end(submit_run(house.context, PLATFORM, pipeline_id=pipeline).run_id)
    assert first.phase == "failed"
    with pytest.raises(Invalid, match="params"):
        retry_run(house.context, PLATFORM, first.id, mode="failed", params={"x": 0})
    with pytest.raises(Invalid):
        retry_run(house.context, PLATFORM, first.id, mode="all", params={"y": 0})
    second = house.end(retry_run(house.context, PLATFORM, first.id, mode="all", params={"x": 0}).run_id)
    assert (second.phase, second.params) == ("succeeded", {"x": 0})
    assert house.outputs(second.id) == {"a": {"x": 0}}


def test_a_run_that_has_not_ended_cannot_be_retried(house: House) -> None:
    run_id = house.submit(tasks_of(a=shell("true")))
    with pytest.raises(Conflict, match="still queued"):
        retry_run(house.context, PLATFORM, run_id)


def test_runs_of_one_pipeline_do_not_disturb_each_other(house: House) -> None:
    pipeline = house.publish(
        tasks_of(
            a=shell("printf $X > $CUBE_OUTPUT_DIR/values/x", env={"X": "{{ params.x }}"}),
            b={
                "dependsOn": ["a"],
                **shell("printf $X > $CUBE_OUTPUT_DIR/values/x; [ $X != 2 ]", env={"X": "{{ tasks.a.outputs.x }}"}),
            },
        ),
        params=[{"name": "x", "type": "int", "required": True}],
    )
    runs = [submit_run(house.context, PLATFORM, pipeline_id=pipeline, params={"x": i}).run_id for i in range(5)]
    ended = house.wait(*runs)
    assert [r.phase for r in ended] == ["succeeded", "succeeded", "failed", "succeeded", "succeeded"]
    for i, run in enumerate(ended):
        assert house.outputs(run.id)["a"] == {"x": i}
        assert house.outputs(run.id).get("b", {"x": i}) == {"x": i}
    house.check()
