"""The support matrix: which build of a framework fits a version and the hardware."""

from __future__ import annotations

from dataclasses import dataclass

from myapp.domain.errors import Problem
from myapp.domain.frameworks.framework import Build, Framework, VersionDef
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.naming import did_you_mean, shown
from myapp.domain.ports import EnvironmentSpec


@dataclass(frozen=True)
class Choice:
    """The chosen build; all None for a framework without versions."""

    version: str | None = None
    python: str | None = None
    hardware: str | None = None
    build: Build | None = None


def choose(
    framework: Framework, version: str | None, *, gpu: bool = False, accelerator: str | None = None,
    field: str = "spec", node: str | None = None,
) -> tuple[Choice | None, list[Problem]]:
    """The build for a version (None: the default, else the first listed).

    `accelerator` is the newest the machine supports (`cuda12.4`): a job with GPUs gets the newest build of that kind
    not above it, else the CPU build when there is no other.
    """
    if not framework.versions:
        if version is None:
            return Choice(), []
        message = f"framework {framework.name} has no versions"
        return None, [Problem(code="unknown_version", message=message, field=f"{field}.version", node=node,
                              resolution="leave version out")]
    entry = _entry(framework, version)
    if entry is None:
        known = [v.version for v in framework.versions]
        message = f"framework {framework.name} has no version {shown(version)}"
        return None, [Problem(code="unknown_version", message=message, field=f"{field}.version", node=node,
                              resolution=did_you_mean(version or "", known) or "known: " + ", ".join(known))]
    hardware = _hardware(entry, gpu, accelerator)
    if hardware is None:
        wanted = accelerator or ("gpu" if gpu else "cpu")
        message = f"{framework.name} {entry.version} has no build for {wanted}; it has: {', '.join(entry.hardware)}"
        return None, [Problem(code="unsupported_hardware", message=message, field=f"{field}.version", node=node,
                              resolution="choose another version, or give image or environment yourself")]
    python = entry.python[0] if entry.python else None
    return Choice(entry.version, python, hardware, entry.hardware[hardware]), []


def environment(spec: AIJobSpec, choice: Choice) -> EnvironmentSpec:
    """The rank's environment: an allowed interpreter as asked, else the build's requirements and the job's own."""
    asked = spec.environment
    if asked is not None and asked.interpreter is not None:
        return EnvironmentSpec(interpreter=asked.interpreter)
    lines = list(choice.build.requirements) if choice.build else []
    lines.extend(line.strip() for line in (asked.requirements or [] if asked else []))
    python = (asked.python if asked else None) or choice.python
    return EnvironmentSpec(requirements=tuple(dict.fromkeys(lines)), python=python)


def _entry(framework: Framework, version: str | None) -> VersionDef | None:
    if version is None:
        return next((v for v in framework.versions if v.default), framework.versions[0])
    exact = next((v for v in framework.versions if v.version == version), None)
    return exact or next((v for v in framework.versions if v.version.startswith(version + ".")), None)


def _hardware(entry: VersionDef, gpu: bool, accelerator: str | None) -> str | None:
    if gpu and accelerator:
        kind, limit = _split(accelerator)
        fitting = [(v, name) for name in entry.hardware for k, v in [_split(name)] if k == kind and v <= limit]
        if fitting:
            return max(fitting)[1]
    elif gpu:
        others = [name for name in entry.hardware if name != "cpu"]
        if others:
            return others[0]
    return "cpu" if "cpu" in entry.hardware else None


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    kind = name.rstrip("0123456789.")
    number = name[len(kind):]
    return kind, tuple(int(part) for part in number.split(".") if part)
