"""The spec of a task, rendered once, when all it depends on is known: from then on nothing can change what runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Row, select

from myapp.domain.backendfit import check_backend
from myapp.domain.capacity import check_fit
from myapp.domain.conditions import Condition
from myapp.domain.errors import CubeError, Invalid, errors_in, invalid_document
from myapp.domain.frameworks.topology import check_job, plan
from myapp.domain.jobspec import check_interpreter
from myapp.domain.pipelinegraph import GraphTask
from myapp.domain.taskspec import render_task
from myapp.domain.template import JobTemplateSpec
from myapp.domain.templating import make_context, references
from myapp.models import JobTemplate, JobTemplateVersion
from myapp.persistence import run_store
from myapp.services.capacity import capacity_view
from myapp.services.context import Context

_RENDERED = ("args", "job", "env", "resources", "distributed", "environment")


@dataclass(frozen=True)
class FrozenSpec:
    """`document`: `{job, inputs, retry, timeout, grace}`; the sums are over all ranks (millicores, bytes, count)."""

    document: dict[str, Any]
    sha256: str
    cpu_milli: int
    memory: int
    gpu: int


@dataclass(frozen=True)
class FrozenTask:
    """A task with everything its expressions may refer to. `spec()` raises CubeError when it cannot be rendered.

    `open`: it holds expressions, so publishing could not yet tell whether what it asks for can ever fit.
    """

    services: Context
    connection: Connection
    node: GraphTask
    context: dict[str, Any]
    inputs: tuple[str, ...]
    backend: str
    open: bool

    def spec(self) -> FrozenSpec:
        node = self.node
        template = None
        if node.template is not None and node.template_version is not None:
            template = template_version(self.services, self.connection, node.template, node.template_version)
        rendered, problems = render_task(node, template, self.context)
        if rendered is None:
            raise invalid_document(f"task {node.key} cannot be rendered", problems)
        spec = rendered.spec
        framework = self.services.frameworks.get(spec.framework)
        if framework is None:
            raise Invalid(
                f"there is no framework '{spec.framework}'", resolution="Synchronise the catalogue, or edit the task."
            )
        field = f"tasks.{node.key}"
        job = rendered.document()
        problems = errors_in(check_backend(self.backend, job, field=field, node=node.key))
        if (name := spec.environment.interpreter if spec.environment else None) is not None:
            where = f"{field}.environment.interpreter"
            problem = check_interpreter(name, self.services.interpreters, where, node.key)
            problems.extend([problem] if problem is not None else [])
        if problems:
            raise invalid_document(f"task {node.key} cannot run", problems)
        planned, problems = plan(framework, spec, field=field, node=node.key)
        problems = problems or check_job(framework, spec, field=field, node=node.key)
        if planned is None or problems:
            raise invalid_document(f"task {node.key} cannot run", problems)
        document = {
            "job": job,
            "inputs": list(self.inputs),
            "retry": {"limit": spec.retry.limit, "backoff": spec.retry.backoff, "max_backoff": spec.retry.max_backoff},
            "timeout": spec.timeout,
            "grace": framework.stop.grace_s,
        }
        ranks = [rank.resources for rank in planned.ranks]
        there = capacity_view(self.connection, self.backend) if self.open else None
        problems = check_fit(ranks, there, field=f"{field}.resources", node=node.key) if there else []
        if problems:
            raise invalid_document(f"task {node.key} can never start", problems)
        return FrozenSpec(
            document=document,
            sha256=hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest(),
            cpu_milli=sum(r.cpu_milli for r in ranks),
            memory=sum(r.memory for r in ranks),
            gpu=sum(r.gpu for r in ranks),
        )


def freeze_task(services: Context, connection: Connection, run: Row[Any], node: GraphTask) -> FrozenTask:
    """Gather what the task's expressions refer to: parameters, the run, and the outputs of the tasks they name."""
    found = [ref for name in _RENDERED if (part := getattr(node, name)) for ref in references(part)]
    named = {ref.task for ref in found if ref.task}
    named |= {ref.task for text in node.when for ref in Condition.parse(text).references() if ref.task}
    tasks, inputs = _tasks(services, connection, run.id, sorted(named)) if named else ({}, ())
    project = services.slug(connection, run.project_id)
    at = datetime.fromtimestamp(run.scheduled_at or run.submitted_at, UTC)
    context = make_context(
        params=run.params,
        run={"id": run.id, "name": run.name, "project": project},
        creator=run.created_by,
        workspace=services.workspace_of(project),
        at=at,
        tasks=tasks,
    )
    return FrozenTask(services, connection, node, context, inputs, run.backend, bool(found))


def _tasks(
    services: Context, connection: Connection, run_id: int, keys: list[str]
) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Phase and outputs of the named tasks; artifacts as local paths, which become readable inputs of the job."""
    phases = run_store.phases_of(connection, run_id, keys)
    found = run_store.outputs(connection, run_id, keys)
    inputs: list[str] = []
    tasks: dict[str, dict[str, Any]] = {}
    for key, phase in phases.items():
        outputs: dict[str, Any] = {}
        for name, value in found.get(key, {}).items():
            if isinstance(value, run_store.Artifact):
                path = services.artifacts.local_path(value.path)
                if path is None:
                    raise CubeError(f"artifact {name} of {key} is not on this machine")
                outputs[name] = path
                inputs.append(path)
            else:
                outputs[name] = value
        tasks[key] = {"phase": str(phase), "outputs": outputs}
    return tasks, tuple(inputs)


def template_version(services: Context, connection: Connection, name: str, sha256: str) -> JobTemplateSpec:
    """A pinned template version, from the process's cache or the database: it never changes."""
    cached = services.templates.get((name, sha256))
    if cached is not None:
        return cached
    row = connection.execute(
        select(JobTemplateVersion.document, JobTemplateVersion.files)
        .join(JobTemplate, JobTemplate.id == JobTemplateVersion.job_template_id)
        .where(JobTemplate.name == name, JobTemplateVersion.sha256 == sha256)
    ).one_or_none()
    if row is None:
        raise Invalid(f"version {sha256[:12]} of template {name} is gone", resolution="Publish the pipeline again.")
    spec = JobTemplateSpec.model_validate(row.document["spec"])
    services.templates[(name, sha256)] = spec.model_copy(update={"files": {**spec.files, **row.files}})
    return services.templates[(name, sha256)]
