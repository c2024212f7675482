"""Reads `frameworks/*.yaml` and `job/<name>/template.yaml` into validated, content-hashed documents.

A broken file is left out and reported with file and line; `Catalog.require` turns any report into an error, so that
publishing fails closed. The result is kept per process until a file changes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myapp.catalog.source import (
    CatalogProblem,
    Signature,
    Unreadable,
    check_python,
    digest,
    parse_yaml,
    read_text,
    signature,
)
from myapp.domain.documents import parse_model
from myapp.domain.errors import Invalid, Problem
from myapp.domain.frameworks.framework import Framework, parse_framework
from myapp.domain.frameworks.topology import check_job
from myapp.domain.jobspec import AIJobSpec, check_relative_path
from myapp.domain.naming import did_you_mean, shown
from myapp.domain.template import JobTemplateDoc, TemplateView, parse_template
from myapp.domain.templating import references

RUNTIME_FILE = "cube_runtime.py"
_RUNTIME_SOURCE = Path("runtime") / "cube_runtime" / "__init__.py"


@dataclass(frozen=True)
class CatalogTemplate:
    """A template ready to publish: `document.spec.files` holds its script and, for Python, the runtime library.

    `sha256` is over template.yaml and those files; `path` is relative to the catalogue's folder.
    """

    document: JobTemplateDoc
    sha256: str
    path: str
    readme: str = ""

    @property
    def name(self) -> str:
        return self.document.metadata.name

    @property
    def files(self) -> Mapping[str, str]:
        return self.document.spec.files

    def view(self) -> TemplateView:
        return TemplateView(self.name, self.sha256, self.document.spec)


@dataclass(frozen=True)
class Catalog:
    """What was found, by name, and everything wrong with the rest. `runtime` is the library as job files."""

    root: Path
    frameworks: Mapping[str, Framework] = field(default_factory=dict)
    templates: Mapping[str, CatalogTemplate] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[CatalogProblem, ...] = ()

    def require(self) -> Catalog:
        """Itself when nothing is wrong. Raises Invalid with every problem, each naming its file and line."""
        if not self.problems:
            return self
        lines = [str(p) for p in self.problems]
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise Invalid(
            f"the catalogue is broken: {lines[0]}{more}", code="catalog_broken",
            detail=[{"file": p.file, **p.problem.model_dump(exclude_none=True)} for p in self.problems],
            problems=[p.problem for p in self.problems],
            resolution="correct the files and run `cube catalog sync` again",
        )

    def runtime_files(self, framework: Framework) -> dict[str, str]:
        """The files that let a script of this framework `import cube_runtime`; none unless it runs Python."""
        python = framework.script is not None and framework.script.file.endswith(".py")
        return dict(self.runtime) if python else {}


_cache: dict[Path, tuple[Signature, Catalog]] = {}
_lock = threading.Lock()


def load_catalog(root: Path) -> Catalog:
    """The catalogue in a folder (see `catalog_root`); the same object as before while no file has changed."""
    root = root.resolve()
    with _lock:
        found = signature(_watched(root))
        known = _cache.get(root)
        if known is not None and known[0] == found:
            return known[1]
        catalog = _Loader(root).load()
        _cache[root] = (found, catalog)
        return catalog


def _framework_files(root: Path) -> list[Path]:
    return sorted((root / "frameworks").glob("*.yaml"))


def _template_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "job").glob("*") if path.is_dir() and not path.name.startswith((".", "_")))


def _watched(root: Path) -> list[Path]:
    folders = _template_folders(root)
    beside = [path for folder in folders for path in sorted(folder.glob("*"))]
    return [root / "frameworks", root / "job", root / _RUNTIME_SOURCE, *_framework_files(root), *folders, *beside]


class _Loader:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[CatalogProblem] = []

    def load(self) -> Catalog:
        runtime: dict[str, str] = {}
        source = self.root / _RUNTIME_SOURCE
        try:
            runtime[RUNTIME_FILE] = read_text(source, self.root)
            check_python(runtime[RUNTIME_FILE])
        except Unreadable as error:
            self.report(source, [error.problem])
        frameworks = self.frameworks()
        catalog = Catalog(self.root, frameworks, {}, runtime)
        templates = self.templates(catalog)
        return Catalog(self.root, frameworks, templates, runtime, tuple(self.problems))

    def report(self, path: Path, problems: list[Problem]) -> None:
        self.problems.extend(CatalogProblem(path.relative_to(self.root).as_posix(), p) for p in problems)

    def frameworks(self) -> dict[str, Framework]:
        found: dict[str, Framework] = {}
        first: dict[str, Path] = {}
        paths = _framework_files(self.root)
        if not paths:
            self.report(self.root / "frameworks", [Problem(code="empty", message="holds no framework")])
        for path in paths:
            try:
                text = read_text(path, self.root)
                loaded = parse_yaml(text)
                framework, problems = parse_framework(loaded.value)
            except Unreadable as error:
                self.report(path, [error.problem])
                continue
            if framework is not None and framework.name in first:
                problems = [_twice(framework.name, first[framework.name].name, "name")]
            if framework is None or problems:
                self.report(path, loaded.annotate(problems))
                continue
            first[framework.name] = path
            found[framework.name] = framework
        return found

    def templates(self, catalog: Catalog) -> dict[str, CatalogTemplate]:
        found: dict[str, CatalogTemplate] = {}
        for folder in _template_folders(self.root):
            path = folder / "template.yaml"
            try:
                template = self.template(path, catalog)
            except Unreadable as error:
                self.report(path, [error.problem])
                continue
            if template is None:
                continue
            if template.name in found:
                text = read_text(path, self.root)
                problem = _twice(template.name, found[template.name].path, "metadata.name")
                self.report(path, parse_yaml(text).annotate([problem]))
                continue
            found[template.name] = template
        return found

    def template(self, path: Path, catalog: Catalog) -> CatalogTemplate | None:
        """One template, or None when something is wrong, which is then reported. Raises Unreadable."""
        text = read_text(path, self.root)
        loaded = parse_yaml(text)
        raw: Mapping[str, Any] = loaded.value
        spec = raw.get("spec")
        framework = None
        problems: list[Problem] = []
        if isinstance(spec, Mapping):
            framework, problems = _framework(spec.get("framework"), catalog)
            files, unreadable = self.files(path.parent, spec, catalog.runtime_files(framework) if framework else {})
            raw = {**raw, "spec": {**spec, "files": files}}
            problems.extend(unreadable)
        document, found = parse_template(raw)
        # A script that is there but unusable is missing to the domain: our own words are the truer ones.
        said = {(p.code, p.field) for p in problems}
        problems = [*problems, *(p for p in found if (p.code, p.field) not in said)]
        if document is not None and framework is not None and not problems:
            problems.extend(_check_rendered(document, framework))
        if document is None or problems:
            self.report(path, loaded.annotate(problems))
            return None
        readme = path.parent / "README.md"
        return CatalogTemplate(
            document=document,
            sha256=digest({**document.spec.files, "template.yaml": text}),
            path=path.relative_to(self.root).as_posix(),
            readme=read_text(readme, self.root) if readme.exists() else "",
        )

    def files(
        self, folder: Path, spec: Mapping[str, Any], runtime: Mapping[str, str]
    ) -> tuple[Any, list[Problem]]:
        """`spec.files` with the script beside template.yaml and the runtime added."""
        inline = spec.get("files", {})
        if not isinstance(inline, Mapping):
            return inline, []
        problems = [
            Problem(code="bad_path", message=f"{name} is the platform's own file", field=f"spec.files.{name}",
                    resolution="choose another name")
            for name in inline if name in runtime
        ]
        job = spec.get("job")
        script = job.get("scriptFile") if isinstance(job, Mapping) else None
        files = {**inline, **runtime}
        if not isinstance(script, str) or script in inline or not check_relative_path(script) or "/" in script:
            return files, problems
        try:
            files[script] = read_text(folder / script, self.root)
            if script.endswith(".py"):
                check_python(files[script])
        except Unreadable as error:
            self.report(folder / script, [error.problem])
            problems.append(Problem(code="missing_file", message=f"the script {shown(script)} cannot be used",
                                    field="spec.job.scriptFile"))
        return files, problems


def _twice(name: str, other: str, where: str) -> Problem:
    return Problem(code="duplicate_name", message=f"{shown(name)} is already the name of {other}", field=where)


def _framework(name: Any, catalog: Catalog) -> tuple[Framework | None, list[Problem]]:
    if not isinstance(name, str):
        return None, []
    framework = catalog.frameworks.get(name)
    if framework is not None:
        return framework, []
    return None, [Problem(code="unknown_framework", message=f"there is no framework {shown(name)}",
                          field="spec.framework", resolution=did_you_mean(name, catalog.frameworks))]


def _check_rendered(document: JobTemplateDoc, framework: Framework) -> list[Problem]:
    """What the framework says to the job, where it can be said before arguments are given."""
    job = dict(document.spec.job)
    if references(job) or references(document.spec.resources):
        return []
    script = job.pop("scriptFile", None)
    if script is not None:
        job["script"] = document.spec.files[script]
    resources = {"resources": document.spec.resources} if document.spec.resources is not None else {}
    spec, problems = parse_model(AIJobSpec, {**resources, **job, "framework": framework.name}, field="spec.job")
    return problems if spec is None else check_job(framework, spec, field="spec.job", image_backend=True)
