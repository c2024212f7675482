"""The documentation says nothing that is not so: links, documents, commands, settings, fields, routes, permissions."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask import Flask
from pydantic import BaseModel

from myapp import cli, cli_docs
from myapp.catalog import Catalog, load_catalog
from myapp.config import Settings
from myapp.controllers import advance
from myapp.domain.documents import Doc, Metadata
from myapp.domain.errors import Problem
from myapp.domain.frameworks import framework as fw
from myapp.domain.frameworks.topology import check_job
from myapp.domain.graph import validate_pipeline
from myapp.domain.jobspec import (
    AIJobSpec,
    DistributedDoc,
    ElasticDoc,
    EnvironmentDoc,
    ResourcesDoc,
    RetryDoc,
    RoleDoc,
    VolumeDoc,
    parse_aijob,
)
from myapp.domain.params import ArgSpec
from myapp.domain.permissions import ROLE_PERMISSIONS, Permission, Role
from myapp.domain.pipeline import DefaultsDoc, PipelineSpec, ScheduleDoc, TaskDoc, parse_pipeline
from myapp.domain.ports import Cause
from myapp.domain.runs.phases import AttemptPhase, RunPhase, TaskPhase
from myapp.domain.runs.retry import INFRASTRUCTURE, NEVER
from myapp.domain.runs.trigger import Trigger
from myapp.domain.template import JobTemplateSpec, OutputSpec, TemplateView, parse_template
from myapp.views import app as application
from myapp.views.api import api, site
from myapp.views.openapi import describe

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = ("cli.md", "settings.md")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```([a-z]*)[^\n]*\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
ABSOLUTE = re.compile(r"(?<![\w.:/$~}>*])/(?:home|root|work|tmp|Users|mnt|srv|private|data)/[\w.-]+")
NOT_OURS = {"CUBE_URL", "CUBE_TOKEN", "CUBE_PASSWORD"}  # of the command, not of the platform


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences(path: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(path.read_text()):
        if language in languages:
            yield text


def anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text())
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        found = file.is_relative_to(ROOT) and file.exists()
        if not found or (fragment and fragment not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_is_on_the_map() -> None:
    page = ROOT / "docs" / "README.md"
    linked = {(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(page.read_text())}
    folders = ("tutorial", "howto", "reference", "explanation")
    assert [page_id(p) for p in PAGES if p.parent.name in folders and p.resolve() not in linked] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_no_paths_of_a_machine(path: Path) -> None:
    assert ABSOLUTE.findall(path.read_text()) == []


# ---- documents ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(ROOT / "job-template")


def documents() -> list[Any]:
    found = []
    for path in PAGES:
        for number, text in enumerate(fences(path, "yaml")):
            for document in yaml.safe_load_all(text):
                name = f"{page_id(path)}[{number}] {document['kind']} {document['metadata']['name']}"
                found.append(pytest.param(document, id=name))
    return found


def problems_of(document: dict[str, Any], catalog: Catalog) -> list[Problem]:
    kind = document["kind"]
    if kind == "JobTemplate":
        return parse_template(document)[1]
    if kind == "AIJob":
        job, problems = parse_aijob(document)
        return check_job(catalog.frameworks[job.spec.framework], job.spec) if job is not None else problems
    pipeline, problems = parse_pipeline(document)
    views: dict[str, TemplateView] = {key: template.view() for key, template in catalog.templates.items()}
    return problems if pipeline is None else validate_pipeline(pipeline, templates=views, frameworks=catalog.frameworks)


@pytest.mark.parametrize("document", documents())
def test_documents_are_valid(catalog: Catalog, document: dict[str, Any]) -> None:
    assert problems_of(document, catalog) == []


def test_a_wrong_document_would_be_found(catalog: Catalog) -> None:
    task = {"name": "a", "template": "shel", "args": {}}
    wrong = {"apiVersion": "cube-studio.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "x"},
             "spec": {"tasks": [task]}}
    assert [p.code for p in problems_of(wrong, catalog)] == ["unknown_template"]


def test_the_framework_example_is_valid() -> None:
    page = ROOT / "docs" / "howto" / "add-a-framework.md"
    examples = [text for text in fences(page, "") if text.startswith("name:")]
    assert len(examples) == 1
    assert fw.parse_framework(yaml.safe_load(examples[0]))[1] == []


# ---- fields ---------------------------------------------------------------------------------------------------------


def tables(path: Path, level: int) -> dict[str, list[list[str]]]:
    """Heading -> the rows of the tables below it, without their two head lines."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip() if len(line) - len(line.lstrip("#")) <= level else heading
        elif line.startswith("|") and not set(line) <= set("|- "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found.setdefault(heading, []).append(cells)
    return {name: rows[1:] for name, rows in found.items()}


def names(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in CODE.findall(row[0])]


def aliases(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


FIELDS: list[tuple[str, type[Doc]]] = [
    ("metadata", Metadata), ("AIJob spec", AIJobSpec), ("resources", ResourcesDoc), ("distributed", DistributedDoc),
    ("role", RoleDoc), ("environment", EnvironmentDoc), ("retry", RetryDoc), ("elastic", ElasticDoc),
    ("volume", VolumeDoc), ("Pipeline spec", PipelineSpec), ("task", TaskDoc), ("schedule", ScheduleDoc),
    ("defaults", DefaultsDoc), ("JobTemplate spec", JobTemplateSpec), ("output", OutputSpec),
    ("Parameters and arguments", ArgSpec),
]


@pytest.mark.parametrize(("heading", "model"), FIELDS, ids=[heading for heading, _ in FIELDS])
def test_every_field_of_a_document_is_described(heading: str, model: type[Doc]) -> None:
    described = names(tables(REFERENCE / "documents.md", 3)[heading])
    assert sorted(described) == sorted(aliases(model))


@pytest.mark.parametrize(
    ("heading", "model", "besides"),
    [
        ("Framework files", fw.Framework, set()),
        ("roles", fw.RoleDef, set()),
        ("versions", fw.VersionDef, {"hardware"}),
    ],
)
def test_every_field_of_a_framework_is_described(heading: str, model: type[BaseModel], besides: set[str]) -> None:
    described = set(names(tables(REFERENCE / "framework.md", 2)[heading]))
    assert aliases(model) - besides <= described
    assert not {name for name in described - aliases(model) if not fw.HARDWARE.match(name)}


@pytest.mark.parametrize(("heading", "model"), FIELDS, ids=[heading for heading, _ in FIELDS])
def test_simple_defaults_are_right(heading: str, model: type[Doc]) -> None:
    """A default that the page gives as one literal, and the model as a number, text or truth."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    wrong = []
    for row in tables(REFERENCE / "documents.md", 3)[heading]:
        for name in CODE.findall(row[0]):
            default, said = fields[name].default, row[2]
            if fields[name].is_required():
                right = said in ("required", "")
            elif isinstance(default, bool):
                right = said == str(default).lower()
            elif isinstance(default, str):
                right = said == f"`{default}`"
            elif isinstance(default, int):
                right = said == str(default)
            else:
                right = said != "required"
            if not right:
                wrong.append((name, said, default))
    assert wrong == []


# ---- words of the domain --------------------------------------------------------------------------------------------


def test_phases_and_reasons_are_all_there() -> None:
    page = REFERENCE / "phases-and-reasons.md"
    found = tables(page, 2)
    assert set(names(found["Run"])) == {str(p) for p in RunPhase}
    assert set(names(found["Task"])) == {str(p) for p in TaskPhase}
    assert {str(p) for p in AttemptPhase} <= set(CODE.findall(page.read_text()))
    reasons = {code: row[-1] for row in found["Reasons"] if len(row) == 4 for code in CODE.findall(row[0])}
    assert set(reasons) == {str(cause) for cause in Cause}
    budgets = {str(c): "infrastructure" if c in INFRASTRUCTURE else "never" if c in NEVER else "`retry`" for c in Cause}
    assert reasons == budgets


def test_reasons_of_tasks_that_never_started_are_all_there() -> None:
    page = REFERENCE / "phases-and-reasons.md"
    never = {code for row in tables(page, 2)["Reasons"] if len(row) == 2 for code in CODE.findall(row[0])}
    source = Path(advance.__file__).read_text()
    assert never - {"Code"} == set(re.findall(r'end\(TaskPhase\.\w+, "(\w+)"', source))


def test_trigger_rules_are_all_there() -> None:
    rows = tables(REFERENCE / "expressions.md", 2)["Trigger rules"]
    assert sorted(names(rows)) == sorted(str(t) for t in Trigger)


def test_permissions_are_all_there() -> None:
    rows = {CODE.findall(row[0])[0]: row[1:] for row in tables(REFERENCE / "permissions.md", 1)["Permissions"]}
    expected = {
        str(permission): ["✓" if permission in ROLE_PERMISSIONS[role] else ""
                          for role in (Role.VIEWER, Role.OPS, Role.DEV, Role.OWNER)] + ["✓"]
        for permission in Permission if permission.startswith(("project:", "site:"))
    }
    assert rows == expected


def test_routes_are_all_there() -> None:
    described = {
        (CODE.findall(row[0])[0], CODE.findall(row[1])[0]): CODE.findall(row[3])[0]
        for row in tables(REFERENCE / "rest.md", 2)["Routes"]
    }
    assert described == declared_routes()


def declared_routes() -> dict[tuple[str, str], str]:
    """(method, path) -> permission, of every route in the OpenAPI document."""
    app = Flask("docs", static_folder=None)
    app.url_map.converters.update(
        id=application.IdConverter, number=application.NumberConverter, user=application.UserConverter,
        word=application.WordConverter,
    )
    app.register_blueprint(api)
    app.register_blueprint(site)
    paths: dict[str, dict[str, Any]] = describe(app.url_map, app.view_functions)["paths"]
    return {
        (method.upper(), path): operation["x-permission"]
        for path, operations in paths.items() for method, operation in operations.items()
    }


# ---- commands and settings ------------------------------------------------------------------------------------------


def shell_lines(path: Path) -> Iterator[str]:
    """Lines of code blocks that run something, continued ones joined, without prompts and comments."""
    for text in fences(path, "", "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ").strip()


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `cube` call in a line, after variables and pipes, without redirections."""
    for part in re.split(r"\|\||\||;|&&", text):
        try:
            words = shlex.split(part.split(" < ")[0].split(" > ")[0], comments=True)
        except ValueError:
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and words[0].removeprefix(".venv/bin/") == "cube" and len(words) > 1:
            yield [word for word in words[1:] if word != "..."]


def called(path: Path) -> list[list[str]]:
    found = [words for line in shell_lines(path) for words in commands(line)]
    inline = [words for span in CODE.findall(FENCE.sub("", path.read_text())) for words in commands(span)]
    return found + [words for words in inline if len(words) > 1]


def complaint(words: list[str]) -> str:
    """What the command line says against these words; empty when it takes them."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.parser().parse_args(words)
        except SystemExit as end:
            return said.getvalue().strip() or ("" if end.code == 0 else "refused")
    return ""


@pytest.mark.parametrize("path", [p for p in PAGES if p.name not in GENERATED], ids=page_id)
def test_commands_exist(path: Path) -> None:
    wrong = {" ".join(words): said for words in called(path) if (said := complaint(words))}
    assert wrong == {}


def test_commands_are_found_and_wrong_ones_noticed() -> None:
    assert len(called(ROOT / "README.md")) >= 5
    assert complaint(["run", "digits", "--wait"]) == ""
    assert "unrecognized arguments" in complaint(["run", "digits", "--await"])
    assert "invalid choice" in complaint(["runs"])


def test_the_page_of_commands_names_them_all() -> None:
    """Its text is not compared: argparse words it differently in each version of Python."""
    headings = re.findall(r"^## cube (.+)$", (REFERENCE / "cli.md").read_text(), re.M)
    assert headings == list(subcommands(cli.parser()))


def subcommands(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield f"{prefix}{name}"
                yield from subcommands(command, f"{prefix}{name} ")


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (REFERENCE / "settings.md").read_text() == cli_docs.settings_page(), "run `make docs`"


def known_variables() -> set[str]:
    settings = {f"CUBE_{name.upper()}" for name in Settings.model_fields}
    job = set(CODE.findall((REFERENCE / "job-environment.md").read_text()))
    compose = set(re.findall(r"CUBE_[A-Z_]+", (ROOT / "docker-compose.yml").read_text()))
    crash = {
        name
        for path in [ROOT / "myapp/composition.py", *(ROOT / "tests/crash").glob("*.py")]
        for name in re.findall(r"CUBE_CRASH_[A-Z_]+", path.read_text())
    }
    return settings | crash | {name for name in job if name.startswith("CUBE_")} | compose | NOT_OURS


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_settings_exist(path: Path) -> None:
    mentioned = set(re.findall(r"\bCUBE_[A-Z][A-Z_]*[A-Z]\b", path.read_text()))
    assert mentioned - known_variables() == set()


def test_variables_of_a_job_exist() -> None:
    """What the page says that a job sees is set somewhere in what starts jobs."""
    sources = ["myapp/backends/local/launch.py", "myapp/domain/frameworks/render.py", "myapp/controllers/launch.py",
               "job-template/runtime/cube_runtime/__init__.py"]
    text = "".join((ROOT / path).read_text() for path in sources)
    mentioned = set(re.findall(r"\bCUBE_[A-Z_]*[A-Z]\b", (REFERENCE / "job-environment.md").read_text()))
    settings = {f"CUBE_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in mentioned - settings if name not in text} == set()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))
    lines = [line for path in PAGES for line in shell_lines(path)]
    inline = [span for path in PAGES for span in CODE.findall(FENCE.sub("", path.read_text()))]
    asked = {m[1] for text in [*lines, *inline] if (m := re.match(r"make ([a-z][a-z-]*)", text))}
    assert {"run", "test"} <= asked <= targets
