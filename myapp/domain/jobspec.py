"""AIJob: the one job description of every framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, PlainSerializer

from myapp.domain.documents import (
    MAX_TEXT,
    Doc,
    Duration,
    Metadata,
    ScalarText,
    Timeout,
    check_header,
    known_fields,
    parse_model,
)
from myapp.domain.errors import Problem
from myapp.domain.naming import NAME, check_env_name, check_name, did_you_mean, nearest, path_part, shown
from myapp.domain.ports import Resources
from myapp.domain.quantities import format_cpu, format_memory, parse_cpu, parse_memory
from myapp.domain.templating import OPEN, has_template

MAX_ARGV_TEXT = 128 * 1024 - 1        # Linux: one argument or variable
MAX_REPLICAS = 10_000
DEFAULT_RESOURCES = Resources()

Cpu = Annotated[int, BeforeValidator(parse_cpu), PlainSerializer(format_cpu, return_type=str)]
Memory = Annotated[int, BeforeValidator(parse_memory), PlainSerializer(format_memory, return_type=str)]
Priority = Literal["low", "normal", "high"]
DistributedType = Literal[
    "auto", "none", "single", "ddp", "fsdp", "deepspeed", "horovod", "multiworker", "rendezvous", "ps", "mpi", "ray",
    "spark", "dask", "tracker",
]
VolumeType = Literal["workspace", "pvc", "configMap", "secret", "memory", "hostPath"]


class ResourcesDoc(Doc):
    """What one rank asks for; absent parts take the platform's defaults (1 cpu, 512Mi, no devices)."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    gpu: int | None = Field(default=None, ge=0, le=1024)
    gpu_type: str | None = None
    rdma: int | None = Field(default=None, ge=0, le=1024)

    def resolve(self, base: Resources = DEFAULT_RESOURCES) -> Resources:
        """These over `base`: millicores and bytes."""
        return Resources(
            cpu_milli=base.cpu_milli if self.cpu is None else self.cpu,
            memory=base.memory if self.memory is None else self.memory,
            gpu=base.gpu if self.gpu is None else self.gpu,
            gpu_type=base.gpu_type if self.gpu_type is None else self.gpu_type,
            rdma=base.rdma if self.rdma is None else self.rdma,
        )


class DistributedDoc(Doc):
    """How many ranks and how they find each other. `workers` counts the worker role, `ps` the parameter servers."""

    type: DistributedType = "auto"
    workers: int | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    ps: int | None = Field(default=None, ge=0, le=MAX_REPLICAS)


class RoleDoc(Doc):
    replicas: int | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    resources: ResourcesDoc | None = None


class ElasticDoc(Doc):
    min: int = Field(ge=1, le=MAX_REPLICAS)
    max: int = Field(ge=1, le=MAX_REPLICAS)


class VolumeDoc(Doc):
    type: VolumeType = "workspace"
    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None
    path: str | None = None
    size: Memory | None = None
    read_only: bool = False


class RetryDoc(Doc):
    """`limit` is the number of re-tries after the first attempt; waits double from `backoff` to `maxBackoff`."""

    limit: int = Field(default=0, ge=0, le=100)
    backoff: Duration = 10.0
    max_backoff: Duration = 300.0


class EnvironmentDoc(Doc):
    """Requirements added to the framework's, or the name of an interpreter an administrator has allowed."""

    requirements: list[str] | None = Field(default=None, max_length=500)
    interpreter: str | None = None
    python: str | None = None


class JobBody(Doc):
    """An AIJob's spec inside a pipeline task or a job template, where the framework may stand elsewhere."""

    framework: str | None = None
    version: str | None = None
    image: str | None = None
    command: list[ScalarText] | None = Field(default=None, min_length=1, max_length=1000)
    script: str | None = None
    script_file: str | None = None
    args: list[ScalarText] = Field(default_factory=list, max_length=1000)
    env: dict[str, ScalarText] = Field(default_factory=dict, max_length=500)
    files: dict[str, str] = Field(default_factory=dict, max_length=200)
    resources: ResourcesDoc | None = None
    distributed: DistributedDoc | None = None
    roles: dict[str, RoleDoc] = Field(default_factory=dict, max_length=20)
    elastic: ElasticDoc | None = None
    volumes: list[VolumeDoc] = Field(default_factory=list, max_length=50)
    retry: RetryDoc | None = None
    timeout: Timeout | None = None
    priority: Priority = "normal"
    queue: str | None = None
    environment: EnvironmentDoc | None = None
    workdir: str | None = None


class AIJobSpec(Doc):
    """What to run, with what, how many times. Exactly one of `command` and `script`."""

    framework: str
    version: str | None = None
    image: str | None = None
    command: list[ScalarText] | None = Field(default=None, min_length=1, max_length=1000)
    script: str | None = None
    args: list[ScalarText] = Field(default_factory=list, max_length=1000)
    env: dict[str, ScalarText] = Field(default_factory=dict, max_length=500)
    files: dict[str, str] = Field(default_factory=dict, max_length=200)
    resources: ResourcesDoc = ResourcesDoc()
    distributed: DistributedDoc | None = None
    roles: dict[str, RoleDoc] = Field(default_factory=dict, max_length=20)
    elastic: ElasticDoc | None = None
    volumes: list[VolumeDoc] = Field(default_factory=list, max_length=50)
    retry: RetryDoc = RetryDoc()
    timeout: Timeout | None = None
    priority: Priority = "normal"
    queue: str = "default"
    environment: EnvironmentDoc | None = None
    workdir: str | None = None


class AIJob(Doc):
    api_version: str
    kind: Literal["AIJob"]
    metadata: Metadata
    spec: AIJobSpec


def parse_aijob(doc: Any) -> tuple[AIJob | None, list[Problem]]:
    """An AIJob document, or everything wrong with it; never both."""
    problems = check_header(doc, "AIJob")
    if not isinstance(doc, Mapping):
        return None, problems
    job, found = parse_model(AIJob, {**doc, "apiVersion": "", "kind": "AIJob"})
    problems.extend(found)
    spec = doc.get("spec")
    if isinstance(spec, Mapping):
        problems.extend(check_body(cast(Mapping[str, Any], spec), field="spec"))
    if job is not None:
        problems.extend(job.metadata.problems())
        job = job.model_copy(update={"api_version": doc.get("apiVersion")})
    return (None, problems) if problems else (job, [])


def check_job_body(
    raw: Mapping[str, Any], *, field: str, node: str | None = None, in_template: bool = False
) -> list[Problem]:
    """Everything wrong with an AIJob spec that still holds `{{ }}`: such values are checked once rendered."""
    _, problems = parse_model(JobBody, raw, field=field, node=node, templated=True)
    problems.extend(check_body(raw, field=field, node=node, in_template=in_template))
    return problems


def check_body(
    raw: Mapping[str, Any], *, field: str, node: str | None = None, in_template: bool = False, whole: bool = True
) -> list[Problem]:
    """What types alone do not say, on raw data, so that it is reported together with wrong types. Parts of a spec
    (`whole=False`) need not say what to run."""
    problems: list[Problem] = []

    def add(code: str, part: str, message: str, resolution: str | None = None) -> None:
        problems.append(Problem(code=code, message=message, field=f"{field}.{part}" if part else field, node=node,
                                resolution=resolution))

    given = [name for name in ("command", "script", "scriptFile") if raw.get(name) is not None]
    if not in_template and "scriptFile" in given:
        add("not_allowed", "scriptFile", "scriptFile exists only in job templates", "use script or command")
    elif whole and len(given) != 1 and not (not given and _misspelt(raw)):
        message = "nothing to run: neither command nor script" if not given else f"both {' and '.join(given)} are given"
        add("command_or_script", given[1] if given else "", message, "give exactly one of command and script")
    _check_texts(raw, add)
    _check_paths(raw, add)
    env = raw.get("env")
    if isinstance(env, Mapping):
        problems.extend(p for name in env if (p := check_env_name(name, f"{field}.env.{path_part(name)}", node)))
    roles = raw.get("roles")
    if isinstance(roles, Mapping):
        problems.extend(p for name in roles if (p := check_name(name, f"{field}.roles", node)))
    elastic = raw.get("elastic")
    if isinstance(elastic, Mapping):
        low, high = elastic.get("min"), elastic.get("max")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            add("out_of_range", "elastic", f"min {low} is above max {high}")
    retry = raw.get("retry")
    if isinstance(retry, Mapping):
        problems.extend(check_retry(retry, f"{field}.retry", node))
    if isinstance(environment := raw.get("environment"), Mapping):
        problems.extend(check_environment(environment, f"{field}.environment", node))
    return problems


def _misspelt(raw: Mapping[str, Any]) -> bool:
    """Whether `command` or `script` is there under a misspelt name, which is reported as an unknown field."""
    known = known_fields(JobBody)
    return any(nearest(str(name), known) in ("command", "script") for name in list(raw)[:100] if name not in known)


def check_retry(raw: Mapping[str, Any], field: str, node: str | None = None) -> list[Problem]:
    retry, _ = parse_model(RetryDoc, raw)
    if retry is None or retry.backoff <= retry.max_backoff or "maxBackoff" not in raw:
        return []
    return [Problem(code="out_of_range", message="backoff is above maxBackoff", field=f"{field}.backoff", node=node)]


def check_environment(raw: Mapping[str, Any], field: str, node: str | None = None) -> list[Problem]:
    """Requirements are names with versions: no installer options, no paths, one per line."""
    problems: list[Problem] = []
    requirements = raw.get("requirements")
    if requirements is not None and raw.get("interpreter") is not None:
        problems.append(Problem(code="environment", message="both requirements and interpreter are given", field=field,
                                node=node, resolution="give one of them"))
    for i, line in enumerate(requirements if isinstance(requirements, list) else ()):
        if not isinstance(line, str) or has_template(line):
            continue
        text = line.strip()
        if not text or text[0] in "-./\\~#" or not line.isprintable() or len(line) > 500 or "file:" in text.lower():
            problems.append(Problem(
                code="bad_requirement", message=f"{shown(line)} is not a requirement", node=node,
                field=f"{field}.requirements[{i}]",
                resolution="write a package with an optional version, such as scikit-learn==1.5.2",
            ))
    return problems


def check_relative_path(value: str) -> bool:
    """Whether text is a plain relative path that stays where it starts."""
    return bool(value) and not value.startswith(("/", "~")) and ".." not in value.split("/") \
        and "\\" not in value and value.isprintable() and len(value) <= 1024


def _check_texts(raw: Mapping[str, Any], add: Any) -> None:
    script = raw.get("script")
    if isinstance(script, str):
        if len(script) > MAX_TEXT:
            message = f"has {len(script)} characters; the most is {MAX_TEXT}"
            add("too_large", "script", message, "use a file of the workspace")
        if not script.strip():
            add("bad_length", "script", "is empty", "write what to run")
        if "\0" in script:
            add("bad_character", "script", "text may not hold a NUL character")
    texts: list[tuple[str, Any]] = []
    for part in ("command", "args"):
        items = raw.get(part)
        texts.extend((f"{part}[{i}]", item) for i, item in enumerate(items if isinstance(items, list) else ()))
    env = raw.get("env")
    if isinstance(env, Mapping):
        texts.extend((f"env.{path_part(name)}", item) for name, item in env.items())
    for part, item in texts:
        if not isinstance(item, str):
            continue
        if "\0" in item:
            add("bad_character", part, "text may not hold a NUL character")
        if len(item.encode("utf-8", "surrogatepass")) > MAX_ARGV_TEXT:
            add("too_large", part, f"is larger than {MAX_ARGV_TEXT} bytes", "use a file of the workspace")
    command = raw.get("command")
    if isinstance(command, list) and command and command[0] == "":
        add("bad_length", "command[0]", "is empty", "name the program to run")


def _check_paths(raw: Mapping[str, Any], add: Any) -> None:
    for part in ("workdir", "scriptFile"):
        value = raw.get(part)
        if isinstance(value, str) and OPEN not in value and not check_relative_path(value):
            add("bad_path", part, f"{shown(value)} is not a relative path", "use a relative path without '..'")
    files = raw.get("files")
    for name, text in files.items() if isinstance(files, Mapping) else ():
        if not isinstance(name, str) or not check_file_name(name):
            add("bad_path", "files", f"{shown(name)} is not a file name", "use letters, digits, '.', '_' and '-'")
        if isinstance(text, str) and len(text) > MAX_TEXT:
            add("too_large", f"files.{path_part(name)}", f"has {len(text)} characters; the most is {MAX_TEXT}")


def check_file_name(name: str) -> bool:
    """Whether text may name a file placed in the job's folder (one level, no leading dot)."""
    return bool(NAME.match(name.lower().replace("_", "-").strip("-") or "-")) and "/" not in name and ".." not in name


def check_interpreter(name: str, allowed: Collection[str], field: str, node: str | None = None) -> Problem | None:
    """A named interpreter must be one an administrator has allowed."""
    if name in allowed:
        return None
    return Problem(code="unknown_interpreter", message=f"there is no interpreter {shown(name)}", field=field, node=node,
                   resolution=did_you_mean(name, allowed) or "ask an administrator to allow one, or use requirements")
