"""The stored form of a pipeline's graph."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.graph import PipelineGraph, find_template
from tests.factories.documents import SHELL, TEMPLATES, dags, document, sh


def shuffled(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], data) for key in data.draw(st.permutations(list(value)))}
    return [shuffled(item, data) for item in value] if isinstance(value, list) else value


TASKS = [
    {
        "name": "t",
        "template": "train",
        "args": {"seed": 3, "workers": 2},
        "retry": {"limit": 2, "backoff": "5s"},
        "position": {"x": 1, "y": 2},
    },
    sh(
        "b",
        "t",
        when=["{{ tasks.t.outputs.accuracy }} > 0"],
        trigger="all_done",
        resources={"cpu": 2, "memory": "1Gi"},
        env={"A": "x", "B": "y"},
        timeout="10m",
        allowFailure=True,
        title="B",
    ),
    {
        "name": "c",
        "job": {**SHELL, "resources": {"cpu": 3}, "env": {"B": "own"}, "retry": {"limit": 7}},
        "dependsOn": ["b", "t"],
        "skip": True,
    },
]
SPEC = {
    "params": [{"name": "n", "type": "int", "default": 1, "min": 0}],
    "parallelism": 3,
    "timeout": "1h",
    "priority": "high",
    "defaults": {"retry": {"limit": 1}, "timeout": "5m", "resources": {"cpu": 1, "gpu": 0}, "env": {"B": "z", "C": 1}},
}


def test_the_stored_graph_has_the_defaults_in_it() -> None:
    graph = PipelineGraph.of(document(TASKS, **SPEC), TEMPLATES)
    t, b, c = (graph.task(key) for key in "tbc")
    assert (t.template, t.template_version, t.retry.limit, t.timeout) == ("train", TEMPLATES["train"].sha256, 2, 300)
    assert (b.resources, b.env, b.retry.limit, b.timeout) == (
        {"cpu": 2, "gpu": 0, "memory": "1Gi"},
        {"A": "x", "B": "y", "C": 1},
        1,
        600,
    )
    assert (c.resources, c.env, c.retry.limit, c.skip) == ({"cpu": 3, "gpu": 0}, {"B": "own", "C": 1}, 7, True)
    assert (c.upstream, graph.roots, graph.downstream("t")) == (("b", "t"), ["t"], ["b", "c"])
    assert (graph.parallelism, graph.timeout, graph.priority) == (3, 3600, "high")
    assert t.position == {"x": 1, "y": 2}


@given(st.data())
def test_the_hash_does_not_depend_on_the_order_of_fields(data: st.DataObject) -> None:
    original = PipelineGraph.of(document(TASKS, **SPEC), TEMPLATES)
    again = PipelineGraph.of(document([shuffled(task, data) for task in TASKS], **shuffled(SPEC, data)), TEMPLATES)
    assert again.sha256() == original.sha256()


@pytest.mark.parametrize(
    "change",
    [{"skip": True}, {"args": {"seed": 4}}, {"retry": {"limit": 3}}, {"position": {"x": 9, "y": 9}}, {"name": "z"}],
)
def test_the_hash_depends_on_everything_else(change: dict[str, Any]) -> None:
    base = {"name": "t", "template": "train", "args": {"seed": 3}}
    first, second = (PipelineGraph.of(document([task]), TEMPLATES).sha256() for task in (base, {**base, **change}))
    assert first != second


@given(dags(8))
def test_the_stored_graph_reads_back(up: dict[str, list[str]]) -> None:
    graph = PipelineGraph.of(
        document([sh(key, *parents, timeout="1m") for key, parents in up.items()], **SPEC), TEMPLATES
    )
    data = json.loads(json.dumps(graph.to_json()))
    again = PipelineGraph.from_json(data)
    assert again == graph
    assert again.sha256() == graph.sha256()
    seen: set[str] = set()
    for task in again.tasks:
        assert set(task.upstream) <= seen
        seen.add(task.key)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        PipelineGraph.from_json({"format": 99, "tasks": []})


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("shell", True),
        ("shell@" + TEMPLATES["shell"].sha256[:8], True),
        ("shell@" + TEMPLATES["shell"].sha256[:3], False),
        ("shell@000000", False),
        ("gone", False),
        ("gone@123456", False),
    ],
)
def test_template_references(reference: str, found: bool) -> None:
    assert (find_template(reference, TEMPLATES) is not None) is found
