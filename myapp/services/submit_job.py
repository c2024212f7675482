"""Submit one AIJob: a run with a single task, on the same path as every pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, select

from myapp.domain.documents import API_VERSION
from myapp.domain.errors import NotFound, Problem, errors_in, invalid_document
from myapp.domain.graph import validate_pipeline
from myapp.domain.jobspec import AIJob, parse_aijob
from myapp.domain.naming import did_you_mean, shown, slugify
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipeline import parse_pipeline
from myapp.domain.pipelinegraph import PipelineGraph
from myapp.models import PipelineVersion, Project
from myapp.persistence.scope import TenantScope
from myapp.services.capacity import capacity_view
from myapp.services.context import Context
from myapp.services.submit_run import RunRequest, Submitted, submit

DEFAULT_PROJECT = "public"


def submit_job(
    ctx: Context,
    actor: Actor,
    document: Mapping[str, Any],
    *,
    project: str | None = None,
    idempotency_key: str | None = None,
) -> Submitted:
    """`project` (else the document's, else `public`) names where it runs. Raises Invalid with every problem at once."""
    job, problems = parse_aijob(document)
    if job is None:
        raise invalid_document("the job is wrong", problems + unknown_framework(ctx, document))
    slug = project or job.metadata.project or DEFAULT_PROJECT
    with ctx.database.read() as connection:
        row = connection.execute(
            select(Project.id, Project.backend).where(Project.slug == slug, TenantScope.of(actor).where(Project.id))
        ).one_or_none()
        if row is None:
            raise NotFound(f"project '{slug}' was not found", resolution="List yours with `cube get projects`.")
        actor.require(Permission.JOB_SUBMIT, row.id, what=f"project {slug}")
        graph, problems = job_graph(ctx, job, document, connection, row.backend)
    if graph is None:
        raise invalid_document("the job is wrong", errors_in(problems))
    version_id = _version(ctx, row.id, graph, document, actor)
    submitted = submit(
        ctx,
        RunRequest(
            project_id=row.id,
            pipeline_id=None,
            version_id=version_id,
            name=job.metadata.name,
            kind="job",
            graph=graph,
            params={},
            actor=actor,
            priority=job.spec.priority,
            backend=row.backend,
            queue=job.spec.queue,
            idempotency_key=idempotency_key,
        ),
    )
    return replace(submitted, warnings=tuple(problems))


def job_graph(
    ctx: Context, job: AIJob, document: Mapping[str, Any], connection: Connection, backend: str
) -> tuple[PipelineGraph | None, list[Problem]]:
    """The one-task graph of a job, None when anything is wrong with it; problems are named by the job's own fields."""
    key = task_key(job.metadata.name)
    wrapped = {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": job.metadata.name},
        "spec": {"tasks": [{"name": key, "job": dict(document["spec"])}]},
    }
    doc, problems = parse_pipeline(wrapped)
    if doc is not None:
        problems = validate_pipeline(
            doc,
            templates={},
            frameworks=ctx.frameworks,
            capacity=capacity_view(connection, backend),
            backend=backend,
            interpreters=ctx.interpreters,
        )
    problems = [_unwrap(p) for p in problems]
    if doc is None or errors_in(problems):
        return None, problems
    return PipelineGraph.of(doc, {}), problems


def unknown_framework(ctx: Context, document: Any) -> list[Problem]:
    """For a job that could not be read: what else is wrong with its framework."""
    spec = document.get("spec") if isinstance(document, Mapping) else None
    name = spec.get("framework") if isinstance(spec, Mapping) else None
    if not isinstance(name, str) or name in ctx.frameworks:
        return []
    return [Problem(code="unknown_framework", message=f"there is no framework {shown(name)}", field="spec.framework",
                    resolution=did_you_mean(name, ctx.frameworks))]


def task_key(name: str) -> str:
    """A task key made of a job's name: the two alphabets differ."""
    slug = slugify(name)
    return slug if slug[:1].isalpha() else f"job-{slug}"


def _unwrap(problem: Problem) -> Problem:
    field = problem.field
    for prefix in ("spec.tasks[0].job", "spec.tasks[0]"):
        if field and field.startswith(prefix):
            field = "spec" + field[len(prefix) :]
            break
    return problem.model_copy(update={"field": field, "node": None})


def _version(ctx: Context, project_id: int, graph: PipelineGraph, document: Mapping[str, Any], actor: Actor) -> int:
    """The immutable version that holds this graph, made when it is new. Twice the same is harmless."""
    sha256 = graph.sha256()
    query = select(PipelineVersion.id).where(
        PipelineVersion.project_id == project_id,
        PipelineVersion.sha256 == sha256,
        PipelineVersion.pipeline_id.is_(None),
    )
    with ctx.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar_one_or_none()
    if found is not None:
        return int(found)
    with ctx.database.write() as unit:
        result = unit.connection.execute(
            insert(PipelineVersion).values(
                project_id=project_id,
                pipeline_id=None,
                number=1,
                sha256=sha256,
                graph=graph.to_json(),
                document=dict(document),
                created_by=actor.username[:64],
                created_at=unit.now,
            )
        )
        return int(result.inserted_primary_key[0])  # type: ignore[index]
