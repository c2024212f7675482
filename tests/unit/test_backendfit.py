"""What a job asks for that its backend lacks: refused where data would be missing, else only said."""

from __future__ import annotations

from typing import Any

import pytest

from myapp.domain.backendfit import check_backend
from myapp.domain.errors import Problem, errors_in
from myapp.domain.graph import validate_pipeline
from tests.factories.documents import FRAMEWORKS, SHELL, TEMPLATES, document, sh, template

TASK = "spec.tasks[0]"


def validate(*tasks: dict[str, Any], backend: str | None = "local", **spec: Any) -> list[Problem]:
    views = {**TEMPLATES, "mounting": template(
        "mounting", framework="shell", job={"script": "true", "image": "busybox", "volumes": [{"type": "pvc"}]})}
    return validate_pipeline(document(list(tasks), **spec), templates=views, frameworks=FRAMEWORKS, backend=backend,
                             interpreters={"torch"})


@pytest.mark.parametrize(
    ("body", "field", "severity"),
    [
        ({"volumes": [{"type": "workspace"}, {"type": "hostPath"}]}, "spec.volumes[1].type", "error"),
        ({"volumes": [{"type": "pvc"}]}, "spec.volumes[0].type", "error"),
        ({"volumes": [{"type": "configMap"}]}, "spec.volumes[0].type", "error"),
        ({"volumes": [{"type": "secret"}]}, "spec.volumes[0].type", "error"),
        ({"image": "busybox"}, "spec.image", "warning"),
        ({"queue": "fast"}, "spec.queue", "warning"),
        ({"resources": {"gpuType": "A100"}}, "spec.resources.gpuType", "warning"),
    ],
)
def test_each_field_on_the_local_backend(body: dict[str, Any], field: str, severity: str) -> None:
    assert [(p.field, p.severity) for p in check_backend("local", body, field="spec")] == [(field, severity)]
    assert check_backend("kubernetes", body, field="spec") == []
    assert check_backend(None, body, field="spec") == []


@pytest.mark.parametrize(
    "body",
    [{}, {"volumes": [{"type": "workspace"}, {}]}, {"volumes": "wrong"}, {"volumes": [3]}, {"queue": "default"},
     {"resources": {"gpu": 1}}, {"resources": "wrong"}, {"volumes": [{"type": "memory"}]}],
)
def test_what_the_local_backend_has(body: dict[str, Any]) -> None:
    assert check_backend("local", body, field="spec") == []


@pytest.mark.parametrize(
    ("task", "spec", "fields"),
    [
        ({"name": "a", "job": {**SHELL, "image": "x", "volumes": [{"type": "pvc"}]}}, {},
         [(f"{TASK}.job.volumes[0].type", "error"), (f"{TASK}.job.image", "warning")]),
        (sh("a", resources={"gpuType": "A100"}), {}, [(f"{TASK}.resources.gpuType", "warning")]),
        (sh("a"), {"defaults": {"resources": {"gpuType": "A100"}}},
         [("spec.defaults.resources.gpuType", "warning")]),
        ({"name": "a", "template": "mounting"}, {}, [(f"{TASK}.template", "error"), (f"{TASK}.image", "warning")]),
    ],
)
def test_a_pipeline_says_where(task: dict[str, Any], spec: dict[str, Any], fields: list[tuple[str, str]]) -> None:
    assert [(p.field, p.severity) for p in validate(task, **spec)] == fields
    assert validate(task, backend=None, **spec) == []


def test_warnings_never_crowd_out_an_error() -> None:
    tasks = [{"name": f"t{i}", "job": {**SHELL, "image": "x"}} for i in range(1500)]
    problems = validate(*tasks, sh("last", template="nope"))
    assert [p.code for p in errors_in(problems)] == ["unknown_template"]
    assert len(problems) < 200


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"name": "a", "job": {**SHELL, "environment": {"interpreter": "toch"}}},
         f"{TASK}.job.environment.interpreter"),
        (sh("a", environment={"interpreter": "toch"}), f"{TASK}.environment.interpreter"),
    ],
)
def test_an_unknown_interpreter_names_the_nearest(task: dict[str, Any], field: str) -> None:
    [problem] = validate(task)
    assert (problem.code, problem.field, problem.node) == ("unknown_interpreter", field, "a")
    assert problem.resolution == "did you mean 'torch'?"


@pytest.mark.parametrize("name", ["torch", "{{ params.python }}"])
def test_interpreters_that_are_allowed_or_not_known_yet(name: str) -> None:
    params = [{"name": "python", "type": "str", "default": "torch"}]
    assert validate(sh("a", environment={"interpreter": name}), params=params) == []
