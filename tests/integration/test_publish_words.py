"""What publishing and submitting answer besides ids: what changed, and what was accepted without effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from myapp.domain.errors import Invalid
from myapp.domain.permissions import PLATFORM
from myapp.persistence.database import Database
from myapp.services.context import Context
from myapp.services.create_project import ensure_public_project
from myapp.services.publish_pipeline import publish_pipeline
from myapp.services.publish_template import publish_template
from myapp.services.submit_job import submit_job
from myapp.services.validate_pipeline import validate_document
from tests.factories.platform import make_context, pipeline_document

NIGHTLY = {"cron": "0 2 * * *"}
HEAD = {"apiVersion": "cube-studio.io/v1alpha1"}


@pytest.fixture
def context(sqlite_database: Database, tmp_path: Path) -> Context:
    made = replace(make_context(sqlite_database, tmp_path), interpreters=frozenset({"torch"}))
    ensure_public_project(made)
    return made


def job(**spec: Any) -> dict[str, Any]:
    return {**HEAD, "kind": "AIJob", "metadata": {"name": "j"},
            "spec": {"framework": "shell", "command": ["true"], **spec}}


def test_what_changed_is_said(context: Context) -> None:
    def publish(metadata: dict[str, Any] | None = None, **spec: Any) -> tuple[bool, tuple[str, ...]]:
        document = pipeline_document(**spec)
        document["metadata"] |= metadata or {}
        done = publish_pipeline(context, PLATFORM, document)
        return done.created, done.changes

    assert publish() == (True, ())
    assert publish() == (False, ())
    assert publish(schedule=NIGHTLY) == (False, ("schedule added",))
    assert publish(schedule=NIGHTLY) == (False, ())
    assert publish(schedule={**NIGHTLY, "timezone": "Europe/Berlin"}) == (False, ("schedule changed",))
    assert publish({"title": "T", "description": "D"}) == (
        False, ("schedule removed", "title changed", "description changed"))
    assert publish({"title": "T", "description": "D"}, schedule=NIGHTLY, parallelism=2) == (True, ("schedule added",))
    assert publish({"title": "T", "description": "D"}, schedule=NIGHTLY, parallelism=3) == (True, ())
    labelled = {"title": "T", "description": "D", "labels": {"a": "b"}}
    assert publish(labelled, schedule=NIGHTLY, parallelism=3) == (False, ("document changed",))


def test_a_warning_is_told_and_forbids_nothing(context: Context) -> None:
    document = pipeline_document(tasks=[{"name": "a", "job": {**job()["spec"], "image": "busybox"}}])
    done = publish_pipeline(context, PLATFORM, document)
    assert (done.created, [(p.field, p.severity) for p in done.warnings]) == (
        True, [("spec.tasks[0].job.image", "warning")])
    assert [p.severity for p in validate_document(context, PLATFORM, document)] == ["warning"]
    submitted = submit_job(context, PLATFORM, job(resources={"gpuType": "A100"}))
    assert [p.field for p in submitted.warnings] == ["spec.resources.gpuType"]
    assert submit_job(context, PLATFORM, job()).warnings == ()


def test_a_refusal_names_its_errors_alone(context: Context) -> None:
    wrong = job(image="busybox", volumes=[{"type": "pvc", "name": "data"}], environment={"interpreter": "toch"})
    with pytest.raises(Invalid) as refused:
        submit_job(context, PLATFORM, wrong)
    assert [p.field for p in refused.value.problems] == ["spec.volumes[0].type", "spec.environment.interpreter"]
    assert "needs a Kubernetes cluster" in refused.value.message
    assert [p.severity for p in validate_document(context, PLATFORM, wrong)] == ["error", "error", "warning"]
    with pytest.raises(Invalid, match="needs a Kubernetes cluster"):
        publish_pipeline(context, PLATFORM, pipeline_document(tasks=[{"name": "a", "job": wrong["spec"]}]))


@pytest.mark.parametrize(("name", "problems"), [("torch", []), ("toch", ["unknown_interpreter"])])
def test_interpreters_are_checked_everywhere(context: Context, name: str, problems: list[str]) -> None:
    environment = {"interpreter": name}
    template = {**HEAD, "kind": "JobTemplate", "metadata": {"name": "t", "project": "public"},
                "spec": {"framework": "shell", "job": {"script": "true", "environment": environment}}}
    tasks = [{"name": "a", "template": "shell", "args": {"command": "true"}, "environment": environment}]
    for document in (job(environment=environment), pipeline_document(tasks=tasks), template):
        assert [p.code for p in validate_document(context, PLATFORM, document)] == problems
    if problems:
        with pytest.raises(Invalid, match="there is no interpreter 'toch'"):
            publish_template(context, PLATFORM, template)


def test_a_cron_expression_is_as_long_as_its_column(context: Context) -> None:
    minutes = ",".join(str(minute) for minute in range(0, 60, 2))
    fits = f"{minutes} * * * *".ljust(100)
    assert publish_pipeline(context, PLATFORM, pipeline_document(schedule={"cron": fits})).created
    with pytest.raises(Invalid) as refused:
        publish_pipeline(context, PLATFORM, pipeline_document(schedule={"cron": fits + " "}))
    assert [p.field for p in refused.value.problems] == ["spec.schedule.cron"]


def test_an_unknown_framework_is_told_with_whatever_else_is_wrong(context: Context) -> None:
    document = job(framework="shel", comand=["true"], resources={"gpus": 1})
    del document["spec"]["command"]
    wanted = {"spec.framework", "spec.comand", "spec.resources.gpus"}
    assert {p.field for p in validate_document(context, PLATFORM, document)} == wanted
    with pytest.raises(Invalid) as caught:
        submit_job(context, PLATFORM, document)
    assert {p.field for p in caught.value.problems} == wanted


def test_a_misspelt_field_is_not_missing_as_well(context: Context) -> None:
    document = job()
    document["spec"]["framewrok"] = document["spec"].pop("framework")
    assert [(p.code, p.field) for p in validate_document(context, PLATFORM, document)] == [
        ("unknown_field", "spec.framewrok")]
