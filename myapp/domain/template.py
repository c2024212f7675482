"""The JobTemplate document: a job with typed arguments and declared outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from myapp.domain.documents import Doc, Metadata, check_header, parse_model
from myapp.domain.errors import Problem
from myapp.domain.jobspec import ResourcesDoc, check_file_name, check_job_body
from myapp.domain.naming import check_identifier, shown
from myapp.domain.params import ArgSpec, ValueSpec, check_specs, resolve_params
from myapp.domain.templating import check, template_vocabulary

ARGS_FILE = "args.json"


class OutputSpec(Doc):
    """A value, file or metric that later tasks may refer to as `tasks.<key>.outputs.<name>`."""

    name: str
    type: Literal["str", "text", "int", "float", "bool", "list", "dict", "json", "artifact", "metric"] = "str"
    title: str | None = None
    description: str | None = None


class JobTemplateSpec(Doc):
    """`job` is an AIJob spec that may hold `{{ args.* }}`. `files` are placed beside the script, never rendered;
    `job.scriptFile` names one of them, or a file beside template.yaml that the catalogue puts there."""

    args: list[ArgSpec] = Field(default_factory=list)
    framework: str
    job: dict[str, Any]
    resources: dict[str, Any] | None = None
    outputs: list[OutputSpec] = Field(default_factory=list, max_length=200)
    files: dict[str, str] = Field(default_factory=dict, max_length=200)


class JobTemplateDoc(Doc):
    api_version: str
    kind: Literal["JobTemplate"]
    metadata: Metadata
    spec: JobTemplateSpec


@dataclass(frozen=True)
class TemplateView:
    """A published template version, as pipelines see it. `sha256` is the version's content hash."""

    name: str
    sha256: str
    spec: JobTemplateSpec

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(output.name for output in self.spec.outputs)


def parse_template(doc: Any) -> tuple[JobTemplateDoc | None, list[Problem]]:
    """A JobTemplate document, or everything wrong with it; never both."""
    problems = check_header(doc, "JobTemplate")
    if not isinstance(doc, Mapping):
        return None, problems
    parsed, found = parse_model(JobTemplateDoc, {**doc, "apiVersion": "", "kind": "JobTemplate"})
    problems.extend(found)
    if parsed is not None:
        problems.extend(parsed.metadata.problems())
        problems.extend(_check_spec(parsed.spec))
        parsed = parsed.model_copy(update={"api_version": doc.get("apiVersion")})
    return (None, problems) if problems else (parsed, [])


def _check_spec(spec: JobTemplateSpec) -> list[Problem]:
    problems = check_specs(spec.args, "spec.args")
    problems.extend(check_job_body(spec.job, field="spec.job", in_template=True))
    framework = spec.job.get("framework")
    if framework is not None and framework != spec.framework:
        problems.append(Problem(code="conflict", message=f"{shown(framework)} differs from spec.framework",
                                field="spec.job.framework", resolution="leave it out"))
    vocabulary = template_vocabulary(frozenset(arg.name for arg in spec.args))
    problems.extend(check(spec.job, vocabulary, field="spec.job"))
    if spec.resources is not None:
        problems.extend(parse_model(ResourcesDoc, spec.resources, field="spec.resources", templated=True)[1])
        problems.extend(check(spec.resources, vocabulary, field="spec.resources"))
    seen: set[str] = set()
    for i, output in enumerate(spec.outputs):
        where = f"spec.outputs[{i}].name"
        if problem := check_identifier(output.name, where):
            problems.append(problem)
        if output.name in seen:
            message = f"{shown(output.name)} is declared twice"
            problems.append(Problem(code="duplicate_name", message=message, field=where))
        seen.add(output.name)
    for name in spec.files:
        if not check_file_name(name) or name == ARGS_FILE:
            message = f"{shown(name)} cannot be used as a file name"
            problems.append(Problem(code="bad_path", message=message, field="spec.files"))
    script = spec.job.get("scriptFile")
    if isinstance(script, str) and spec.files and script not in spec.files:
        message = f"there is no file {shown(script)}"
        problems.append(Problem(code="missing_file", message=message, field="spec.job.scriptFile"))
    return problems


def validate_args(
    template_args: Sequence[ValueSpec], values: Mapping[str, Any], *, where: str, node: str | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """Arguments as a task gives them: defaults filled in, all problems; values with `{{ }}` pass unchecked."""
    return resolve_params(template_args, values, field=where, node=node, templates=True)


def check_rendered_args(
    template_args: Sequence[ValueSpec], values: Mapping[str, Any], *, where: str, node: str | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """The same after rendering: every value is checked."""
    return resolve_params(template_args, values, field=where, node=node)
