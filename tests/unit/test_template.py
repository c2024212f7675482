"""Job templates, and the jobs that tasks render to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from myapp.domain.jobspec import AIJobSpec
from myapp.domain.pipelinegraph import GraphTask, Retry
from myapp.domain.taskspec import RenderedTask, render_task
from myapp.domain.template import JobTemplateDoc, check_rendered_args, parse_template, validate_args
from myapp.domain.templating import make_context


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "JobTemplate",
        "metadata": {"name": "t", "category": "training"},
        "spec": {
            "args": [
                {"name": "script", "type": "text", "language": "python", "required": True},
                {"name": "n", "type": "int", "default": 1, "min": 0},
                {"name": "reqs", "type": "list"},
            ],
            "framework": "python",
            "job": {
                "script": "{{ args.script }}",
                "environment": {"requirements": "{{ args.reqs }}"},
                "args": ["--n", "{{ args.n }}"],
            },
            "resources": {"cpu": 1, "memory": "512Mi"},
            "outputs": [{"name": "accuracy", "type": "float"}],
            **spec,
        },
    }


def template(**spec: Any) -> JobTemplateDoc:
    parsed, problems = parse_template(document(**spec))
    assert problems == []
    assert parsed is not None
    return parsed


def test_a_good_template() -> None:
    parsed = template()
    assert [arg.name for arg in parsed.spec.args] == ["script", "n", "reqs"]
    assert parsed.spec.args[0].language == "python"


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"job": {}}, "command_or_script", "spec.job"),
        ({"job": {"script": "x", "command": ["y"]}}, "command_or_script", "spec.job.script"),
        ({"job": {"script": "{{ args.scrpt }}"}}, "unknown_reference", "spec.job.script"),
        ({"job": {"script": "{{ params.x }}"}}, "unknown_reference", "spec.job.script"),
        ({"job": {"script": "x", "env": {"A": "{{ tasks.a.phase }}"}}}, "unknown_reference", "spec.job.env.A"),
        ({"job": {"script": "x", "comand": 1}}, "unknown_field", "spec.job.comand"),
        ({"job": {"script": "x", "framework": "shell"}}, "conflict", "spec.job.framework"),
        ({"job": {"scriptFile": "../main.py"}}, "bad_path", "spec.job.scriptFile"),
        ({"job": {"scriptFile": "main.py"}, "files": {"other.py": ""}}, "missing_file", "spec.job.scriptFile"),
        ({"job": []}, "wrong_type", "spec.job"),
        ({"resources": {"cpu": "x"}}, "bad_quantity", "spec.resources.cpu"),
        ({"resources": {"cpu": "{{ args.none }}"}}, "unknown_reference", "spec.resources.cpu"),
        ({"outputs": [{"name": "a"}, {"name": "a"}]}, "duplicate_name", "spec.outputs[1].name"),
        ({"outputs": [{"name": "a/b"}]}, "bad_name", "spec.outputs[0].name"),
        ({"outputs": [{"name": "a", "type": "number"}]}, "not_allowed", "spec.outputs[0].type"),
        ({"files": {"args.json": ""}}, "bad_path", "spec.files"),
        ({"args": [{"name": "script", "type": "txt"}]}, "not_allowed", "spec.args[0].type"),
        ({"framework": 3}, "wrong_type", "spec.framework"),
        (
            {"args": [{"name": "script"}, {"name": "n"}, {"name": "reqs"}, {"name": "script"}]},
            "duplicate_name",
            "spec.args[3].name",
        ),
    ],
)
def test_each_mistake_names_its_field(spec: dict[str, Any], code: str, field: str) -> None:
    parsed, problems = parse_template(document(**spec))
    assert parsed is None
    assert (code, field) in [(p.code, p.field) for p in problems]


def test_arguments_before_and_after_rendering() -> None:
    args = template().spec.args
    values, problems = validate_args(args, {"script": "x", "n": "{{ params.n }}"}, where="spec.tasks[0].args", node="a")
    assert (values, problems) == ({"script": "x", "n": "{{ params.n }}", "reqs": None}, [])
    _, problems = check_rendered_args(args, {"script": "x", "n": "3"}, where="w", node="a")
    assert [(p.code, p.field, p.node) for p in problems] == [("wrong_type", "w.n", "a")]
    _, problems = validate_args(args, {"scrpt": "x", "n": -1}, where="w", node="a")
    assert {(p.code, p.field) for p in problems} == {
        ("unknown_param", "w.scrpt"),
        ("missing_param", "w.script"),
        ("out_of_range", "w.n"),
    }


CONTEXT = make_context(
    params={"seed": 3, "cpu": "2", "none": None},
    run={"id": 1},
    creator="ada",
    tasks={"load": {"phase": "succeeded", "outputs": {"rows": 10}}},
)


def rendered(task: GraphTask, parsed: JobTemplateDoc | None = None) -> RenderedTask:
    result, problems = render_task(task, parsed.spec if parsed else None, CONTEXT)
    assert problems == []
    assert result is not None
    return result


def test_a_template_task_renders_to_a_job() -> None:
    task = GraphTask(
        "a",
        template="t",
        args={"script": "print('{{ params.seed }}')", "n": "{{ tasks.load.outputs.rows }}"},
        resources={"cpu": "{{ params.cpu }}"},
        env={"BY": "{{ creator }}"},
        retry=Retry(2, 1.0, 9.0),
        timeout=60.0,
    )
    result = rendered(task, template())
    spec = result.spec
    assert (spec.framework, spec.script, spec.args) == ("python", "print('3')", ["--n", "10"])
    assert (spec.resources.cpu, spec.resources.memory) == (2000, 512 * 2**20)
    assert spec.env == {"BY": "ada"}
    assert (spec.retry.limit, spec.retry.backoff, spec.timeout) == (2, 1, 60)
    assert spec.environment is not None
    assert spec.environment.requirements is None
    assert json.loads(spec.files["args.json"]) == {"script": "print('3')", "n": 10, "reqs": None} == result.args
    assert AIJobSpec.model_validate(result.document()) == spec


def test_files_of_a_template_are_never_rendered() -> None:
    text = "print(f'{{x}} {{ params.seed }}')"
    parsed = template(job={"scriptFile": "main.py"}, files={"main.py": text, "helper.py": "{{"}, args=[])
    spec = rendered(GraphTask("a", template="t"), parsed).spec
    assert spec.script == text
    assert set(spec.files) == {"helper.py", "args.json"}


def test_what_a_value_brings_along_is_not_rendered_again() -> None:
    context = make_context(params={"x": "{{ creator }} {{ args.n }}"}, creator="secret")
    task = GraphTask("a", template="t", args={"script": "{{ params.x }}"})
    result, _ = render_task(task, template().spec, context)
    assert result is not None
    assert result.spec.script == "{{ creator }} {{ args.n }}"


def test_an_inline_job_renders_too() -> None:
    job = {
        "framework": "pytorch",
        "command": ["python", "t.py", "{{ params.seed }}"],
        "resources": {"memory": "1Gi"},
        "env": {"A": "{{ run.id }}"},
    }
    spec = rendered(
        GraphTask(
            "a",
            job=job,
            resources={"cpu": 2},
            distributed={"type": "ddp", "workers": "{{ params.seed }}"},
            env={"B": "x"},
        )
    ).spec
    assert spec.command == ["python", "t.py", "3"]
    assert spec.env == {"A": "1", "B": "x"}
    assert spec.distributed is not None
    assert spec.distributed.workers == 3
    assert (spec.resources.cpu, spec.resources.memory) == (2000, 2**30)


@pytest.mark.parametrize(
    ("task", "field"),
    [
        (GraphTask("a", template="t", args={"script": "{{ params.gone }}"}), "tasks.a.args.script"),
        (GraphTask("a", template="t", args={"script": "x", "n": "{{ creator }}"}), "tasks.a.args.n"),
        (GraphTask("a", template="t", args={"script": "{{ params.none }}"}), "tasks.a.args.script"),
        (
            GraphTask("a", template="t", args={"script": "x"}, resources={"cpu": "{{ creator }}"}),
            "tasks.a.resources.cpu",
        ),
        (GraphTask("a", template="t", args={"script": "x", "reqs": ["-r x"]}), "tasks.a.environment.requirements[0]"),
    ],
)
def test_what_only_shows_when_rendered_names_the_task(task: GraphTask, field: str) -> None:
    result, problems = render_task(task, template().spec, CONTEXT)
    assert result is None
    assert [(p.field, p.node) for p in problems] == [(field, "a")]
