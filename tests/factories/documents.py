"""Small catalogues and pipelines for tests of the domain."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from myapp.domain.frameworks.framework import Framework, parse_framework
from myapp.domain.graph import CapacityView, TemplateView
from myapp.domain.pipeline import PipelineDoc, parse_pipeline
from myapp.domain.template import parse_template

HEAD = {"apiVersion": "cube-studio.io/v1alpha1"}


def framework(**data: Any) -> Framework:
    parsed, problems = parse_framework(data)
    assert parsed is not None, problems
    return parsed


def template(name: str, **spec: Any) -> TemplateView:
    parsed, problems = parse_template({**HEAD, "kind": "JobTemplate", "metadata": {"name": name}, "spec": spec})
    assert parsed is not None, problems
    return TemplateView(name, (name.encode().hex() * 16)[:64], parsed.spec)


FRAMEWORKS = {
    f.name: f
    for f in (
        framework(name="shell", script={"command": ["/bin/sh", "{file}"], "file": "main.sh"}),
        framework(
            name="python",
            script={"command": ["python", "{file}"], "file": "main.py"},
            topology="rendezvous",
            distributed={"ddp": "rendezvous", "ps": "ps-worker", "mpi": "launcher-workers"},
            ports={"main": 29500},
            env={"MASTER_ADDR": "{{ chief.host }}"},
            versions=[{"version": "3.11", "cpu": {}}],
        ),
    )
}
TEMPLATES = {
    view.name: view
    for view in (
        template(
            "shell",
            framework="shell",
            args=[{"name": "command", "type": "text", "required": True}],
            job={"script": "{{ args.command }}"},
        ),
        template(
            "train",
            framework="python",
            args=[
                {"name": "seed", "type": "int", "default": 0, "min": 0},
                {"name": "workers", "type": "int", "default": 1},
            ],
            job={"command": ["train"], "distributed": {"type": "ddp", "workers": "{{ args.workers }}"}},
            resources={"cpu": 1, "memory": "1Gi"},
            outputs=[{"name": "accuracy", "type": "float"}, {"name": "model", "type": "artifact"}],
        ),
        template("lost", framework="fortran", job={"command": ["x"]}),
    )
}
SHELL = {"framework": "shell", "command": ["true"]}
CAPACITY = CapacityView({"machine": {"cpu": 4000, "memory": 8 * 2**30}})


def document(tasks: list[dict[str, Any]], **spec: Any) -> PipelineDoc:
    parsed, problems = parse_pipeline(
        {**HEAD, "kind": "Pipeline", "metadata": {"name": "p"}, "spec": {"tasks": tasks, **spec}}
    )
    assert parsed is not None, problems
    return parsed


def sh(name: str, *depends: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": "shell", "args": {"command": "true"}, "dependsOn": list(depends), **fields}


def dags(max_size: int = 12) -> st.SearchStrategy[dict[str, list[str]]]:
    """Random acyclic graphs, their tasks in any order."""

    def build(draw_edges: list[tuple[int, int]], size: int, order: list[int]) -> dict[str, list[str]]:
        up: dict[int, list[str]] = {i: [] for i in range(size)}
        for a, b in draw_edges:
            low, high = sorted((a % size, b % size))
            if low != high and f"n{low}" not in up[high]:
                up[high].append(f"n{low}")
        return {f"n{i}": up[i] for i in order if i < size}

    edges = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=40)
    return st.builds(build, edges, st.integers(1, max_size), st.permutations(range(max_size)))
