"""A framework as data: `job-template/frameworks/<name>.yaml`."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from myapp.domain.documents import parse_model
from myapp.domain.errors import Problem
from myapp.domain.naming import check_env_name, check_name, shown
from myapp.domain.templating import Vocabulary, check

Topology = Literal["single", "rendezvous", "ps-worker", "launcher-workers", "driver-workers", "tracker-ring"]
RUNNABLE: frozenset[str] = frozenset({"single", "rendezvous", "ps-worker"})
ROLES_OF: dict[str, tuple[str, ...]] = {
    "single": ("worker",),
    "rendezvous": ("worker",),
    "ps-worker": ("chief", "worker", "ps"),
    "launcher-workers": ("launcher", "worker"),
    "driver-workers": ("driver", "worker"),
    "tracker-ring": ("tracker", "worker"),
}
HARDWARE = re.compile(r"\A(?:cpu|(?:cuda|rocm|cann|musa|dcu|mlu|xpu)[0-9]{0,3}(?:\.[0-9]{1,3})?)\Z")
ALWAYS_RESERVED = frozenset({"CUDA_VISIBLE_DEVICES", "HOME", "PATH", "TMPDIR"})
RESERVED_PREFIX = "CUBE_"


class Data(BaseModel):
    """Base of framework data: immutable, strict, snake_case, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class RoleDef(Data):
    """One role. `default` replicas when the job does not say; `success` overrides the topology's rule that all but
    parameter servers must exit 0."""

    name: str
    min: int = Field(default=0, ge=0)
    max: int = Field(default=64, ge=0)
    default: int | None = Field(default=None, ge=0)
    chief: int | None = Field(default=None, ge=0)
    success: bool | None = None


class PortDef(Data):
    """A named port. `per_rank`: every rank listens on it, so ranks that share a host get one each."""

    port: int = Field(ge=1024, le=65535)
    per_rank: bool = False

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return {"port": value} if isinstance(value, int) and not isinstance(value, bool) else value


class ElasticDef(Data):
    supported: bool = False


class StopDef(Data):
    signal: Literal["TERM", "INT", "QUIT", "USR1", "USR2", "HUP"] = "TERM"
    grace_s: int = Field(default=30, ge=0, le=3600)


class ScriptDef(Data):
    """How an inline script is run: `{python}` and `{file}` are replaced, `file` is its name in the job's folder."""

    command: list[str] = Field(min_length=1)
    file: str


class Build(Data):
    """What one version needs on one kind of hardware."""

    image: str | None = None
    requirements: list[str] = Field(default_factory=list)
    min_compute_capability: str | None = None
    min_driver: str | None = None


class VersionDef(Data):
    """One version; in YAML the hardware names (`cpu`, `cuda12.4`) stand beside `version` and `python`."""

    version: str
    python: list[str] = Field(default_factory=list)
    default: bool = False
    hardware: dict[str, Build] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        own = {k: v for k, v in value.items() if k in cls.model_fields}
        found = {k: v for k, v in value.items() if isinstance(k, str) and HARDWARE.match(k)}
        rest = {k: v for k, v in value.items() if k not in own and k not in found}
        given = own.pop("hardware", {})
        return {**own, **rest, "hardware": {**given, **found} if isinstance(given, dict) else given}


class Framework(Data):
    """`topology` is what `distributed.type: auto` means; `distributed` maps the other accepted types to topologies."""

    name: str
    title: str | None = None
    description: str | None = None
    topology: Topology = "single"
    distributed: dict[str, Topology] = Field(default_factory=dict)
    roles: list[RoleDef] = Field(default_factory=list)
    ports: dict[str, PortDef] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    reserved_env: list[str] = Field(default_factory=list)
    elastic: ElasticDef = ElasticDef()
    stop: StopDef = StopDef()
    script: ScriptDef | None = None
    exit_codes: dict[str, str] = Field(default_factory=dict)
    versions: list[VersionDef] = Field(default_factory=list)

    def role(self, name: str) -> RoleDef | None:
        return next((role for role in self.roles if role.name == name), None)

    @property
    def reserved(self) -> frozenset[str]:
        """Variables a job may not set: the framework's and the platform's."""
        return ALWAYS_RESERVED | set(self.reserved_env)

    def vocabulary(self) -> Vocabulary:
        """What `env` may refer to; `render.launch_context` gives every one of these a value."""
        roles = frozenset({"worker", *(role.name for role in self.roles)})
        scalars: dict[str, frozenset[str] | None] = dict.fromkeys(
            ("rank", "local_rank", "world_size", "role", "index", "host", "cluster_json")
        )
        return Vocabulary({
            **scalars, "chief": frozenset({"host", "port", "address"}), "ports": frozenset(self.ports),
            "hosts": roles, "replicas": roles,
        })


def parse_framework(doc: Any) -> tuple[Framework | None, list[Problem]]:
    """A framework, or everything wrong with its data; never both."""
    framework, problems = parse_model(Framework, doc)
    if framework is not None:
        problems.extend(check_framework(framework))
    return (None, problems) if problems else (framework, [])


def check_framework(framework: Framework) -> list[Problem]:
    problems: list[Problem] = []

    def bad(field: str, message: str, resolution: str | None = None) -> None:
        problems.append(Problem(code="bad_framework", message=message, field=field, resolution=resolution))

    problems.extend(p for p in [check_name(framework.name, "name")] if p)
    topologies = {framework.topology, *framework.distributed.values()}
    allowed = sorted({role for topology in topologies for role in ROLES_OF[topology]})
    seen: set[str] = set()
    for i, role in enumerate(framework.roles):
        if role.name not in allowed:
            remedy = f"use one of: {', '.join(allowed)}"
            bad(f"roles[{i}].name", f"{shown(role.name)} is no role of its topologies", remedy)
        if role.name in seen:
            bad(f"roles[{i}].name", f"{shown(role.name)} is declared twice")
        if role.min > role.max:
            bad(f"roles[{i}].min", f"min {role.min} is above max {role.max}")
        seen.add(role.name)
    for name in framework.ports:
        problems.extend(p for p in [check_name(name, "ports")] if p)
    for name in framework.env:
        problems.extend(p for p in [check_env_name(name, "env")] if p)
        if name in ALWAYS_RESERVED or name.startswith(RESERVED_PREFIX + "JOB"):
            bad(f"env.{name}", "is set by the platform")
    for code in framework.exit_codes:
        if not code.isascii() or not code.isdigit() or int(code[:6]) > 255:
            bad("exit_codes", f"{shown(code)} is not an exit code", "use 0 to 255")
    problems.extend(check(framework.env, framework.vocabulary(), field="env"))
    if framework.script is not None:
        for i, word in enumerate(framework.script.command):
            if "{" in word.replace("{python}", "").replace("{file}", ""):
                bad(f"script.command[{i}]", f"{shown(word)} holds an unknown placeholder", "use {python} and {file}")
        if "/" in framework.script.file or framework.script.file.startswith("."):
            bad("script.file", f"{shown(framework.script.file)} is not a file name")
    versions = [v.version for v in framework.versions]
    for i, version in enumerate(framework.versions):
        if version.version in versions[:i]:
            bad(f"versions[{i}].version", f"{shown(version.version)} is listed twice")
        for hardware in version.hardware:
            if not HARDWARE.match(hardware):
                bad(f"versions[{i}].hardware", f"{shown(hardware)} is not a kind of hardware", "use cpu or cuda12.4")
        if not version.hardware:
            bad(f"versions[{i}]", "lists no hardware", "add cpu: {requirements: [...]}")
    return problems
