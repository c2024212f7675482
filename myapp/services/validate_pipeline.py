"""Everything wrong with a document of any kind, without changing anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from myapp.domain.documents import kind_of
from myapp.domain.errors import Problem
from myapp.domain.graph import validate_pipeline
from myapp.domain.jobspec import check_interpreter, parse_aijob
from myapp.domain.naming import did_you_mean, shown
from myapp.domain.permissions import Actor, Permission
from myapp.domain.pipeline import PipelineDoc, parse_pipeline
from myapp.domain.template import JobTemplateDoc, TemplateView, parse_template
from myapp.domain.templating import has_template
from myapp.persistence.scope import TenantScope
from myapp.services.capacity import capacity_view
from myapp.services.context import Context
from myapp.services.create_project import PUBLIC
from myapp.services.cron import check_schedule
from myapp.services.read_projects import require_project
from myapp.services.submit_job import job_graph, unknown_framework
from myapp.services.templates_in_use import template_views

MAX_TITLE, MAX_DESCRIPTION = 200, 2000


def validate_document(ctx: Context, actor: Actor, document: Any) -> list[Problem]:
    """All problems of a Pipeline, AIJob or JobTemplate; it would be accepted when none is an error.

    Raises NotFound for its project.
    """
    kind, problems = kind_of(document)
    if kind is None:
        return problems
    if kind == "Pipeline":
        pipeline, problems = parse_pipeline(document)
        if pipeline is None:
            return problems
        with ctx.database.read() as connection:
            project = require_project(connection, actor, pipeline.metadata.project or PUBLIC, Permission.PIPELINE_READ)
            return check_pipeline(ctx, connection, TenantScope.of(actor), pipeline, str(project["backend"]))[0]
    if kind == "AIJob":
        job, problems = parse_aijob(document)
        if job is None:
            return problems + unknown_framework(ctx, document)
        with ctx.database.read() as connection:
            project = require_project(connection, actor, job.metadata.project or PUBLIC, Permission.PIPELINE_READ)
            return job_graph(ctx, job, document, connection, str(project["backend"]))[1]
    actor.require(Permission.TEMPLATE_READ)
    template, problems = parse_template(document)
    return problems if template is None else check_template(ctx, template)


def check_pipeline(
    ctx: Context, connection: Connection, scope: TenantScope, doc: PipelineDoc, backend: str
) -> tuple[list[Problem], Mapping[str, TemplateView]]:
    """What needs templates, frameworks, capacity and the clock; and the templates its tasks refer to."""
    views = template_views(connection, scope, (task.template for task in doc.spec.tasks if task.template is not None))
    problems = check_texts(doc.metadata.title, doc.metadata.description)
    if doc.spec.schedule is not None:
        problems.extend(check_schedule(doc.spec.schedule.cron, doc.spec.schedule.timezone))
    problems.extend(
        validate_pipeline(
            doc,
            templates=views,
            frameworks=ctx.frameworks,
            capacity=capacity_view(connection, backend),
            backend=backend,
            interpreters=ctx.interpreters,
        )
    )
    return problems, views


def check_template(ctx: Context, doc: JobTemplateDoc) -> list[Problem]:
    """What needs the catalogue's frameworks and the interpreters that are allowed."""
    problems = check_texts(doc.metadata.title, doc.metadata.description)
    if doc.spec.framework not in ctx.frameworks:
        problems.append(
            Problem(
                code="unknown_framework",
                message=f"there is no framework {shown(doc.spec.framework)}",
                field="spec.framework",
                resolution=did_you_mean(doc.spec.framework, ctx.frameworks),
            )
        )
    environment = doc.spec.job.get("environment")
    interpreter = environment.get("interpreter") if isinstance(environment, Mapping) else None
    if isinstance(interpreter, str) and not has_template(interpreter):
        problem = check_interpreter(interpreter, ctx.interpreters, "spec.job.environment.interpreter")
        problems.extend([problem] if problem is not None else [])
    script = doc.spec.job.get("scriptFile")
    if isinstance(script, str) and script not in doc.spec.files:
        problems.append(
            Problem(
                code="missing_file",
                message=f"there is no file {shown(script)}",
                field="spec.job.scriptFile",
                resolution="put its text into spec.files",
            )
        )
    return problems


def check_texts(title: str | None, description: str | None) -> list[Problem]:
    """What the columns of names and descriptions cannot hold."""
    return [
        Problem(code="bad_length", message=f"must be at most {most} characters without NUL", field=f"metadata.{name}")
        for name, value, most in (("title", title, MAX_TITLE), ("description", description, MAX_DESCRIPTION))
        if value is not None and (len(value) > most or "\0" in value)
    ]
