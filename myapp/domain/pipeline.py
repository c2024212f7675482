"""The Pipeline document: tasks, their order, parameters and schedule, as written by a person or the editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from myapp.domain.documents import MAX_PROBLEMS, Doc, Metadata, Timeout, check_header, parse_model
from myapp.domain.errors import Problem
from myapp.domain.jobspec import Priority, RetryDoc
from myapp.domain.naming import shown
from myapp.domain.params import ParamSpec, check_specs, resolve_params

MAX_TASKS = 10_000
MAX_EDGES = 200_000

TriggerName = Literal["all_succeeded", "all_done", "any_failed", "any_succeeded", "all_failed", "none_failed"]


class PositionDoc(Doc):
    x: float = 0
    y: float = 0


class ScheduleDoc(Doc):
    """When the pipeline runs by itself. Whether `cron` and `timezone` are real is checked where the clock is."""

    cron: str = Field(min_length=1, max_length=100)
    timezone: str = Field(default="UTC", min_length=1, max_length=64)
    catchup: Literal["none", "latest", "all"] = "none"
    max_active_runs: int = Field(default=1, ge=1, le=1000)
    paused: bool = False
    params: dict[str, Any] = Field(default_factory=dict)


class DefaultsDoc(Doc):
    """What tasks take when neither they nor their inline job say otherwise; it wins over a template's own."""

    retry: RetryDoc | None = None
    timeout: Timeout | None = None
    resources: dict[str, Any] | None = None
    env: dict[str, Any] = Field(default_factory=dict)


class TaskDoc(Doc):
    """One task. `job`, `resources`, `env`, `distributed` and `environment` are raw: they may hold `{{ }}`."""

    name: str
    title: str | None = None
    description: str | None = None
    template: str | None = Field(default=None, max_length=200)
    args: dict[str, Any] = Field(default_factory=dict)
    job: dict[str, Any] | None = None
    depends_on: list[str] = Field(default_factory=list)
    trigger: TriggerName = "all_succeeded"
    when: list[str] = Field(default_factory=list, max_length=50)
    retry: RetryDoc | None = None
    timeout: Timeout | None = None
    resources: dict[str, Any] | None = None
    env: dict[str, Any] = Field(default_factory=dict)
    distributed: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    skip: bool = False
    allow_failure: bool = False
    position: PositionDoc | None = None

    @property
    def template_ref(self) -> tuple[str, str | None] | None:
        """`python@3f2a` -> `("python", "3f2a")`; None when the task has an inline job."""
        if self.template is None:
            return None
        name, at, version = self.template.partition("@")
        return name, version if at else None


class PipelineSpec(Doc):
    params: list[ParamSpec] = Field(default_factory=list)
    parallelism: int | None = Field(default=None, ge=1, le=MAX_TASKS)
    timeout: Timeout | None = None
    priority: Priority = "normal"
    schedule: ScheduleDoc | None = None
    defaults: DefaultsDoc = DefaultsDoc()
    tasks: list[TaskDoc] = Field(min_length=1)


class PipelineDoc(Doc):
    api_version: str
    kind: Literal["Pipeline"]
    metadata: Metadata
    spec: PipelineSpec


def parse_pipeline(doc: Any) -> tuple[PipelineDoc | None, list[Problem]]:
    """The shape of a Pipeline document: types, names, parameters and schedule. What needs templates, frameworks or the
    whole graph is `graph.validate_pipeline`'s. Either the document or its problems, never both."""
    problems = check_header(doc, "Pipeline")
    if not isinstance(doc, Mapping):
        return None, problems
    spec = doc.get("spec")
    tasks = spec.get("tasks") if isinstance(spec, Mapping) else None
    if isinstance(tasks, list) and len(tasks) > MAX_TASKS:
        return None, [*problems, Problem(code="too_many_tasks", field="spec.tasks",
                                         message=f"{len(tasks)} tasks; the most is {MAX_TASKS}",
                                         resolution="split the pipeline")]
    parsed, found = parse_model(PipelineDoc, {**doc, "apiVersion": "", "kind": "Pipeline"})
    problems.extend(_with_nodes(found, tasks))
    if parsed is not None:
        problems.extend(parsed.metadata.problems())
        problems.extend(_check_params(parsed.spec))
        parsed = parsed.model_copy(update={"api_version": doc.get("apiVersion")})
    return (None, problems[:MAX_PROBLEMS]) if problems else (parsed, [])


def _check_params(spec: PipelineSpec) -> list[Problem]:
    problems = check_specs(spec.params, "spec.params")
    if spec.schedule is not None and not problems:
        problems.extend(resolve_params(spec.params, spec.schedule.params, field="spec.schedule.params")[1])
    return problems


def _with_nodes(problems: list[Problem], tasks: Any) -> list[Problem]:
    """Name the task in problems below `spec.tasks[i]`."""
    out: list[Problem] = []
    for problem in problems:
        head, _, rest = (problem.field or "").partition("spec.tasks[")
        index = rest.partition("]")[0]
        if head == "" and index.isdigit() and isinstance(tasks, list) and int(index) < len(tasks):
            task = tasks[int(index)]
            name = task.get("name") if isinstance(task, Mapping) else None
            if isinstance(name, str):
                problem = problem.model_copy(update={"node": name if len(name) <= 63 else shown(name, 60)})
        out.append(problem)
    return out
