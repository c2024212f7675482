"""The shape of Pipeline documents."""

from __future__ import annotations

from typing import Any

import pytest

from myapp.catalog.yamldoc import load_documents
from myapp.domain.documents import kind_of
from myapp.domain.pipeline import MAX_TASKS, parse_pipeline

FULL = """
apiVersion: cube-studio.io/v1alpha1
kind: Pipeline
metadata: {name: digits, project: public, title: Digits, description: real scans}
spec:
  params:
    - {name: seed, type: int, default: 0, min: 0, max: 100, description: of everything}
    - {name: mode, type: choice, choices: [fast, full], default: fast}
  parallelism: 10
  timeout: 2h
  priority: normal
  schedule:
    {cron: "0 2 * * *", timezone: Europe/Berlin, catchup: latest, maxActiveRuns: 1, paused: false, params: {seed: 3}}
  defaults: {retry: {limit: 1}, timeout: 10m, resources: {cpu: 1}, env: {A: 1}}
  tasks:
    - name: load
      template: python
      args: {script: "print(1)"}
    - name: train
      title: Train
      job: {framework: pytorch, command: [python, train.py], env: {SEED: "{{ params.seed }}"}}
      dependsOn: [load]
      trigger: none_failed
      when: ["{{ params.mode }} == full"]
      retry: {limit: 2, backoff: 10s, maxBackoff: 5m}
      timeout: 10m
      resources: {cpu: "{{ params.seed }}"}
      distributed: {workers: 2}
      environment: {requirements: [numpy]}
      skip: false
      allowFailure: true
      position: {x: 10, y: -2.5}
"""


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "p"},
        "spec": {"tasks": [{"name": "a", "template": "shell", "args": {"command": "true"}}], **spec},
    }


def problems_of(doc: Any) -> list[Any]:
    parsed, problems = parse_pipeline(doc)
    assert (parsed is None) == bool(problems)
    return problems


def test_the_whole_vocabulary_is_read() -> None:
    parsed, problems = parse_pipeline(load_documents(FULL)[0].value)
    assert problems == []
    assert parsed is not None
    spec = parsed.spec
    assert (spec.parallelism, spec.timeout, spec.priority) == (10, 7200, "normal")
    assert spec.schedule is not None
    assert (spec.schedule.cron, spec.schedule.max_active_runs, spec.schedule.params) == ("0 2 * * *", 1, {"seed": 3})
    load, train = spec.tasks
    assert load.template_ref == ("python", None)
    assert train.template_ref is None
    assert (train.depends_on, train.trigger, train.timeout, train.allow_failure) == (["load"], "none_failed", 600, True)
    assert train.retry is not None
    assert (train.retry.limit, train.retry.backoff, train.retry.max_backoff) == (2, 10, 300)
    assert train.position is not None
    assert (train.position.x, train.position.y) == (10, -2.5)


def test_a_template_reference_may_pin_a_version() -> None:
    parsed, _ = parse_pipeline(document(tasks=[{"name": "a", "template": "python@3fa9c1"}]))
    assert parsed is not None
    assert parsed.spec.tasks[0].template_ref == ("python", "3fa9c1")


def task(**fields: Any) -> dict[str, Any]:
    return {"tasks": [{"name": "a", "template": "shell"}, {"name": "b", "template": "shell", **fields}]}


@pytest.mark.parametrize(
    ("spec", "code", "field", "node"),
    [
        ({"tasks": []}, "bad_length", "spec.tasks", None),
        ({"tasks": {}}, "wrong_type", "spec.tasks", None),
        ({"task": []}, "unknown_field", "spec.task", None),
        (task(dependson=["a"]), "unknown_field", "spec.tasks[1].dependson", "b"),
        (task(dependsOn="a"), "wrong_type", "spec.tasks[1].dependsOn", "b"),
        (task(dependsOn=[1]), "wrong_type", "spec.tasks[1].dependsOn[0]", "b"),
        (task(trigger="all_suceeded"), "not_allowed", "spec.tasks[1].trigger", "b"),
        (task(when="x == 1"), "wrong_type", "spec.tasks[1].when", "b"),
        (task(skip="no"), "wrong_type", "spec.tasks[1].skip", "b"),
        (task(timeout="x"), "bad_quantity", "spec.tasks[1].timeout", "b"),
        (task(position={"z": 1}), "unknown_field", "spec.tasks[1].position.z", "b"),
        (task(args=[1]), "wrong_type", "spec.tasks[1].args", "b"),
        ({"parallelism": 0}, "out_of_range", "spec.parallelism", None),
        ({"priority": "max"}, "not_allowed", "spec.priority", None),
        ({"schedule": {}}, "missing_field", "spec.schedule.cron", None),
        ({"schedule": {"cron": ""}}, "bad_length", "spec.schedule.cron", None),
        ({"schedule": {"cron": "* * * * *", "catchup": "some"}}, "not_allowed", "spec.schedule.catchup", None),
        ({"schedule": {"cron": "* * * * *", "params": {"x": 1}}}, "unknown_param", "spec.schedule.params.x", None),
        ({"params": [{"name": "x", "type": "integer"}]}, "not_allowed", "spec.params[0].type", None),
        ({"params": [{"name": "x", "type": "int", "default": "a"}]}, "wrong_type", "spec.params[0].default", None),
        ({"params": [{"name": "x"}, {"name": "x"}]}, "duplicate_name", "spec.params[1].name", None),
        ({"params": [{"type": "int"}]}, "missing_field", "spec.params[0].name", None),
        ({"defaults": {"args": {}}}, "unknown_field", "spec.defaults.args", None),
        ({"tasks": ["a"]}, "wrong_type", "spec.tasks[0]", None),
    ],
)
def test_each_mistake_names_field_and_node(spec: dict[str, Any], code: str, field: str, node: str | None) -> None:
    assert [(p.code, p.field, p.node) for p in problems_of(document(**spec))] == [(code, field, node)]


def test_the_nearest_trigger_and_field_are_named() -> None:
    found = problems_of(document(**task(trigger="all_suceeded", dependson=["a"])))
    assert {p.resolution for p in found} == {"did you mean 'all_succeeded'?", "did you mean 'dependsOn'?"}


@pytest.mark.parametrize("doc", [None, [], "x", {}, {"kind": "Pipeline"}, {"spec": 3}, {"spec": {"tasks": 3}}])
def test_wrong_shapes(doc: Any) -> None:
    assert problems_of(doc)


def test_too_many_tasks_are_refused_before_anything_else() -> None:
    found = problems_of(document(tasks=[None] * (MAX_TASKS + 1)))
    assert [p.code for p in found] == ["too_many_tasks"]


def test_many_mistakes_are_bounded() -> None:
    found = problems_of(document(tasks=[{"name": f"t{i}", "nonsense": 1} for i in range(5000)]))
    assert len(found) == 1000


@pytest.mark.parametrize(
    ("doc", "kind", "remedy"),
    [
        ({"kind": "Pipeline"}, "Pipeline", None),
        ({"kind": "Pipline"}, None, "did you mean 'Pipeline'?"),
        ({"kind": 3}, None, None),
        ([], None, None),
        ({}, None, None),
    ],
)
def test_kind_of(doc: Any, kind: str | None, remedy: str | None) -> None:
    got, problems = kind_of(doc)
    assert got == kind
    assert bool(problems) == (kind is None)
    if remedy:
        assert problems[0].resolution == remedy
