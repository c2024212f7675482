"""Publishing: immutable versions, pinned templates, every problem at once, nothing lost to a race."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import func, select

from myapp.catalog import Catalog, catalog_root, load_catalog
from myapp.catalog.source import CatalogProblem
from myapp.domain.errors import Conflict, Forbidden, Invalid, NotFound, Problem
from myapp.domain.permissions import PLATFORM, Actor, Role
from myapp.domain.pipelinegraph import PipelineGraph
from myapp.persistence.database import Database
from myapp.persistence.repositories import templates
from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import AUDIT, PIPELINE_VERSION, RUN
from myapp.services.context import Context
from myapp.services.create_project import ensure_public_project
from myapp.services.delete_pipeline import delete_pipeline
from myapp.services.publish_pipeline import publish_pipeline
from myapp.services.publish_template import publish_template
from myapp.services.read_pipelines import (
    describe_pipeline,
    describe_version,
    find_pipeline,
    list_pipelines,
    list_versions,
)
from myapp.services.read_templates import describe_template, list_templates
from myapp.services.save_schedule import delete_schedule, next_times, pause_schedule, save_schedule
from myapp.services.submit_run import submit_run
from myapp.services.sync_catalog import sync_catalog
from myapp.services.validate_pipeline import validate_document
from tests.factories.platform import add_capacity, make_context, make_project, pipeline_document

TEMPLATE: dict[str, Any] = {
    "apiVersion": "cube-studio.io/v1alpha1",
    "kind": "JobTemplate",
    "metadata": {"name": "greet", "project": "public"},
    "spec": {
        "framework": "shell",
        "args": [{"name": "who", "type": "str", "default": "world"}],
        "job": {"script": "echo hello {{ args.who }}"},
        "outputs": [{"name": "text", "type": "str"}],
    },
}


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Context:
    made = make_context(database, tmp_path)
    ensure_public_project(made)
    return made


@pytest.fixture
def light(sqlite_database: Database, tmp_path: Path) -> Context:
    """The same on SQLite alone, for what does not depend on the database."""
    made = make_context(sqlite_database, tmp_path)
    ensure_public_project(made)
    return made


def versions(context: Context) -> int:
    with context.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(PIPELINE_VERSION)).scalar_one())


def test_the_same_document_again_changes_nothing(context: Context) -> None:
    document = pipeline_document(schedule={"cron": "0 2 * * *"})
    first = publish_pipeline(context, PLATFORM, document)
    assert (first.version, first.created, first.lock_version) == (1, True, 1)
    again = publish_pipeline(context, PLATFORM, document)
    assert (again.id, again.version, again.created, again.lock_version) == (first.id, 1, False, 1)
    changed = publish_pipeline(context, PLATFORM, pipeline_document(schedule={"cron": "0 2 * * *"}, parallelism=3))
    assert (changed.id, changed.version, changed.created, changed.lock_version) == (first.id, 2, True, 2)
    assert describe_version(context, PLATFORM, first.id, 1)["graph"].get("parallelism") is None
    back = publish_pipeline(context, PLATFORM, document)
    assert (back.version, back.created) == (3, True)
    assert [v["version"] for v in list_versions(context, PLATFORM, first.id).result] == [3, 2, 1]


def test_what_is_no_part_of_the_graph_makes_no_version(context: Context) -> None:
    document = pipeline_document()
    first = publish_pipeline(context, PLATFORM, document)
    document["metadata"]["title"] = "A title"
    again = publish_pipeline(context, PLATFORM, document)
    assert (again.version, again.created, again.lock_version) == (1, False, 2)
    found = describe_pipeline(context, PLATFORM, first.id)
    assert (found["title"], found["document"]["metadata"]["title"], found["version"]) == ("A title", "A title", 1)
    assert publish_pipeline(context, PLATFORM, document).lock_version == 2


def test_racing_publishes_make_one_pipeline_and_one_version(context: Context) -> None:
    gate = Barrier(8)

    def race(number: int) -> Any:
        gate.wait()
        return publish_pipeline(context, PLATFORM, pipeline_document())

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(race, range(8)))
    assert len({p.id for p in made}) == 1
    assert sorted((p.version, p.created) for p in made) == [(1, False)] * 7 + [(1, True)]
    assert versions(context) == 1


def test_racing_publishes_of_different_graphs_are_all_kept(context: Context) -> None:
    gate = Barrier(6)

    def race(number: int) -> Any:
        gate.wait()
        return publish_pipeline(context, PLATFORM, pipeline_document(parallelism=number + 1))

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(race, range(6)))
    assert sorted(p.version for p in made) == [1, 2, 3, 4, 5, 6]
    assert describe_pipeline(context, PLATFORM, made[0].id)["version"] == 6


def test_a_later_template_version_changes_no_existing_pipeline(context: Context) -> None:
    old = publish_template(context, PLATFORM, TEMPLATE)
    published = publish_pipeline(context, PLATFORM, pipeline_document(tasks=[{"name": "hello", "template": "greet"}]))
    newer = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "job": {"script": "echo goodbye {{ args.who }}"}}}
    new = publish_template(context, PLATFORM, newer)
    assert (new.version, new.id) == (2, old.id)
    pinned = PipelineGraph.from_json(describe_pipeline(context, PLATFORM, published.id)["graph"])
    assert pinned.task("hello").template_version == old.sha256
    document = pipeline_document(tasks=[{"name": "hello", "template": "greet"}])
    assert publish_pipeline(context, PLATFORM, document).version == 2
    asked = pipeline_document(tasks=[{"name": "hello", "template": f"greet@{old.sha256[:12]}"}])
    third = publish_pipeline(context, PLATFORM, asked)
    assert (
        PipelineGraph.from_json(describe_pipeline(context, PLATFORM, third.id)["graph"]).task("hello").template_version
        == old.sha256
    )


def test_a_stale_if_match_is_a_conflict(light: Context) -> None:
    published = publish_pipeline(light, PLATFORM, pipeline_document())
    publish_pipeline(light, PLATFORM, pipeline_document(parallelism=2), if_match=published.lock_version)
    with pytest.raises(Conflict) as caught:
        publish_pipeline(light, PLATFORM, pipeline_document(parallelism=3), if_match=published.lock_version)
    assert caught.value.code == "stale_document"
    with pytest.raises(NotFound):
        publish_pipeline(light, PLATFORM, pipeline_document("other"), if_match=1)


def test_every_problem_is_told_at_once_and_nothing_is_written(light: Context) -> None:
    add_capacity(light.database, cpu=4000, memory=2**33, gpu=0)
    document = pipeline_document(
        tasks=[
            {"name": "a", "template": "shel", "args": {"command": "true"}},
            {"name": "b", "template": "shell", "args": {"comand": "true"}, "dependsOn": ["nowhere"]},
            {"name": "c", "template": "shell", "args": {"command": "true"}, "dependsOn": ["d"]},
            {
                "name": "d",
                "template": "shell",
                "args": {"command": "true"},
                "dependsOn": ["c"],
                "resources": {"gpu": 2},
            },
        ],
        schedule={"cron": "61 * * * *", "timezone": "Mars/Base"},
    )
    with pytest.raises(Invalid) as caught:
        publish_pipeline(light, PLATFORM, document)
    found = {p.code for p in caught.value.problems}
    assert found >= {
        "unknown_template",
        "unknown_param",
        "missing_upstream",
        "cycle",
        "never_fits",
        "bad_cron",
        "unknown_timezone",
    }
    suggestion = next(p for p in caught.value.problems if p.code == "unknown_template")
    assert (suggestion.node, suggestion.resolution) == ("a", "did you mean 'shell'?")
    assert versions(light) == 0
    assert {p.code for p in validate_document(light, PLATFORM, document)} == found


@pytest.mark.parametrize(
    ("document", "code", "field"),
    [
        (None, "wrong_type", None),
        ({"kind": "Pipelin"}, "bad_kind", "kind"),
        ({**TEMPLATE, "spec": {**TEMPLATE["spec"], "framework": "shel"}}, "unknown_framework", "spec.framework"),
        (
            pipeline_document(tasks=[{"name": "a", "job": {"framework": "shel", "command": ["x"]}}]),
            "unknown_framework",
            "spec.tasks[0].job.framework",
        ),
        (
            {
                "apiVersion": "cube-studio.io/v1alpha1",
                "kind": "AIJob",
                "metadata": {"name": "j"},
                "spec": {"framework": "shell"},
            },
            "command_or_script",
            "spec",
        ),
    ],
)
def test_validation_names_the_field(light: Context, document: Any, code: str, field: str | None) -> None:
    assert (code, field) in [(p.code, p.field) for p in validate_document(light, PLATFORM, document)]


@pytest.mark.parametrize(
    "document",
    [
        pipeline_document(),
        TEMPLATE,
        {
            "apiVersion": "cube-studio.io/v1alpha1",
            "kind": "AIJob",
            "metadata": {"name": "j"},
            "spec": {"framework": "shell", "command": ["true"]},
        },
    ],
)
def test_a_good_document_of_each_kind_has_no_problems(light: Context, document: Any) -> None:
    assert validate_document(light, PLATFORM, document) == []


@pytest.mark.parametrize(
    ("role", "error"), [(Role.VIEWER, Forbidden), (Role.OPS, Forbidden), (Role.DEV, None), (None, NotFound)]
)
def test_publishing_needs_the_right_role(light: Context, role: Role | None, error: type[Exception] | None) -> None:
    project, _ = make_project(light, "vision")
    actor = Actor(5, "somebody", roles={} if role is None else {project: role})
    document = pipeline_document(project="vision")
    if error is None:
        assert publish_pipeline(light, actor, document).created
        return
    with pytest.raises(error):
        publish_pipeline(light, actor, document)
    assert versions(light) == 0


def test_a_schedule_follows_its_document(context: Context) -> None:
    published = publish_pipeline(
        context, PLATFORM, pipeline_document(schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin"})
    )
    first = describe_pipeline(context, PLATFORM, published.id)["schedule"]
    assert (first["cron"], first["timezone"], len(first["next_times"])) == ("0 2 * * *", "Europe/Berlin", 5)
    assert first["next_times"][0] == first["next_due_at"]
    pause_schedule(context, PLATFORM, published.id)
    publish_pipeline(
        context, PLATFORM, pipeline_document(schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin"}, parallelism=2)
    )
    kept = describe_pipeline(context, PLATFORM, published.id)["schedule"]
    assert (kept["paused"], kept["next_due_at"], kept["id"]) == (True, first["next_due_at"], first["id"])
    pause_schedule(context, PLATFORM, published.id, paused=False)
    save_schedule(context, PLATFORM, published.id, {"cron": "30 3 * * *"})
    moved = describe_pipeline(context, PLATFORM, published.id)["schedule"]
    assert (moved["cron"], moved["timezone"], moved["paused"]) == ("30 3 * * *", "UTC", False)
    assert moved["next_due_at"].endswith("T03:30:00.000Z")
    assert len(next_times(context, PLATFORM, published.id, count=3)) == 3
    publish_pipeline(context, PLATFORM, pipeline_document(parallelism=2))
    assert describe_pipeline(context, PLATFORM, published.id)["schedule"] is None
    with pytest.raises(NotFound):
        delete_schedule(context, PLATFORM, published.id)


@pytest.mark.parametrize(
    ("schedule", "code"),
    [
        ({"cron": "0 2 30 2 *"}, "bad_cron"),
        ({"cron": "0 2 * * *", "timezone": "../etc/passwd"}, "unknown_timezone"),
        ({"cron": "0 2 * * *", "params": {"nosuch": 1}}, "unknown_param"),
        ({"cron": "0 2 * * *", "catchup": "some"}, "not_allowed"),
        ({"cronn": "0 2 * * *"}, "unknown_field"),
    ],
)
def test_a_wrong_schedule_is_refused(light: Context, schedule: dict[str, Any], code: str) -> None:
    published = publish_pipeline(light, PLATFORM, pipeline_document())
    with pytest.raises(Invalid) as caught:
        save_schedule(light, PLATFORM, published.id, schedule)
    assert code in [p.code for p in caught.value.problems]
    assert describe_pipeline(light, PLATFORM, published.id)["schedule"] is None


def test_deleting_keeps_runs_readable_and_waits_for_their_end(context: Context) -> None:
    published = publish_pipeline(context, PLATFORM, pipeline_document(schedule={"cron": "0 2 * * *"}))
    publish_pipeline(context, PLATFORM, pipeline_document(parallelism=2))
    run_id = submit_run(context, PLATFORM, pipeline_id=published.id).run_id
    with pytest.raises(Conflict) as caught:
        delete_pipeline(context, PLATFORM, published.id)
    assert str(run_id) in caught.value.message
    with context.database.write() as unit:
        unit.connection.execute(RUN.update().values(phase="stopped"))
    delete_pipeline(context, PLATFORM, published.id)
    with pytest.raises(NotFound):
        describe_pipeline(context, PLATFORM, published.id)
    with context.database.read() as connection:
        row = connection.execute(select(RUN.c.pipeline_id, PIPELINE_VERSION.c.number).join(PIPELINE_VERSION)).one()
    assert (row.pipeline_id, row.number) == (None, 2)
    assert versions(context) == 1
    assert publish_pipeline(context, PLATFORM, pipeline_document()).created


def test_lists_and_names(light: Context) -> None:
    _, actor = make_project(light, "vision", role=Role.DEV)
    for name in ("alpha", "beta"):
        publish_pipeline(light, PLATFORM, pipeline_document(name))
    mine = publish_pipeline(light, actor, pipeline_document("alpha", project="vision"))
    assert [p["id"] for p in list_pipelines(light, actor).result] == [mine.id]
    page = list_pipelines(light, PLATFORM, page_size=2)
    assert (page.count, len(page.result)) == (3, 2)
    assert find_pipeline(light, actor, "alpha") == mine.id
    with pytest.raises(NotFound) as caught:
        find_pipeline(light, PLATFORM, "alpha")
    assert caught.value.code == "ambiguous"
    assert find_pipeline(light, PLATFORM, "alpha", project="vision") == mine.id


def test_the_catalogue_is_taken_over_whole_and_once(context: Context) -> None:
    catalog = load_catalog(catalog_root())
    names = tuple(sorted(catalog.templates))
    assert sync_catalog(context, PLATFORM, catalog).unchanged == names
    shell = catalog.templates["shell"]
    changed = replace(catalog, templates={**catalog.templates, "shell": replace(shell, sha256="f" * 64)})
    del changed.templates["python"]  # type: ignore[attr-defined]
    synced = sync_catalog(context, PLATFORM, changed)
    assert (synced.updated, synced.retired, synced.created) == (("shell",), ("python",), ())
    assert describe_template(context, PLATFORM, "shell")["version"] == 2
    assert "python" not in [t["name"] for t in list_templates(context, PLATFORM, page_size=1000).result]
    with pytest.raises(Invalid):
        publish_pipeline(
            context, PLATFORM, pipeline_document(tasks=[{"name": "a", "template": "python", "args": {"script": "1"}}])
        )
    back = sync_catalog(context, PLATFORM, catalog)
    assert (back.updated, back.retired) == (("python", "shell"), ())
    assert describe_template(context, PLATFORM, "shell")["version"] == 1
    assert sync_catalog(context, PLATFORM, catalog).changed is False


def test_a_broken_catalogue_changes_nothing(light: Context) -> None:
    catalog = load_catalog(catalog_root())
    problem = CatalogProblem(
        "job/x/template.yaml", Problem(code="wrong_type", message="expected text", field="spec.framework", line=7)
    )
    broken = Catalog(catalog.root, catalog.frameworks, {}, catalog.runtime, (problem,))
    with pytest.raises(Invalid, match=r"job/x/template.yaml:7"):
        sync_catalog(light, PLATFORM, broken)
    assert list_templates(light, PLATFORM).count == len(catalog.templates)


def test_the_catalogue_and_projects_do_not_take_each_others_names(light: Context) -> None:
    with pytest.raises(Conflict):
        publish_template(light, PLATFORM, {**TEMPLATE, "metadata": {"name": "shell"}})
    _, stranger = make_project(light, "vision")
    publish_template(light, PLATFORM, TEMPLATE)
    with pytest.raises(Conflict):
        publish_template(light, stranger, {**TEMPLATE, "metadata": {"name": "greet", "project": "vision"}})
    with pytest.raises(NotFound):
        describe_template(light, stranger, "greet")
    with pytest.raises(Forbidden):
        sync_catalog(light, stranger, load_catalog(catalog_root()))
    with light.database.read() as connection:
        assert templates.find_template(connection, TenantScope.platform(), "greet") is not None


def test_what_was_done_is_in_the_audit_trail(light: Context) -> None:
    _, actor = make_project(light, "vision")
    actor = replace(actor, address="10.0.0.9")
    published = publish_pipeline(light, actor, pipeline_document(project="vision"))
    with light.database.read() as connection:
        rows = connection.execute(
            select(AUDIT.c.actor, AUDIT.c.action, AUDIT.c.target, AUDIT.c.address).where(
                AUDIT.c.user_id == actor.user_id
            )
        ).all()
    assert [tuple(r) for r in rows] == [
        (actor.username, "project:pipeline:write", f"pipeline:{published.id}", "10.0.0.9")
    ]
