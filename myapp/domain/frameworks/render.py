"""From a planned job to a LaunchSpec: argv, files and the environment of each rank."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from myapp.domain.errors import invalid_document
from myapp.domain.frameworks.framework import Framework
from myapp.domain.frameworks.matrix import Choice, choose, environment
from myapp.domain.frameworks.topology import Plan, RankPlan, check_env
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.ports import Addresses, AttemptKey, LaunchSpec, RankSpec
from myapp.domain.templating import as_text, render

JOB_DIR = "$(CUBE_JOB_DIR)"


def render_launch(
    framework: Framework,
    spec: AIJobSpec,
    plan: Plan,
    addresses: Addresses,
    key: AttemptKey,
    *,
    project: str,
    run: str | int,
    task: str,
    attempt: int = 1,
    workspace: str = "",
    inputs: tuple[str, ...] = (),
    devices: Mapping[int, tuple[int, ...]] | None = None,
    accelerator: str | None = None,
    sha256: str = "",
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> LaunchSpec:
    """Everything a backend needs for one attempt.

    `devices` maps a rank to its GPU indices; `env` and `labels` hold further ones of the platform. Without
    `sha256` it is computed over the result. Raises Invalid naming every problem (a reserved variable,
    no build for the hardware).
    """
    problems = check_env(framework, spec.env, field="spec.env")
    gpu = any(rank.resources.gpu for rank in plan.ranks)
    choice, found = choose(framework, spec.version, gpu=gpu, accelerator=accelerator)
    own = spec.environment
    own_environment = spec.image is not None or (own is not None and own.interpreter is not None)
    if not own_environment or spec.version is not None:
        problems.extend(found)
    if problems:
        raise invalid_document("the job cannot be launched", problems)
    choice = choice or Choice()
    command, files = argv(framework, spec)
    platform = {
        "CUBE_PROJECT": project, "CUBE_RUN_ID": str(run), "CUBE_TASK": task, "CUBE_ATTEMPT": str(attempt),
        "CUBE_WORLD_SIZE": str(plan.world_size), **(env or {}),
    }
    ranks = tuple(
        RankSpec(
            role=rank.role, index=rank.index, rank=rank.rank, command=command, resources=rank.resources,
            env={**spec.env, **rank_env(framework, plan, rank, addresses), **platform, "CUBE_ROLE": rank.role,
                 "CUBE_INDEX": str(rank.index), "CUBE_RANK": str(rank.rank)},
            devices=(devices or {}).get(rank.rank, ()),
        )
        for rank in plan.ranks
    )
    launch = LaunchSpec(
        name=task,
        ranks=ranks,
        success_roles=plan.success_roles,
        environment=environment(spec, choice),
        files=files,
        image=spec.image or (choice.build.image if choice.build else None),
        workdir=spec.workdir,
        workspace=workspace,
        inputs=inputs,
        stop_signal=framework.stop.signal,
        grace_s=framework.stop.grace_s,
        sha256=sha256,
        labels={"project": project, "run": str(run), "task": task, "framework": framework.name, **(labels or {})},
    )
    return launch if sha256 else replace(launch, sha256=digest(launch))


def port_names(framework: Framework, plan: Plan) -> tuple[str, ...]:
    """The named ports to ask a backend's `addresses` for: one for each name, one for each rank where every rank
    listens; none for a job of one process that nothing connects to."""
    if plan.topology == "single" and framework.topology != "single":
        return ()
    names: list[str] = []
    for name, definition in framework.ports.items():
        names.extend([rank_port(name, rank.rank) for rank in plan.ranks] if definition.per_rank else [name])
    return tuple(names)


def rank_port(name: str, rank: int) -> str:
    return f"{name}.{rank}"


def argv(framework: Framework, spec: AIJobSpec) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of every rank, and the files it needs in the job's folder."""
    files = dict(spec.files)
    if spec.script is None:
        return (*(spec.command or ()), *spec.args), files
    if framework.script is None:
        raise ValueError(f"framework {framework.name} cannot run an inline script")
    files[framework.script.file] = spec.script
    path = f"{JOB_DIR}/{framework.script.file}"
    words = (word.replace("{python}", "python").replace("{file}", path) for word in framework.script.command)
    return (*words, *spec.args), files


def rank_env(framework: Framework, plan: Plan, rank: RankPlan, addresses: Addresses) -> dict[str, str]:
    """The framework's variables for one rank. A job of one rank whose framework is distributed gets none."""
    if plan.topology == "single" and framework.topology != "single":
        return {}
    context = launch_context(framework, plan, rank, addresses)
    return {name: as_text(render(value, context, field=f"env.{name}")) for name, value in framework.env.items()}


def launch_context(framework: Framework, plan: Plan, rank: RankPlan, addresses: Addresses) -> dict[str, Any]:
    """The values of `Framework.vocabulary` for one rank. `hosts.<role>` lists host:port of the first declared port."""
    first = next(iter(framework.ports), None)
    hosts: dict[str, list[str]] = {name: [] for name in framework.vocabulary().names["hosts"] or ()}
    for other in plan.ranks:
        hosts.setdefault(other.role, []).append(_address(framework, other, addresses, first))
    chief = plan.chief
    return {
        "rank": rank.rank,
        "local_rank": 0,
        "world_size": plan.world_size,
        "role": rank.role,
        "index": rank.index,
        "host": _host(rank, addresses),
        "chief": {
            "host": _host(chief, addresses),
            "port": _port(framework, chief, addresses, first) if first else "",
            "address": _address(framework, chief, addresses, first),
        },
        "ports": {name: _port(framework, rank, addresses, name) for name in framework.ports},
        "hosts": {role: ",".join(members) for role, members in hosts.items()},
        "replicas": {role: len(members) for role, members in hosts.items()},
        "cluster_json": json.dumps({
            "cluster": {role: members for role, members in hosts.items() if members},
            "task": {"type": rank.role, "index": rank.index},
        }, sort_keys=True),
    }


def digest(launch: LaunchSpec) -> str:
    """The hash adoption compares: of everything in the spec but the devices, which admission may deal out anew."""
    data = asdict(launch)
    data.pop("sha256")
    for rank in data["ranks"]:
        rank.pop("devices")
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _host(rank: RankPlan, addresses: Addresses) -> str:
    members = addresses.hosts.get(rank.role, [])
    return members[rank.index] if rank.index < len(members) else "127.0.0.1"


def _port(framework: Framework, rank: RankPlan, addresses: Addresses, name: str) -> int:
    if framework.ports[name].per_rank:
        own = addresses.rank_ports.get(name)
        if own is not None:
            return own[rank.rank]
        if (asked := addresses.ports.get(rank_port(name, rank.rank))) is not None:
            return asked
    return addresses.ports.get(name, framework.ports[name].port)


def _address(framework: Framework, rank: RankPlan, addresses: Addresses, port: str | None) -> str:
    host = _host(rank, addresses)
    return host if port is None else f"{host}:{_port(framework, rank, addresses, port)}"
