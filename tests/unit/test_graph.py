"""Pipeline graphs: order, cycles, validation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.errors import Problem
from myapp.domain.graph import CapacityView, Graph, PipelineGraph, validate_pipeline
from myapp.domain.pipeline import MAX_EDGES
from tests.factories.documents import CAPACITY, FRAMEWORKS, SHELL, TEMPLATES, dags, document, sh

FIXTURES = sorted((Path(__file__).resolve().parents[1] / "fixtures" / "graphs").glob("*.json"))


def validate(tasks: list[dict[str, Any]], capacity: CapacityView | None = CAPACITY, **spec: Any) -> list[Problem]:
    problems = validate_pipeline(document(tasks, **spec), templates=TEMPLATES, frameworks=FRAMEWORKS, capacity=capacity)
    assert all(p.message.isprintable() for p in problems)
    return problems


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_shared_fixtures(path: Path) -> None:
    """The same files are read by the editor's tests."""
    fixture = json.loads(path.read_text())
    tasks = [
        {"name": t["name"], "template": "shell", "args": {"command": "true"}, "dependsOn": t["dependsOn"]}
        for t in fixture["tasks"]
    ]
    problems = validate(tasks)
    assert [{"code": p.code, "node": p.node, "field": p.field} for p in problems] == fixture["problems"]
    graph = Graph({t["name"]: t["dependsOn"] for t in fixture["tasks"]})
    assert graph.cycles() == fixture["cycles"]
    assert graph.order() == fixture["order"]
    assert graph.roots == fixture["roots"]


def test_the_fixtures_are_there() -> None:
    assert {"chain", "diamond", "two-cycles", "self-loop", "missing-upstream"} <= {path.stem for path in FIXTURES}


@pytest.mark.parametrize(
    ("tasks", "code", "field", "node"),
    [
        ([sh("a"), sh("a")], "duplicate_task", "spec.tasks[1].name", "a"),
        ([sh("A")], "bad_name", "spec.tasks[0].name", "A"),
        ([sh("a"), sh("b", "a", "a")], "duplicate_dependency", "spec.tasks[1].dependsOn[1]", "b"),
        ([sh("load"), sh("b", "laod")], "missing_upstream", "spec.tasks[1].dependsOn[0]", "b"),
        ([sh("a", "b"), sh("b", "a")], "cycle", "spec.tasks[0].dependsOn[0]", "a"),
        ([sh("a", "a")], "cycle", "spec.tasks[0].dependsOn[0]", "a"),
        ([{"name": "a"}], "template_or_job", "spec.tasks[0]", "a"),
        ([sh("a", job=SHELL)], "template_or_job", "spec.tasks[0]", "a"),
        ([sh("a", template="shel")], "unknown_template", "spec.tasks[0].template", "a"),
        ([sh("a", template="shell@ffffffff")], "unknown_template", "spec.tasks[0].template", "a"),
        ([sh("a", template="lost", args={})], "unknown_framework", "spec.tasks[0].template", "a"),
        (
            [{"name": "a", "job": {"framework": "pyton", "command": ["x"]}}],
            "unknown_framework",
            "spec.tasks[0].job.framework",
            "a",
        ),
        ([{"name": "a", "job": {"command": ["x"]}}], "missing_field", "spec.tasks[0].job.framework", "a"),
        ([{"name": "a", "job": SHELL, "args": {"x": 1}}], "not_allowed", "spec.tasks[0].args", "a"),
        ([{"name": "a", "job": {**SHELL, "comand": 1}}], "unknown_field", "spec.tasks[0].job.comand", "a"),
        ([sh("a", args={})], "missing_param", "spec.tasks[0].args.command", "a"),
        ([sh("a", args={"command": 3})], "wrong_type", "spec.tasks[0].args.command", "a"),
        ([sh("a", args={"command": "x", "comand": "y"})], "unknown_param", "spec.tasks[0].args.comand", "a"),
        ([sh("a", args={"command": "{{ params.x }}"})], "unknown_reference", "spec.tasks[0].args.command", "a"),
        ([sh("a", args={"command": "{{ 7*7 }}"})], "bad_expression", "spec.tasks[0].args.command", "a"),
        ([sh("a", env={"X": "{{ tasks.b.phase }}"})], "unknown_reference", "spec.tasks[0].env.X", "a"),
        ([sh("a"), sh("b", env={"X": "{{ tasks.a.phase }}"})], "not_upstream", "spec.tasks[1].env.X", "b"),
        ([sh("a", when=["{{ tasks.a.phase }} == succeeded"])], "not_upstream", "spec.tasks[0].when[0]", "a"),
        (
            [{"name": "t", "template": "train"}, sh("b", "t", when=["{{ tasks.t.outputs.acuracy }} > 1"])],
            "unknown_output",
            "spec.tasks[1].when[0]",
            "b",
        ),
        ([sh("a", when=["nonsense"])], "bad_condition", "spec.tasks[0].when[0]", "a"),
        ([sh("a", env={"1X": "x"})], "bad_name", "spec.tasks[0].env.1X", "a"),
        ([sh("a", env={"CUBE_RUN_ID": "x"})], "reserved_env", "spec.tasks[0].env.CUBE_RUN_ID", "a"),
        (
            [{"name": "a", "template": "train", "env": {"MASTER_ADDR": "x"}}],
            "reserved_env",
            "spec.tasks[0].env.MASTER_ADDR",
            "a",
        ),
        ([sh("a", resources={"gpu": 4})], "never_fits", "spec.tasks[0].resources.gpu", "a"),
        ([sh("a", resources={"cpu": 5})], "never_fits", "spec.tasks[0].resources.cpu", "a"),
        (
            [{"name": "a", "template": "train", "args": {"workers": 5}}],
            "never_fits",
            "spec.tasks[0].resources.cpu",
            "a",
        ),
        (
            [{"name": "a", "job": {**SHELL, "resources": {"memory": "9Gi"}}}],
            "never_fits",
            "spec.tasks[0].job.resources.memory",
            "a",
        ),
        ([sh("a", resources={"cpu": "x"})], "bad_quantity", "spec.tasks[0].resources.cpu", "a"),
        ([sh("a", resources={"cpus": 1})], "unknown_field", "spec.tasks[0].resources.cpus", "a"),
        ([sh("a", distributed={"workers": 2})], "out_of_range", "spec.tasks[0].distributed.workers", "a"),
        (
            [{"name": "a", "template": "train", "distributed": {"type": "mpi"}}],
            "not_runnable",
            "spec.tasks[0].distributed.type",
            "a",
        ),
        (
            [{"name": "a", "template": "train", "distributed": {"type": "spark"}}],
            "unsupported_distribution",
            "spec.tasks[0].distributed.type",
            "a",
        ),
        (
            [{"name": "a", "job": {"framework": "python", "version": "2.7", "command": ["x"]}}],
            "unknown_version",
            "spec.tasks[0].job.version",
            "a",
        ),
        ([sh("a", retry={"backoff": "1h", "maxBackoff": "1m"})], "out_of_range", "spec.tasks[0].retry.backoff", "a"),
        (
            [sh("a", environment={"requirements": ["--pre"]})],
            "bad_requirement",
            "spec.tasks[0].environment.requirements[0]",
            "a",
        ),
    ],
)
def test_each_mistake_names_field_and_node(tasks: list[dict[str, Any]], code: str, field: str, node: str) -> None:
    assert [(p.code, p.field, p.node) for p in validate(tasks)] == [(code, field, node)]


@pytest.mark.parametrize(
    ("tasks", "message", "resolution"),
    [
        ([sh("load"), sh("b", "laod")], "there is no task 'laod'", "did you mean 'load'?"),
        (
            [sh("a", "c"), sh("b", "a"), sh("c", "b")],
            "tasks wait for each other: a -> b -> c -> a",
            "remove one of these dependencies",
        ),
        ([sh("a", template="shel")], "there is no template 'shel'", "did you mean 'shell'?"),
        ([sh("a", resources={"gpu": 4})], "needs 4 gpu, this machine has 0", "ask for less gpu or fewer workers"),
        (
            [{"name": "a", "template": "train", "args": {"workers": 5}}],
            "its 5 ranks need 5 cpu together, this machine has 4",
            "ask for less cpu or fewer workers",
        ),
        (
            [sh("a"), sh("b", env={"X": "{{ tasks.a.phase }}"})],
            "{{ tasks.a.phase }}: 'a' does not run before this task",
            "add a to dependsOn",
        ),
        (
            [{"name": "t", "template": "train"}, sh("b", "t", env={"X": "{{ tasks.t.outputs.acuracy }}"})],
            "{{ tasks.t.outputs.acuracy }}: 't' has no output 'acuracy'",
            "did you mean 'accuracy'?",
        ),
    ],
)
def test_messages_say_what_and_what_to_do(tasks: list[dict[str, Any]], message: str, resolution: str) -> None:
    assert [(p.message, p.resolution) for p in validate(tasks)] == [(message, resolution)]


def test_everything_at_once() -> None:
    tasks = [
        sh("a", "b"),
        sh("b", "a"),
        sh("c", "d"),
        sh("d", "c"),
        sh("e", "nope", template="gone"),
        sh("f", args={}),
        sh("g", when=["?"]),
    ]
    found = [(p.code, p.node) for p in validate(tasks, parallelism=2)]
    assert found == [
        ("missing_upstream", "e"),
        ("cycle", "a"),
        ("cycle", "c"),
        ("unknown_template", "e"),
        ("missing_param", "f"),
        ("bad_condition", "g"),
    ]


def test_references_reach_through_the_graph() -> None:
    tasks = [
        {"name": "t", "template": "train"},
        sh("m", "t"),
        sh(
            "e",
            "m",
            args={"command": "{{ tasks.t.outputs.accuracy }} {{ tasks.m.outputs.any }}"},
            when=["{{ tasks.t.phase }} == succeeded"],
        ),
    ]
    assert validate(tasks) == []


def test_without_capacity_or_before_rendering_size_is_not_judged() -> None:
    assert validate([sh("a", resources={"gpu": 400})], capacity=None) == []
    params = [{"name": "n", "type": "int", "default": 99}]
    assert (
        validate(
            [
                sh("a", resources={"gpu": "{{ params.n }}"}),
                {"name": "b", "template": "train", "args": {"workers": "{{ params.n }}"}},
            ],
            params=params,
        )
        == []
    )


def test_defaults_are_checked_and_count() -> None:
    found = validate([sh("a")], defaults={"resources": {"gpus": 1}, "env": {"A-B": "x"}})
    assert [(p.code, p.field) for p in found] == [
        ("unknown_field", "spec.defaults.resources.gpus"),
        ("bad_name", "spec.defaults.env.A-B"),
    ]
    assert [p.code for p in validate([sh("a")], defaults={"resources": {"gpu": 1}})] == ["never_fits"]
    assert validate([sh("a", resources={"gpu": 0})], defaults={"resources": {"gpu": 1}}) == []


def test_too_many_edges() -> None:
    doc = document([sh("a"), sh("b")])
    many = doc.spec.tasks[1].model_copy(update={"depends_on": ["a"] * (MAX_EDGES + 1)})
    doc = doc.model_copy(update={"spec": doc.spec.model_copy(update={"tasks": [doc.spec.tasks[0], many]})})
    assert [p.code for p in validate_pipeline(doc, templates=TEMPLATES, frameworks=FRAMEWORKS)] == ["too_many_edges"]


@pytest.mark.parametrize("shape", ["chain", "fan", "layers"])
def test_ten_thousand_tasks(shape: str) -> None:
    depends: dict[str, Callable[[int], list[int]]] = {
        "chain": lambda i: [i - 1] if i else [],
        "fan": lambda i: [0] if i else [],
        "layers": lambda i: [i // 20 * 20 - k - 1 for k in range(20)] if i >= 20 else [],
    }
    tasks = [
        sh(f"t{i}", *(f"t{j}" for j in depends[shape](i)), env={"X": "{{ tasks.t0.phase }}"} if i > 19 else {})
        for i in range(10_000)
    ]
    doc = document(tasks)
    assert validate_pipeline(doc, templates=TEMPLATES, frameworks=FRAMEWORKS, capacity=CAPACITY) == []
    graph = PipelineGraph.of(doc, TEMPLATES)
    assert len(graph.tasks) == 10_000
    assert graph.dag.is_ancestor("t0", of="t9999") is True


def test_ten_thousand_mistakes_are_bounded() -> None:
    tasks = [sh(f"t{i}", f"u{i}", template="gone") for i in range(10_000)]
    problems = validate(tasks)
    assert len(problems) == 1000


def test_a_ring_of_ten_thousand_is_one_cycle() -> None:
    tasks = [sh(f"t{i}", f"t{(i - 1) % 10_000}") for i in range(10_000)]
    problems = validate(tasks)
    assert [(p.code, p.node) for p in problems] == [("cycle", "t0")]
    assert "t0 -> t1" in problems[0].message
    assert "..." in problems[0].message


def closure(up: dict[str, list[str]]) -> dict[str, set[str]]:
    reach = {key: set(parents) for key, parents in up.items()}
    for _ in up:
        for found in reach.values():
            found |= {far for near in list(found) for far in reach[near]}
    return reach


@given(dags())
def test_dags_validate_and_order_respects_every_edge(up: dict[str, list[str]]) -> None:
    assert validate([sh(key, *parents) for key, parents in up.items()]) == []
    graph = Graph(up)
    order = graph.order()
    assert sorted(order) == sorted(up)
    place = {key: i for i, key in enumerate(order)}
    assert all(place[parent] < place[key] for key, parents in up.items() for parent in parents)
    reach = closure(up)
    for a in up:
        assert graph.descendants(a) == {b for b in up if a in reach[b]}
        assert all(graph.is_ancestor(a, of=b) is (a in reach[b]) for b in up)
        assert sorted(graph.downstream(a)) == sorted(b for b in up if a in up[b])
        assert graph.upstream(a) == up[a]


@given(dags(), st.data())
def test_a_back_edge_is_reported_as_a_cycle_that_exists(up: dict[str, list[str]], data: st.DataObject) -> None:
    reach = closure(up)
    pairs = [(a, b) for b in up for a in [*sorted(reach[b]), b]]
    early, late = data.draw(st.sampled_from(pairs))
    up = {key: list(parents) for key, parents in up.items()}
    up[early].append(late)
    cycles = Graph(up).cycles()
    assert len(cycles) == 1
    cycle = cycles[0]
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    assert all(before in up[after] for before, after in itertools.pairwise(cycle))
    problems = [p for p in validate([sh(key, *parents) for key, parents in up.items()]) if p.code == "cycle"]
    assert [p.message for p in problems] == ["tasks wait for each other: " + " -> ".join(cycle)]
    assert set(Graph(up).order()).isdisjoint(cycle)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4), min_size=1))
def test_every_cyclic_part_is_reported_once(up: dict[str, list[str]]) -> None:
    known = {key: [p for p in parents if p in up] for key, parents in up.items()}
    reach = closure(known)
    parts = {frozenset(b for b in up if a in reach[b] and b in reach[a]) for a in up if a in reach[a]}
    cycles = Graph(up).cycles()
    assert len(cycles) == len(parts)
    for cycle in cycles:
        assert any(set(cycle) <= part for part in parts)
        assert all(before in known[after] for before, after in itertools.pairwise(cycle))
