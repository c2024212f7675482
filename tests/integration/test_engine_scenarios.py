"""Whole runs, from submit to end, on the real local backend."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from myapp.catalog.yamldoc import load_one
from myapp.domain.errors import Conflict, Invalid
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import AttemptKey, Handle
from myapp.domain.runs.retry import RetryPolicy
from myapp.models import Metric
from myapp.persistence.run_store import TASK
from myapp.services.cancel_run import cancel_run
from myapp.services.read_runs import describe_run
from myapp.services.retry_run import retry_run
from myapp.services.submit_run import submit_run
from tests.integration.engine_harness import House, shell, tasks_of

EXAMPLES = Path(__file__).parents[2] / "myapp" / "example" / "pipeline"


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    made = House.build(fresh_url("sqlite"), tmp_path / "home")
    yield made
    made.close()


# -- order ------------------------------------------------------------------------------------------------------------


def test_a_chain_runs_in_order(house: House) -> None:
    keys = [f"t{i}" for i in range(6)]
    run = house.end(
        house.submit(
            [
                {"name": key, "dependsOn": keys[max(0, i - 1) : i], **shell(f"echo {key} >> order")}
                for i, key in enumerate(keys)
            ]
        )
    )
    assert (run.phase, run.reason) == ("succeeded", "")
    assert house.lines("order") == keys
    house.check()


def test_fan_out_and_in(house: House) -> None:
    middle = [f"m{i}" for i in range(12)]
    run = house.end(
        house.submit(
            [
                {"name": "first", **shell("echo first >> order")},
                *({"name": key, "dependsOn": ["first"], **shell(f"echo {key} >> order")} for key in middle),
                {"name": "last", "dependsOn": middle, **shell("echo last >> order")},
            ]
        )
    )
    order = house.lines("order")
    assert run.phase == "succeeded"
    assert (order[0], order[-1], sorted(order[1:-1])) == ("first", "last", sorted(middle))
    house.check()


OK, BAD = shell("true"), shell("exit 3")
SKIPPED = {**shell("true"), "skip": True}


@pytest.mark.parametrize(
    ("trigger", "upstream", "runs"),
    [
        ("all_succeeded", (OK, OK), True),
        ("all_succeeded", (OK, BAD), False),
        ("all_succeeded", (OK, SKIPPED), False),
        ("all_done", (BAD, SKIPPED), True),
        ("any_failed", (OK, BAD), True),
        ("any_failed", (OK, OK), False),
        ("any_succeeded", (OK, BAD), True),
        ("any_succeeded", (BAD, SKIPPED), False),
        ("all_failed", (BAD, BAD), True),
        ("all_failed", (BAD, OK), False),
        ("none_failed", (OK, SKIPPED), True),
        ("none_failed", (OK, BAD), False),
    ],
)
def test_trigger_rules(house: House, trigger: str, upstream: tuple[dict[str, Any], ...], runs: bool) -> None:
    keys = [f"u{i}" for i in range(len(upstream))]
    run = house.end(
        house.submit(
            [
                *({"name": key, **task} for key, task in zip(keys, upstream, strict=True)),
                {"name": "it", "dependsOn": keys, "trigger": trigger, **shell("echo it >> order")},
            ]
        )
    )
    assert house.phases(run.id)["it"] == ("succeeded" if runs else "skipped")
    assert house.lines("order") == (["it"] if runs else [])
    assert run.phase == ("failed" if BAD in upstream else "succeeded")
    if not runs:
        assert trigger in house.tasks(run.id)["it"].reason


@pytest.mark.parametrize(("condition", "runs"), [(">= 0.95", True), (">= 0.98", False), ("in [0.97, 1]", True)])
def test_conditions_on_outputs(house: House, condition: str, runs: bool) -> None:
    run = house.end(
        house.submit(
            tasks_of(
                look=shell("printf 0.97 > $CUBE_OUTPUT_DIR/values/accuracy"),
                act={
                    "dependsOn": ["look"],
                    "when": [f"{{{{ tasks.look.outputs.accuracy }}}} {condition}"],
                    **shell("true"),
                },
                after={"dependsOn": ["act"], "trigger": "none_failed", **shell("true")},
            )
        )
    )
    assert run.phase == "succeeded"
    assert house.phases(run.id) == {
        "look": "succeeded",
        "act": "succeeded" if runs else "skipped",
        "after": "succeeded",
    }
    assert (condition in house.tasks(run.id)["act"].reason) is not runs


def test_values_and_artifacts_are_passed_on(house: House) -> None:
    make = (
        "echo 41 > $CUBE_OUTPUT_DIR/values/number; echo '{\"a\": [1]}' > $CUBE_OUTPUT_DIR/values/data;"
        "echo whole text > $CUBE_OUTPUT_DIR/values/text; echo content > $CUBE_OUTPUT_DIR/artifacts/file;"
        "mkdir $CUBE_OUTPUT_DIR/artifacts/folder; echo inner > $CUBE_OUTPUT_DIR/artifacts/folder/x;"
        'echo \'{"name": "loss", "value": 0.5, "step": 2}\' > $CUBE_OUTPUT_DIR/metrics.jsonl'
    )
    use = shell(
        "cat $F $D/x > $CUBE_OUTPUT_DIR/values/read; printf '%s' \"$N|$T\" > $CUBE_OUTPUT_DIR/values/seen",
        env={
            "F": "{{ tasks.make.outputs.file }}",
            "D": "{{ tasks.make.outputs.folder }}",
            "N": "{{ tasks.make.outputs.number }}",
            "T": "{{ tasks.make.outputs.text }} {{ tasks.make.phase }}",
        },
    )
    run = house.end(house.submit(tasks_of(make=shell(make), use={"dependsOn": ["make"], **use})))
    assert run.phase == "succeeded"
    made, used = house.outputs(run.id)["make"], house.outputs(run.id)["use"]
    assert (made["number"], made["data"], made["text"]) == (41, {"a": [1]}, "whole text")
    assert used == {"read": "content\ninner", "seen": "41|whole text succeeded"}
    with house.database.read() as connection:
        assert connection.execute(select(Metric.name, Metric.value, Metric.step)).all() == [("loss", 0.5, 2)]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("an integer beyond 64 bits", "printf '%s' 123456789012345678901234567890 > $CUBE_OUTPUT_DIR/values/x"),
        ("half of a surrogate pair", "printf '%s' '\"\\ud800\"' > $CUBE_OUTPUT_DIR/values/x"),
        (
            "nested 400 deep",
            "printf '%0400d' 0 | sed 's/0/[/g' > $CUBE_OUTPUT_DIR/values/x;"
            "printf '%0400d' 0 | sed 's/0/]/g' >> $CUBE_OUTPUT_DIR/values/x",
        ),
        ("bytes", "printf '\\377\\000' > $CUBE_OUTPUT_DIR/values/x"),
        (
            "a huge step",
            'echo \'{"name": "m", "value": 1, "step": 99999999999999999999}\' > $CUBE_OUTPUT_DIR/metrics.jsonl',
        ),
        ("not a number", 'echo \'{"name": "m", "value": NaN}\' > $CUBE_OUTPUT_DIR/metrics.jsonl'),
        (
            "a moment after the last",
            'echo \'{"name": "m", "value": 1, "at": 1e300}\' > $CUBE_OUTPUT_DIR/metrics.jsonl',
        ),
        ("text for a step", 'echo \'{"name": "m", "value": 1, "step": true}\' > $CUBE_OUTPUT_DIR/metrics.jsonl'),
    ],
)
def test_nothing_a_job_leaves_behind_keeps_its_task_from_ending(house: House, name: str, written: str) -> None:
    run = house.end(house.submit(tasks_of(a=shell(written))))
    assert run.phase == "succeeded"
    json.dumps(describe_run(house.context, PLATFORM, run.id), allow_nan=False)


# -- limits -----------------------------------------------------------------------------------------------------------


def most_at_once(house: House, run_id: int, limit: int) -> int:
    most = 0
    held = select(func.count()).where(TASK.c.run_id == run_id, TASK.c.phase.in_(["queued", "admitted", "active"]))

    def ended() -> bool:
        nonlocal most
        with house.database.read() as connection:
            most = max(most, connection.execute(held).scalar_one())
        assert most <= limit
        return house.run(run_id).phase == "succeeded"

    house.until(ended)
    return most


def test_parallelism_is_kept(house: House) -> None:
    body = shell("echo + >> live; sleep 0.02; echo - >> live")
    run_id = house.submit([{"name": f"t{i}", **body} for i in range(12)], parallelism=3)
    assert most_at_once(house, run_id, 3) == 3
    live = highest = 0
    for sign in house.lines("live"):
        live += 1 if sign == "+" else -1
        highest = max(highest, live)
    assert 1 <= highest <= 3


def test_resources_are_never_given_twice(fresh_url: Callable[[str], str], tmp_path: Path) -> None:
    house = House.build(fresh_url("sqlite"), tmp_path / "home", cpu=1000)
    try:
        body = shell("echo + >> live; sleep 0.02; echo - >> live", resources={"cpu": "400m", "memory": "16Mi"})
        house.end(house.submit([{"name": f"t{i}", **body} for i in range(6)]))
        live = 0
        for sign in house.lines("live"):
            live += 1 if sign == "+" else -1
            assert live <= 2
        house.check()
    finally:
        house.close()


def test_what_can_never_fit_is_refused_or_fails_by_name(house: House) -> None:
    with pytest.raises(Invalid, match="needs 99 cpu"):
        house.submit(tasks_of(a=shell("true", resources={"cpu": 99})))
    pipeline = house.publish(
        tasks_of(
            a=shell("true", resources={"cpu": "{{ params.cores }}"}),
            b={"dependsOn": ["a"], "trigger": "any_failed", **shell("true")},
        ),
        params=[{"name": "cores", "type": "int", "default": 1}],
    )
    run = house.end(submit_run(house.context, PLATFORM, pipeline_id=pipeline, params={"cores": 99}).run_id)
    assert run.phase == "failed"
    assert house.phases(run.id) == {"a": "failed", "b": "succeeded"}
    assert "tasks.a.resources.cpu: needs 99 cpu, this machine has 4" in run.reason
    assert house.end(submit_run(house.context, PLATFORM, pipeline_id=pipeline).run_id).phase == "succeeded"


# -- failures ---------------------------------------------------------------------------------------------------------


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


# -- time -------------------------------------------------------------------------------------------------------------


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


# -- cancel -----------------------------------------------------------------------------------------------------------


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


# -- running again ----------------------------------------------------------------------------------------------------


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
                        "[ -e ready ] || exit 1; cat $F > $CUBE_OUTPUT_DIR/values/seen; echo $N >> $CUBE_OUTPUT_DIR/values/seen",
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


# -- several ranks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rendezvous", "ps-worker"])
def test_the_example_jobs_of_several_ranks(house: House, name: str) -> None:
    document = load_one((EXAMPLES / name / "job.yaml").read_text())
    run = house.end(house.job(document=document))
    [attempt] = house.attempts(run.id)
    assert run.phase == "succeeded", json.dumps(attempt.diagnosis)
    assert len(attempt.ranks) > 1
    house.check()


def test_one_dead_rank_ends_the_gang(house: House) -> None:
    run_id = house.job(
        [
            "/bin/sh",
            "-c",
            "echo $CUBE_RANK >> started; [ $CUBE_RANK = 0 ] && exec sleep 60; until [ -e go ]; do sleep 0.02; done; exit 4",
        ],
        framework="python",
        distributed={"type": "rendezvous", "workers": 2},
        resources={"cpu": "100m", "memory": "16Mi"},
    )
    house.until(lambda: sorted(house.lines("started")) == ["0", "1"], "both ranks")
    (house.workspace / "go").touch()
    run = house.end(run_id)
    [attempt] = house.attempts(run_id)
    assert (run.phase, run.reason_code, attempt.stop_reason) == ("failed", "exit_nonzero", "peer")
    assert "rank 1" in run.reason
    assert "exit code 4" in run.reason
    house.check()


def test_inline_python_of_a_job_can_import_the_runtime_library(house: House) -> None:
    script = (
        "import cube_runtime, pathlib, os; pathlib.Path(os.environ['CUBE_OUTPUT_DIR'], 'values', 'ok').write_text('1')"
    )
    run = house.end(
        house.job(
            document={
                "apiVersion": "cube-studio.io/v1alpha1",
                "kind": "AIJob",
                "metadata": {"name": "inline"},
                "spec": {"framework": "python", "script": script, "resources": {"cpu": "100m", "memory": "64Mi"}},
            }
        )
    )
    assert run.phase == "succeeded", run.reason
    assert house.outputs(run.id) == {"inline": {"ok": 1}}
    assert "cube_runtime.py" not in house.tasks(run.id)["inline"].spec["job"].get("files", {})


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
