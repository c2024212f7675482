"""Whole runs, from submit to end, on the real local backend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from myapp.catalog.yamldoc import load_one
from myapp.domain.errors import Invalid
from myapp.domain.permissions import PLATFORM
from myapp.models import Metric
from myapp.persistence.run_store import TASK
from myapp.services.read_runs import describe_run
from myapp.services.submit_run import submit_run
from tests.integration.engine_harness import House, shell, tasks_of

EXAMPLES = Path(__file__).parents[2] / "myapp" / "example" / "pipeline"


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    made = House.build(fresh_url("sqlite"), tmp_path / "home")
    yield made
    made.close()


# -- order -------------------------------------------------------------------------------------------------------------


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


# -- limits ------------------------------------------------------------------------------------------------------------


def most_at_once(house: House, run_id: int, limit: int) -> int:
    most = 0
    held = select(func.count()).where(TASK.c.run_id == run_id, TASK.c.phase.in_(["queued", "admitted", "active"]))

    def ended() -> bool:
        nonlocal most
        with house.database.read() as connection:
            most = max(most, connection.execute(held).scalar_one())
        assert most <= limit
        return house.ended(run_id)

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


# -- several ranks -----------------------------------------------------------------------------------------------------


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
            "echo $CUBE_RANK >> started; [ $CUBE_RANK = 0 ] && exec sleep 60;"
            "until [ -e go ]; do sleep 0.02; done; exit 4",
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
