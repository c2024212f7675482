"""From a task of a pipeline to the AIJob it runs: arguments, template, overrides, all rendered and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myapp.domain.documents import parse_model
from myapp.domain.errors import CubeError, Problem
from myapp.domain.jobspec import AIJobSpec, check_body
from myapp.domain.pipelinegraph import GraphTask, merged
from myapp.domain.template import ARGS_FILE, JobTemplateSpec, check_rendered_args
from myapp.domain.templating import Context, render


@dataclass(frozen=True)
class RenderedTask:
    """`spec` is complete and checked; `args` are the template's arguments with their values."""

    spec: AIJobSpec
    args: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """The spec as JSON data, for storing; `AIJobSpec.model_validate` reads it back."""
        return self.spec.to_dict()


def render_task(
    task: GraphTask, template: JobTemplateSpec | None, context: Context
) -> tuple[RenderedTask | None, list[Problem]]:
    """The job of one task, or everything wrong with it.

    `template` is the pinned version's spec (None for an inline job); `context` is `templating.make_context`'s, with
    the params, the run and the outputs of upstream tasks. Resources: the task's over the pipeline's defaults over the
    template's. A template's job sees its arguments, the run, the creator, the workspace and the date. Its arguments
    also lie in the job's folder as `args.json`.
    """
    where = f"tasks.{task.key}"
    args: dict[str, Any] = {}
    try:
        if template is None:
            raw = dict(render(task.job or {}, context, field=f"{where}.job"))
        else:
            given = render(task.args, context, field=f"{where}.args")
            args, problems = check_rendered_args(template.args, given, where=f"{where}.args", node=task.key)
            if problems:
                return None, problems
            raw, problems = _from_template(task, template, args, context)
            if problems:
                return None, problems
        overrides = {
            name: render(getattr(task, name), context, field=f"{where}.{name}")
            for name in ("resources", "env", "distributed", "environment")
        }
    except CubeError as error:
        found = error.problems or [Problem(code=error.code, message=error.message, resolution=error.resolution)]
        return None, [p.model_copy(update={"node": task.key}) for p in found]
    for name in ("resources", "env"):
        raw[name] = merged(_mapping(raw.get(name)), _mapping(overrides[name]))
    for name in ("distributed", "environment"):
        if overrides[name]:
            raw[name] = overrides[name]
    raw = _without_nulls(raw)
    raw["retry"] = {"limit": task.retry.limit, "backoff": task.retry.backoff, "maxBackoff": task.retry.max_backoff}
    if task.timeout is not None:
        raw["timeout"] = task.timeout
    spec, problems = parse_model(AIJobSpec, raw, field=where, node=task.key)
    problems.extend(check_body(raw, field=where, node=task.key))
    if spec is None or problems:
        return None, problems
    return RenderedTask(spec, args), []


def _from_template(
    task: GraphTask, template: JobTemplateSpec, args: dict[str, Any], context: Context
) -> tuple[dict[str, Any], list[Problem]]:
    seen = {name: context[name] for name in ("run", "creator", "workspace", "date") if name in context}
    seen["args"] = args
    raw = dict(render(template.job, seen, field="template.job"))
    own = render(template.resources or {}, seen, field="template.resources")
    raw["resources"] = merged(own, _mapping(raw.get("resources")))
    raw["framework"] = template.framework
    files = {**_mapping(raw.get("files")), **template.files}
    name = raw.pop("scriptFile", None)
    if name is not None:
        if name not in template.files:
            message = f"template {task.template} has no file '{name}'"
            where = f"tasks.{task.key}.template"
            return raw, [Problem(code="missing_file", message=message, field=where, node=task.key)]
        raw["script"] = files.pop(name)
    files[ARGS_FILE] = json.dumps(args, ensure_ascii=False)
    raw["files"] = files
    return raw, []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _without_nulls(value: Any) -> Any:
    """Arguments that were left out render to null: their fields are as if not written."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
