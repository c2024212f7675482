"""No reader of tenants' rows without a scope, and no scope that lets another tenant's rows through."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from myapp.domain.errors import NotFound
from myapp.domain.permissions import Actor, Role
from myapp.persistence import repositories
from myapp.persistence.database import Database
from myapp.persistence.repositories import history, pipelines, projects, results, runs, tasks, templates
from myapp.persistence.repositories.pipelines import PipelineFilter
from myapp.persistence.repositories.runs import RunFilter
from myapp.persistence.scope import TenantScope
from myapp.services.publish_pipeline import publish_pipeline
from myapp.services.publish_template import publish_template
from myapp.services.read_artifact import read_artifact
from myapp.services.read_events import events_after
from myapp.services.read_log import read_log
from myapp.services.read_pipelines import describe_pipeline
from myapp.services.read_projects import describe_project
from myapp.services.read_runs import describe_run, list_metrics, list_tasks, read_run
from tests.factories.platform import make_context, make_project, pipeline_document
from tests.factories.rows import add_run, finish_task, start_task

# Functions that need no scope, and why.
PLATFORM_INTERNAL = {
    "capacity.flavors": "what machines have belongs to no tenant",
    "capacity.held": "sums over all tenants: what is free is the same for everybody",
    "projects.find_user": "users belong to no project",
    "projects.roles_of": "one user's own memberships: what a scope is made of",
    "tasks.queue_ahead": "a number over the whole queue",
    "templates.lock_catalog": "the catalogue belongs to no tenant",
    "templates.name_exists": "names of templates are the platform's: says only that one is taken",
    "templates.taken_names": "the same, for an administrator's catalogue",
}
WRITES_ONE_ROW = "insert_"  # readers of nothing: the service has authorised the project they name
PLATFORM_MODULES = {"invariants": "the doctor's: looks at everything, shows ids only"}


def repository_functions() -> list[tuple[str, Callable[..., Any]]]:
    found: list[tuple[str, Callable[..., Any]]] = []
    for info in pkgutil.iter_modules(repositories.__path__):
        module = importlib.import_module(f"{repositories.__name__}.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found.append((f"{info.name}.{name}", function))
    return found


@pytest.mark.parametrize(("name", "function"), repository_functions())
def test_every_repository_function_takes_a_scope(name: str, function: Callable[..., Any]) -> None:
    module, _, verb = name.partition(".")
    if module in PLATFORM_MODULES or name in PLATFORM_INTERNAL or verb.startswith(WRITES_ONE_ROW):
        return
    scope = inspect.signature(function).parameters.get("scope")
    assert scope is not None, f"{name} takes no scope"
    assert get_type_hints(function)["scope"] is TenantScope
    assert scope.default is inspect.Parameter.empty, f"{name} may be called without a scope"


def test_the_list_of_exceptions_names_real_functions() -> None:
    names = {name for name, _ in repository_functions()}
    assert set(PLATFORM_INTERNAL) <= names
    assert len(names) > 40


READERS: dict[str, Callable[[Any, TenantScope, dict[str, int]], Any]] = {
    "projects.find_project": lambda c, s, i: projects.find_project(c, s, "theirs"),
    "projects.get_project": lambda c, s, i: projects.get_project(c, s, i["project"]),
    "projects.list_projects": lambda c, s, i: [
        r for r in projects.list_projects(c, s, limit=10) if r["slug"] == "theirs"
    ],
    "projects.count_projects": lambda c, s, i: projects.count_projects(c, s, contains="theirs"),
    "projects.list_members": lambda c, s, i: projects.list_members(c, s, i["project"]),
    "projects.role_of": lambda c, s, i: projects.role_of(c, s, i["project"], i["user"]),
    "projects.count_role": lambda c, s, i: projects.count_role(c, s, i["project"], "owner"),
    "runs.list_runs": lambda c, s, i: [r for r in runs.list_runs(c, s, RunFilter(), limit=10) if r["id"] == i["run"]],
    "runs.list_runs by pipeline": lambda c, s, i: runs.list_runs(c, s, RunFilter(pipeline_id=i["pipeline"]), limit=10),
    "runs.list_runs by name": lambda c, s, i: runs.list_runs(c, s, RunFilter(pipeline="their-pipeline"), limit=10),
    "runs.list_runs by project": lambda c, s, i: runs.list_runs(c, s, RunFilter(project="theirs"), limit=10),
    "runs.count_runs": lambda c, s, i: runs.count_runs(c, s, RunFilter(project="theirs"), at_most=10),
    "runs.get_run": lambda c, s, i: runs.get_run(c, s, i["run"]),
    "runs.active_runs": lambda c, s, i: runs.active_runs(c, s, i["pipeline"], []),
    "tasks.task_counts": lambda c, s, i: tasks.task_counts(c, s, i["run"]),
    "tasks.list_tasks": lambda c, s, i: tasks.list_tasks(c, s, i["run"], limit=10),
    "tasks.get_task": lambda c, s, i: tasks.get_task(c, s, i["run"], "one"),
    "tasks.get_task_by_id": lambda c, s, i: tasks.get_task_by_id(c, s, i["task"]),
    "tasks.list_attempts": lambda c, s, i: tasks.list_attempts(c, s, i["run"], [i["task"]]),
    "tasks.get_attempt": lambda c, s, i: tasks.get_attempt(c, s, i["run"], i["task"], None),
    "results.list_outputs": lambda c, s, i: results.list_outputs(c, s, i["run"], limit=10),
    "results.find_output": lambda c, s, i: results.find_output(c, s, i["run"], "one", "model"),
    "results.last_metrics": lambda c, s, i: results.last_metrics(c, s, i["run"], limit=10),
    "results.metric_points": lambda c, s, i: results.metric_points(c, s, i["run"], limit=10),
    "results.sealed_logs": lambda c, s, i: results.sealed_logs(c, s, i["attempt"]),
    "history.events_after": lambda c, s, i: history.events_after(c, s, i["run"], 0, limit=10),
    "history.list_audit": lambda c, s, i: [
        r for r in history.list_audit(c, s, limit=100) if r["project_id"] == i["project"]
    ],
    "pipelines.list_pipelines": lambda c, s, i: pipelines.list_pipelines(
        c, s, PipelineFilter(project="theirs"), limit=10
    ),
    "pipelines.count_pipelines": lambda c, s, i: pipelines.count_pipelines(c, s, PipelineFilter(name="their-pipeline")),
    "pipelines.get_pipeline": lambda c, s, i: pipelines.get_pipeline(c, s, i["pipeline"]),
    "pipelines.get_version": lambda c, s, i: pipelines.get_version(c, s, version_id=i["version"]),
    "pipelines.get_version by number": lambda c, s, i: pipelines.get_version(c, s, pipeline_id=i["pipeline"], number=1),
    "pipelines.list_versions": lambda c, s, i: pipelines.list_versions(c, s, i["pipeline"], limit=10),
    "pipelines.last_number": lambda c, s, i: pipelines.last_number(c, s, i["pipeline"]),
    "pipelines.get_schedule": lambda c, s, i: pipelines.get_schedule(c, s, i["pipeline"]),
    "templates.find_template": lambda c, s, i: templates.find_template(c, s, "their-template"),
    "templates.versions_named": lambda c, s, i: templates.versions_named(c, s, ["their-template"]),
    "templates.template_names": lambda c, s, i: [n for n in templates.template_names(c, s) if n == "their-template"],
    "templates.list_templates": lambda c, s, i: templates.list_templates(c, s, contains="their-template", limit=10),
    "templates.count_templates": lambda c, s, i: templates.count_templates(c, s, contains="their-template"),
    "templates.documents_of": lambda c, s, i: templates.documents_of(c, s, [i["template_version"]]),
    "templates.last_number": lambda c, s, i: templates.last_number(c, s, i["template"]),
    "templates.find_version": lambda c, s, i: templates.find_version(c, s, i["template"], i["template_sha256"]),  # type: ignore[arg-type]
}
# These lock rows, so they run in a write transaction; they are tried there.
LOCKERS: dict[str, Callable[[Any, TenantScope, dict[str, int]], Any]] = {
    "projects.lock_project": lambda c, s, i: projects.lock_project(c, s, i["project"]),
    "projects.update_project": lambda c, s, i: projects.update_project(c, s, i["project"], title="x"),
    "projects.update_member": lambda c, s, i: projects.update_member(c, s, i["project"], i["user"], "owner"),
    "pipelines.lock_pipeline": lambda c, s, i: pipelines.lock_pipeline(c, s, pipeline_id=i["pipeline"]),
    "pipelines.update_pipeline": lambda c, s, i: pipelines.update_pipeline(c, s, i["pipeline"], title="x"),
    "pipelines.update_schedule": lambda c, s, i: pipelines.update_schedule(c, s, i["pipeline"], paused=True),
    "templates.lock_template": lambda c, s, i: templates.lock_template(c, s, "their-template"),
    "templates.update_template": lambda c, s, i: templates.update_template(c, s, i["template"], title="x"),
    "projects.delete_member": lambda c, s, i: projects.delete_member(c, s, i["project"], i["user"]),
    "pipelines.delete_schedule": lambda c, s, i: pipelines.delete_schedule(c, s, i["pipeline"]),
}
COVERED_ELSEWHERE = {"pipelines.delete_pipeline"}


def test_every_scoped_function_is_tried() -> None:
    scoped = {name for name, function in repository_functions() if "scope" in inspect.signature(function).parameters}
    assert scoped - {name.split()[0] for name in (*READERS, *LOCKERS)} == COVERED_ELSEWHERE


def test_another_tenant_sees_nothing(database: Database, tmp_path: Path) -> None:
    context = make_context(database, tmp_path)
    theirs, owner = make_project(context, "theirs", role=Role.OWNER)
    ours, _ = make_project(context, "ours")
    with database.write() as unit:
        projects.insert_member(
            unit.connection, project_id=theirs, user_id=owner.user_id, role="owner", created_at=unit.now
        )
    document = pipeline_document("their-pipeline", project="theirs", schedule={"cron": "0 2 * * *"})
    published = publish_pipeline(context, owner, document)
    template = publish_template(
        context,
        owner,
        {
            "apiVersion": document["apiVersion"],
            "kind": "JobTemplate",
            "metadata": {"name": "their-template", "project": "theirs"},
            "spec": {"framework": "shell", "job": {"command": ["true"]}},
        },
    )
    scope = TenantScope.of(owner)
    with database.read() as connection:
        version = pipelines.get_version(connection, scope, pipeline_id=published.id, number=1)
        versions = templates.versions_named(connection, scope, ["their-template"])
    assert version is not None
    run_id = add_run(database, theirs, version["id"], pipeline_id=published.id)
    attempt = start_task(database, run_id)
    _results(database, run_id, attempt)
    ids: dict[str, Any] = {
        "project": theirs,
        "user": owner.user_id,
        "run": run_id,
        "pipeline": published.id,
        "version": version["id"],
        "attempt": attempt,
        "template": template.id,
        "template_version": versions[0]["id"],
        "template_sha256": template.sha256,
        "task": _task(database, run_id),
    }
    foreign = [TenantScope(frozenset()), TenantScope(frozenset({ours}))]
    for name, reader in READERS.items():
        with database.read() as connection:
            assert reader(connection, scope, ids), f"{name} does not even show it to its owner"
            assert reader(connection, TenantScope.platform(), ids), f"{name} does not show it to the platform"
            for other in foreign:
                assert not reader(connection, other, ids), f"{name} shows another tenant's rows"
    for name, locker in LOCKERS.items():
        with database.write() as unit:
            for other in foreign:
                assert not locker(unit.connection, other, ids), f"{name} touches another tenant's rows"
            assert locker(unit.connection, scope, ids), f"{name} does not even work for its owner"
    with database.write() as unit:
        for other in foreign:
            assert not pipelines.delete_pipeline(unit.connection, other, published.id)


def test_services_answer_as_if_another_tenants_things_were_not_there(database: Database, tmp_path: Path) -> None:
    context = make_context(database, tmp_path)
    theirs, owner = make_project(context, "theirs", role=Role.OWNER)
    _, stranger = make_project(context, "ours")
    published = publish_pipeline(context, owner, pipeline_document("their-pipeline", project="theirs"))
    with database.read() as connection:
        version = pipelines.get_version(connection, TenantScope.of(owner), pipeline_id=published.id, number=1)
    assert version is not None
    run_id = add_run(database, theirs, version["id"])
    start_task(database, run_id)
    finish_task(database, run_id)
    calls: list[Callable[[Actor], Any]] = [
        lambda actor: read_run(context, actor, run_id),
        lambda actor: describe_run(context, actor, run_id),
        lambda actor: list_tasks(context, actor, run_id),
        lambda actor: list_metrics(context, actor, run_id),
        lambda actor: events_after(context, actor, run_id),
        lambda actor: read_log(context, actor, run_id, "one"),
        lambda actor: describe_pipeline(context, actor, published.id),
        lambda actor: describe_project(context, actor, "theirs"),
    ]
    for call in calls:
        call(owner)
        with pytest.raises(NotFound):
            call(stranger)
    with pytest.raises(NotFound):
        read_artifact(context, stranger, run_id, "one", "model")


def _task(database: Database, run_id: int) -> int:
    from tests.factories.rows import task_id

    return task_id(database, run_id)


def _results(database: Database, run_id: int, attempt: int) -> None:
    from myapp.persistence.tables import LOG_CHUNK, METRIC, OUTPUT, insert_row

    base = {"run_id": run_id, "task_run_id": _task(database, run_id), "attempt_id": attempt}
    with database.write() as unit:
        insert_row(unit.connection, OUTPUT, {**base, "name": "model", "kind": "value", "value": 1})
        insert_row(unit.connection, METRIC, {**base, "name": "loss", "value": 0.5, "at": 0.0})
        insert_row(
            unit.connection,
            LOG_CHUNK,
            {
                "attempt_id": attempt,
                "rank": 0,
                "seq": 0,
                "byte_start": 0,
                "byte_end": 1,
                "object_key": "k",
                "sealed": True,
            },
        )
