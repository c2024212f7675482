"""Validation of a pipeline against templates, frameworks and capacity: every problem at once, each with its task."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from myapp.domain.backendfit import check_backend
from myapp.domain.capacity import CapacityView
from myapp.domain.conditions import check_conditions
from myapp.domain.dag import Graph
from myapp.domain.documents import MAX_PROBLEMS, parse_model
from myapp.domain.errors import CubeError, Problem, errors_in
from myapp.domain.frameworks.framework import Framework
from myapp.domain.frameworks.topology import check_job
from myapp.domain.jobspec import AIJobSpec, JobBody, check_body, check_interpreter, check_job_body, check_retry
from myapp.domain.naming import check_key, did_you_mean, nearest, shown
from myapp.domain.pipeline import MAX_EDGES, MAX_TASKS, PipelineDoc, TaskDoc
from myapp.domain.pipelinegraph import GraphTask, PipelineGraph, Retry, find_template, merged
from myapp.domain.template import TemplateView, validate_args
from myapp.domain.templating import (
    Ref,
    Vocabulary,
    check,
    has_template,
    pipeline_vocabulary,
    references,
    render,
    strings,
)

__all__ = [
    "CapacityView", "Graph", "GraphTask", "PipelineGraph", "Retry", "TemplateView", "find_template",
    "validate_pipeline",
]

_MAX_WARNINGS = 100
_MAX_HINTS = 25          # searches for a near name, each of which may look at thousands
_SHAPING = ("version", "distributed", "roles", "elastic", "environment", "image")


def validate_pipeline(
    doc: PipelineDoc,
    *,
    templates: Mapping[str, TemplateView],
    frameworks: Mapping[str, Framework],
    capacity: CapacityView | None = None,
    backend: str | None = None,
    interpreters: Collection[str] | None = None,
) -> list[Problem]:
    """Everything wrong with a pipeline, in document order (at most 1000), then warnings (at most 100). It may be
    published when there are no errors.

    `templates` maps a name, or the whole `name@version` a task wrote, to a published version. Without `capacity`
    nothing is said about size, without `backend` nothing about what it lacks, without `interpreters` (the names an
    administrator has allowed) nothing about them. Runs in linear time: 10,000 tasks in about a second.
    """
    tasks = doc.spec.tasks
    edges = sum(len(task.depends_on) for task in tasks)
    if len(tasks) > MAX_TASKS:
        return [Problem(code="too_many_tasks", message=f"{len(tasks)} tasks; the most is {MAX_TASKS}",
                        field="spec.tasks", resolution="split the pipeline")]
    if edges > MAX_EDGES:
        return [Problem(code="too_many_edges", message=f"{edges} dependencies; the most is {MAX_EDGES}",
                        field="spec.tasks", resolution="split the pipeline")]
    return _Validation(doc, templates, frameworks, capacity, backend, interpreters).run()


class _Validation:
    def __init__(
        self, doc: PipelineDoc, templates: Mapping[str, TemplateView], frameworks: Mapping[str, Framework],
        capacity: CapacityView | None, backend: str | None, interpreters: Collection[str] | None,
    ) -> None:
        self.doc, self.templates, self.frameworks, self.capacity = doc, templates, frameworks, capacity
        self.backend, self.interpreters = backend, interpreters
        self.warnings: list[Problem] = []
        self.tasks: dict[str, TaskDoc] = {}
        for task in doc.spec.tasks:
            self.tasks.setdefault(task.name, task)
        self.graph = Graph({name: task.depends_on for name, task in self.tasks.items()})
        self.vocabulary: Vocabulary = pipeline_vocabulary(frozenset(param.name for param in doc.spec.params))
        self.hints = _MAX_HINTS
        self.shapes: dict[str, list[Problem]] = {}
        self.outputs = {
            name: view.outputs for name, task in self.tasks.items()
            if task.template is not None and (view := find_template(task.template, templates)) and view.outputs
        }

    def run(self) -> list[Problem]:
        problems = self._names()
        problems.extend(self._cycles())
        problems.extend(self._defaults())
        for i, task in enumerate(self.doc.spec.tasks):
            if len(problems) >= MAX_PROBLEMS:
                break
            problems.extend(self._task(task, f"spec.tasks[{i}]"))
        return problems[:MAX_PROBLEMS] + self.warnings[:_MAX_WARNINGS]

    def _near(self, word: str, known: Iterable[str]) -> str | None:
        """The nearest name, for the first few problems only."""
        if self.hints <= 0:
            return None
        self.hints -= 1
        close = nearest(word, known)
        return f"did you mean {shown(close)}?" if close else None

    def _names(self) -> list[Problem]:
        problems: list[Problem] = []
        first: dict[str, int] = {}
        for i, task in enumerate(self.doc.spec.tasks):
            where = f"spec.tasks[{i}]"
            node = task.name if len(task.name) <= 63 else shown(task.name, 60)
            if problem := check_key(task.name, f"{where}.name", node):
                problems.append(problem)
            if task.name in first:
                problems.append(Problem(
                    code="duplicate_task", message=f"task {shown(task.name)} is also spec.tasks[{first[task.name]}]",
                    field=f"{where}.name", node=node, resolution="give each task its own name"))
            first.setdefault(task.name, i)
            seen: set[str] = set()
            for j, name in enumerate(task.depends_on):
                if name not in self.tasks:
                    problems.append(Problem(
                        code="missing_upstream", message=f"there is no task {shown(name)}",
                        field=f"{where}.dependsOn[{j}]", node=node, resolution=self._near(name, self.tasks)))
                elif name in seen:
                    problems.append(Problem(code="duplicate_dependency", message=f"{shown(name)} is listed twice",
                                            field=f"{where}.dependsOn[{j}]", node=node, resolution="list it once"))
                seen.add(name)
        return problems

    def _cycles(self) -> list[Problem]:
        problems: list[Problem] = []
        index = {task.name: i for i, task in reversed(list(enumerate(self.doc.spec.tasks)))}
        for cycle in self.graph.cycles():
            path = " -> ".join(cycle if len(cycle) <= 50 else [*cycle[:24], "...", *cycle[-24:]])
            task = self.tasks[cycle[0]]
            j = task.depends_on.index(cycle[-2])
            problems.append(Problem(
                code="cycle", message=f"tasks wait for each other: {path}",
                field=f"spec.tasks[{index[task.name]}].dependsOn[{j}]", node=task.name,
                resolution="remove one of these dependencies"))
        return problems

    def _defaults(self) -> list[Problem]:
        defaults = self.doc.spec.defaults
        raw = {"resources": defaults.resources, "env": defaults.env}
        return self._overrides(raw, "spec.defaults", None)

    def _overrides(self, raw: Mapping[str, Any], where: str, node: str | None) -> list[Problem]:
        """Raw parts of a job that stand beside it: their types, their names and their expressions."""
        given = {name: value for name, value in raw.items() if value}
        if not given:
            return []
        _, problems = parse_model(JobBody, given, field=where, node=node, templated=True)
        problems.extend(check_body(given, field=where, node=node, whole=False))
        problems.extend(self._fit(given, where, node))
        problems.extend(check(given, self.vocabulary, field=where, node=node))
        return problems

    def _task(self, task: TaskDoc, where: str) -> list[Problem]:
        node = task.name if len(task.name) <= 63 else shown(task.name, 60)
        problems: list[Problem] = []
        if (task.template is None) == (task.job is None):
            what = "neither template nor job is given" if task.template is None else "both template and job are given"
            problems.append(Problem(code="template_or_job", message=what, field=where, node=node,
                                    resolution="give exactly one of template and job"))
        framework: str | None = None
        body: Mapping[str, Any] = {}
        resources: Mapping[str, Any] | None = None
        if task.template is not None:
            view = find_template(task.template, self.templates)
            if view is None:
                problems.append(self._unknown_template(task.template, where, node))
            else:
                values, found = validate_args(view.spec.args, task.args, where=f"{where}.args", node=node)
                problems.extend(found)
                framework, resources = view.spec.framework, view.spec.resources
                body = _with_args(view.spec.job, values)
                found = errors_in(self._fit(body, where, node))
                problems.extend(p.model_copy(update={"field": f"{where}.template"}) for p in found)
        elif task.job is not None:
            problems.extend(check_job_body(task.job, field=f"{where}.job", node=node))
            problems.extend(check(task.job, self.vocabulary, field=f"{where}.job", node=node))
            problems.extend(self._fit(task.job, f"{where}.job", node))
            body = task.job
            framework = body.get("framework") if isinstance(body.get("framework"), str) else None
            if "framework" not in body:
                problems.append(Problem(code="missing_field", message="required field is missing", node=node,
                                        field=f"{where}.job.framework", resolution="add 'framework'"))
            if task.args:
                problems.append(Problem(code="not_allowed", message="args belong to a template", field=f"{where}.args",
                                        node=node, resolution="put them into job.args"))
        problems.extend(check(task.args, self.vocabulary, field=f"{where}.args", node=node))
        overrides = {"resources": task.resources, "env": task.env, "distributed": task.distributed,
                     "environment": task.environment}
        problems.extend(self._overrides(overrides, where, node))
        problems.extend(self._interpreter(task, body, where, node))
        if task.retry is not None:
            problems.extend(check_retry(task.retry.to_dict(), f"{where}.retry", node))
        conditions, found = check_conditions(task.when, self.vocabulary, field=f"{where}.when", node=node)
        problems.extend(found)
        refs = [ref for condition in conditions for ref in condition.references()]
        for name, part in (("args", task.args), ("job", task.job), *overrides.items()):
            if part:
                refs.extend(references(part, f"{where}.{name}"))
        problems.extend(self._references(refs, task.name, node))
        if framework is not None and not has_template(framework):
            problems.extend(self._shape(task, framework, body, resources, where, node))
        return problems

    def _fit(self, body: Mapping[str, Any], where: str, node: str | None) -> list[Problem]:
        """What the project's backend lacks: its errors; the warnings are kept for the end."""
        found = check_backend(self.backend, body, field=where, node=node)
        errors = errors_in(found)
        self.warnings.extend(problem for problem in found if problem not in errors)
        return errors

    def _interpreter(self, task: TaskDoc, body: Mapping[str, Any], where: str, node: str) -> list[Problem]:
        """The name of an interpreter that nobody has allowed; one that holds expressions is judged once rendered."""
        inner = f"{where}.job.environment.interpreter" if task.job is not None else f"{where}.template"
        field, given = (f"{where}.environment.interpreter", task.environment) if task.environment else (
            inner, body.get("environment"))
        name = given.get("interpreter") if isinstance(given, Mapping) else None
        if self.interpreters is None or not isinstance(name, str) or has_template(name):
            return []
        problem = check_interpreter(name, self.interpreters, field, node)
        return [] if problem is None else [problem]

    def _unknown_template(self, reference: str, where: str, node: str) -> Problem:
        name, _, version = reference.partition("@")
        if version and name in self.templates:
            message = f"template {shown(name)} has no version {shown(version)}"
            hint: str | None = f"use {name}, or {name}@ and the first 6 or more characters of a version"
        else:
            message, hint = f"there is no template {shown(reference)}", self._near(name, self.templates)
        return Problem(code="unknown_template", message=message, field=f"{where}.template", node=node, resolution=hint)

    def _references(self, refs: list[Ref], name: str, node: str) -> list[Problem]:
        problems: list[Problem] = []
        for ref in refs:
            key = ref.task
            if key is None or self.vocabulary.problem(ref) is not None:
                continue
            if key not in self.tasks:
                code, message = "unknown_reference", f"{{{{ {ref} }}}}: there is no task {shown(key)}"
                hint = self._near(key, self.tasks)
            elif key == name or self.graph.is_ancestor(key, of=name) is False:
                code, message = "not_upstream", f"{{{{ {ref} }}}}: {shown(key)} does not run before this task"
                hint = "it cannot refer to itself" if key == name else f"add {key} to dependsOn"
            elif len(ref.path) == 4 and key in self.outputs and ref.path[3] not in self.outputs[key]:
                code, message = "unknown_output", f"{{{{ {ref} }}}}: {shown(key)} has no output {shown(ref.path[3])}"
                hint = did_you_mean(ref.path[3], self.outputs[key])
            else:
                continue
            problems.append(Problem(code=code, message=message, field=ref.field, node=node, resolution=hint))
        return problems

    def _shape(
        self, task: TaskDoc, framework: str, body: Mapping[str, Any], resources: Mapping[str, Any] | None, where: str,
        node: str,
    ) -> list[Problem]:
        """What framework and capacity say, as far as it is known before rendering. Equal shapes are judged once."""
        known = self.frameworks.get(framework)
        if known is None:
            field = f"{where}.job.framework" if task.job is not None else f"{where}.template"
            return [Problem(code="unknown_framework", message=f"there is no framework {shown(framework)}", field=field,
                            node=node, resolution=self._near(framework, self.frameworks))]
        defaults = self.doc.spec.defaults
        layers = (defaults.resources, body.get("resources")) if task.job is not None else \
            (resources, body.get("resources"), defaults.resources)
        if any(layer is not None and not isinstance(layer, Mapping) for layer in (*layers, body.get("env"))):
            return []
        shape: dict[str, Any] = {name: body[name] for name in _SHAPING if body.get(name) is not None}
        shape["resources"] = merged(*layers, task.resources)
        for name in ("distributed", "environment"):
            if getattr(task, name) is not None:
                shape[name] = getattr(task, name)
        if next(strings(shape), None) is not None:
            return []
        shape["env"] = dict.fromkeys(merged(defaults.env, body.get("env"), task.env), "")
        shape["script" if "script" in body or "scriptFile" in body else "command"] = (
            "x" if "script" in body or "scriptFile" in body else ["x"])
        shape["framework"] = framework
        key = json.dumps(shape, sort_keys=True, default=str)
        if key not in self.shapes:
            spec, _ = parse_model(AIJobSpec, shape)
            self.shapes[key] = [] if spec is None else check_job(known, spec, capacity=self.capacity, field="")
        inner = f"{where}.job" if task.job is not None else where
        return [p.model_copy(update={"field": inner + (p.field or ""), "node": node}) for p in self.shapes[key]]


def _with_args(body: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The shaping parts of a template's job with literal arguments put in; the rest as it is."""
    out = dict(body)
    context = {"args": {name: value for name, value in values.items() if next(strings(value), None) is None}}
    for name in (*_SHAPING, "resources"):
        if name in out:
            try:
                out[name] = render(out[name], context)
            except CubeError:
                continue
    return out
