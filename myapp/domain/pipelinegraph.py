"""The immutable graph of a pipeline version: normalised, self-contained, with a hash that depends on nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from myapp.domain.dag import Graph
from myapp.domain.jobspec import RetryDoc
from myapp.domain.params import ParamSpec
from myapp.domain.pipeline import DefaultsDoc, PipelineDoc, TaskDoc
from myapp.domain.quantities import BadQuantity, parse_duration
from myapp.domain.template import TemplateView

FORMAT = 1


@dataclass(frozen=True)
class Retry:
    """`limit` re-tries; waits double from `backoff` to `max_backoff`, both in seconds."""

    limit: int = 0
    backoff: float = 10.0
    max_backoff: float = 300.0

    @classmethod
    def of(cls, doc: RetryDoc | None) -> Retry:
        """A first wait longer than the default longest one is meant: then every wait is that long."""
        return cls() if doc is None else cls(doc.limit, doc.backoff, max(doc.max_backoff, doc.backoff))


@dataclass(frozen=True)
class GraphTask:
    """One task with the pipeline's defaults applied. Raw parts (`args`, `job`, `env`, `resources` ...) may still hold
    `{{ }}`; `timeout` is in seconds; `template_version` is the pinned version's content hash."""

    key: str
    title: str | None = None
    description: str | None = None
    template: str | None = None
    template_version: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] | None = None
    upstream: tuple[str, ...] = ()
    trigger: str = "all_succeeded"
    when: tuple[str, ...] = ()
    retry: Retry = Retry()
    timeout: float | None = None
    resources: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    distributed: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    skip: bool = False
    allow_failure: bool = False
    position: dict[str, float] | None = None


_FIELDS = {f.name: f for f in fields(GraphTask)}


@dataclass(frozen=True)
class PipelineGraph:
    """`tasks` in topological order. Equal graphs have equal `sha256()` whatever order their fields were written in."""

    tasks: tuple[GraphTask, ...]
    params: tuple[ParamSpec, ...] = ()
    parallelism: int | None = None
    timeout: float | None = None
    priority: str = "normal"

    @classmethod
    def of(cls, doc: PipelineDoc, templates: Mapping[str, TemplateView]) -> PipelineGraph:
        """The graph of a document that `validate_pipeline` found nothing wrong with."""
        spec = doc.spec
        tasks = {task.name: task for task in spec.tasks}
        graph = Graph({task.name: task.depends_on for task in spec.tasks})
        return cls(
            tasks=tuple(_task(tasks[key], spec.defaults, templates) for key in graph.order()),
            params=tuple(spec.params), parallelism=spec.parallelism, timeout=spec.timeout, priority=spec.priority,
        )

    @cached_property
    def dag(self) -> Graph:
        return Graph({task.key: task.upstream for task in self.tasks})

    @cached_property
    def by_key(self) -> dict[str, GraphTask]:
        return {task.key: task for task in self.tasks}

    def task(self, key: str) -> GraphTask:
        """Raises KeyError for an unknown task."""
        return self.by_key[key]

    def upstream(self, key: str) -> list[str]:
        return self.dag.upstream(key)

    def downstream(self, key: str) -> list[str]:
        return self.dag.downstream(key)

    @property
    def roots(self) -> list[str]:
        return self.dag.roots

    def to_json(self) -> dict[str, Any]:
        """JSON data; absent parts are left out."""
        out: dict[str, Any] = {"format": FORMAT, "tasks": [_task_json(task) for task in self.tasks]}
        if self.params:
            out["params"] = [param.to_dict() for param in self.params]
        for name in ("parallelism", "timeout"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        out["priority"] = self.priority
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PipelineGraph:
        """The graph that `to_json` gave. Raises ValueError for another format."""
        if data.get("format") != FORMAT:
            raise ValueError(f"pipeline graph format {data.get('format')!r} is not {FORMAT}")
        return cls(
            tasks=tuple(_task_from(item) for item in data["tasks"]),
            params=tuple(ParamSpec.model_validate(item) for item in data.get("params", ())),
            parallelism=data.get("parallelism"), timeout=data.get("timeout"), priority=data.get("priority", "normal"),
        )

    def canonical(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def sha256(self) -> str:
        return hashlib.sha256(self.canonical().encode("utf-8", "surrogatepass")).hexdigest()


def find_template(reference: str, templates: Mapping[str, TemplateView]) -> TemplateView | None:
    """`python` or `python@<prefix of its version's hash>` among the known ones."""
    if reference in templates:
        return templates[reference]
    name, at, prefix = reference.partition("@")
    view = templates.get(name) if at else None
    return view if view is not None and len(prefix) >= 6 and view.sha256.startswith(prefix) else None


def merged(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Mappings laid over each other key by key, later ones on top; nulls say nothing."""
    return {key: value for layer in layers if layer for key, value in layer.items() if value is not None}


def _task(task: TaskDoc, defaults: DefaultsDoc, templates: Mapping[str, TemplateView]) -> GraphTask:
    view = find_template(task.template, templates) if task.template is not None else None
    job = dict(task.job) if task.job is not None else None
    body = job or {}
    retry = RetryDoc.model_validate(body["retry"]) if task.retry is None and body.get("retry") else task.retry
    timeout = task.timeout
    if timeout is None and body.get("timeout") is not None:
        timeout = _body_timeout(body["timeout"])
    return GraphTask(
        key=task.name, title=task.title, description=task.description,
        template=view.name if view is not None else None, template_version=view.sha256 if view is not None else None,
        args=dict(task.args), job=job, upstream=tuple(dict.fromkeys(task.depends_on)), trigger=task.trigger,
        when=tuple(task.when), retry=Retry.of(retry or defaults.retry),
        timeout=timeout if timeout is not None else defaults.timeout,
        resources=merged(defaults.resources, body.get("resources"), task.resources),
        env=merged(defaults.env, body.get("env"), task.env),
        distributed=task.distributed, environment=task.environment, skip=task.skip, allow_failure=task.allow_failure,
        position=None if task.position is None else {"x": task.position.x, "y": task.position.y},
    )


def _body_timeout(value: Any) -> float | None:
    try:
        return parse_duration(value)
    except BadQuantity:
        return None


def _task_json(node: GraphTask) -> dict[str, Any]:
    out: dict[str, Any] = {"key": node.key}
    for name in _FIELDS:
        value = getattr(node, name)
        if name == "key" or value is None or value is False or value == () or value == {}:
            continue
        if name == "retry":
            if value == Retry():
                continue
            value = {"limit": value.limit, "backoff": value.backoff, "max_backoff": value.max_backoff}
        out[name] = list(value) if isinstance(value, tuple) else value
    return out


def _task_from(data: Mapping[str, Any]) -> GraphTask:
    values = {name: data[name] for name in _FIELDS if name in data}
    for name in ("upstream", "when"):
        values[name] = tuple(values.get(name, ()))
    values["retry"] = Retry(**values["retry"]) if "retry" in values else Retry()
    return GraphTask(**values)
