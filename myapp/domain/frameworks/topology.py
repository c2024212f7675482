"""Which ranks a job has: a pure function of its framework and its spec.

`single`: one worker. `rendezvous`: equal workers, the first is the chief. `ps-worker`: an optional chief, workers, and
parameter servers that serve until the others are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from myapp.domain.capacity import CapacityView, check_fit
from myapp.domain.errors import Problem
from myapp.domain.frameworks.framework import RESERVED_PREFIX, ROLES_OF, RUNNABLE, Framework
from myapp.domain.frameworks.matrix import choose
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.naming import did_you_mean, shown
from myapp.domain.ports import Resources

MAX_RANKS = 10_000
_ALWAYS = {"auto", "none", "single"}


@dataclass(frozen=True)
class RankPlan:
    """One rank: `index` within its role, `rank` over all."""

    role: str
    index: int
    rank: int
    chief: bool
    resources: Resources


@dataclass(frozen=True)
class Plan:
    topology: str
    ranks: tuple[RankPlan, ...]
    success_roles: tuple[str, ...]

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def replicas(self) -> dict[str, int]:
        """Role -> number of its ranks, in rank order; what `ExecutionBackend.addresses` is asked with."""
        out: dict[str, int] = {}
        for rank in self.ranks:
            out[rank.role] = out.get(rank.role, 0) + 1
        return out

    @property
    def chief(self) -> RankPlan:
        return next((rank for rank in self.ranks if rank.chief), self.ranks[0])


def choose_topology(
    framework: Framework, spec: AIJobSpec, *, field: str = "spec", node: str | None = None
) -> tuple[str | None, list[Problem]]:
    """The topology `distributed.type` means for this framework."""
    asked = spec.distributed
    kind = asked.type if asked is not None else "auto"
    parameter_servers = "ps" in spec.roles or bool(asked and asked.ps)
    if kind in ("none", "single"):
        return "single", []
    if kind == "auto":
        if asked is None and not spec.roles:
            return "single", []
        if parameter_servers and "ps-worker" in framework.distributed.values():
            return "ps-worker", []
        return framework.topology, []
    topology = framework.distributed.get(kind)
    if topology is None:
        known = sorted({*framework.distributed, *_ALWAYS})
        message = f"framework {framework.name} does not know distributed.type {shown(kind)}"
        return None, [Problem(code="unsupported_distribution", message=message, field=f"{field}.distributed.type",
                              node=node, resolution=did_you_mean(kind, known) or "known: " + ", ".join(known))]
    return topology, []


def plan(
    framework: Framework, spec: AIJobSpec, *, field: str = "spec", node: str | None = None
) -> tuple[Plan | None, list[Problem]]:
    """The ranks in rank order (chief first), or every reason why there can be none."""
    topology, problems = choose_topology(framework, spec, field=field, node=node)
    if topology is None:
        return None, problems
    if topology not in RUNNABLE:
        return None, [Problem(code="not_runnable", message=f"topology {topology} is not runnable yet",
                              field=f"{field}.distributed.type", node=node,
                              resolution="use one of: " + ", ".join(sorted(RUNNABLE)))]
    replicas, problems = _replicas(framework, spec, topology, field, node)
    if problems:
        return None, problems
    base = spec.resources.resolve()
    ranks: list[RankPlan] = []
    for role, count in replicas.items():
        own = spec.roles[role].resources if role in spec.roles else None
        resources = own.resolve(base) if own is not None else base
        first = len(ranks)
        ranks.extend(RankPlan(role, i, first + i, False, resources) for i in range(count))
    chief = _chief(framework, ranks)
    ranks[chief] = RankPlan(ranks[chief].role, ranks[chief].index, chief, True, ranks[chief].resources)
    success = tuple(role for role, count in replicas.items() if count and _must_succeed(framework, role))
    return Plan(topology, tuple(ranks), success or (ranks[0].role,)), []


def check_job(
    framework: Framework, spec: AIJobSpec, *, capacity: CapacityView | None = None, field: str = "spec",
    node: str | None = None, image_backend: bool = False,
) -> list[Problem]:
    """Everything a framework and a place to run have to say against a job: version, ranks, environment, size."""
    problems = check_env(framework, spec.env, field=f"{field}.env", node=node)
    if spec.script is not None and framework.script is None:
        problems.append(Problem(code="no_script", message=f"framework {framework.name} cannot run an inline script",
                                field=f"{field}.script", node=node, resolution="use command"))
    planned, found = plan(framework, spec, field=field, node=node)
    problems.extend(found)
    own_environment = spec.image is not None if image_backend else \
        spec.environment is not None and spec.environment.interpreter is not None
    if not own_environment or spec.version is not None:
        gpu = bool(planned and any(rank.resources.gpu for rank in planned.ranks))
        problems.extend(choose(framework, spec.version, gpu=gpu, field=field, node=node)[1])
    if spec.elastic is not None and not framework.elastic.supported:
        problems.append(Problem(code="not_elastic", message=f"framework {framework.name} is not elastic",
                                field=f"{field}.elastic", node=node, resolution="leave elastic out"))
    if planned is not None and capacity is not None:
        ranks = [rank.resources for rank in planned.ranks]
        problems.extend(check_fit(ranks, capacity, field=f"{field}.resources", node=node))
    return problems


def check_env(
    framework: Framework, env: Mapping[str, object], *, field: str, node: str | None = None
) -> list[Problem]:
    """A job may not set what the framework or the platform sets."""
    reserved = framework.reserved
    return [
        Problem(code="reserved_env", message=f"{name} is set by the platform for {framework.name}",
                field=f"{field}.{name}", node=node, resolution="choose another name")
        for name in env if name in reserved or name in framework.env or name.startswith(RESERVED_PREFIX)
    ]


def _replicas(
    framework: Framework, spec: AIJobSpec, topology: str, field: str, node: str | None
) -> tuple[dict[str, int], list[Problem]]:
    problems: list[Problem] = []

    def bad(code: str, part: str, message: str, resolution: str | None = None) -> None:
        problems.append(Problem(code=code, message=message, field=f"{field}.{part}", node=node, resolution=resolution))

    roles = ROLES_OF[topology]
    asked = spec.distributed
    for name in spec.roles:
        if name not in roles or (name == "chief" and framework.role("chief") is None):
            message = f"topology {topology} has no role {shown(name)}"
            bad("unknown_role", f"roles.{name}", message, did_you_mean(name, roles))
    replicas: dict[str, int] = {}
    for role in roles:
        definition = framework.role(role)
        if role == "chief" and definition is None:
            continue
        shorthand = None if asked is None else asked.workers if role == "worker" else asked.ps if role == "ps" else None
        own = spec.roles[role].replicas if role in spec.roles else None
        if shorthand is not None and own is not None and shorthand != own:
            message = f"{own} differs from {shorthand} in distributed"
            bad("conflict", f"roles.{role}.replicas", message, "give one of them")
        part = "distributed." + ("workers" if role == "worker" else role) if own is None else f"roles.{role}.replicas"
        default = definition.default if definition is not None else None
        count = next(n for n in (own, shorthand, default, 1) if n is not None)
        if topology == "single":
            low, high = 1, 1
        else:
            low = max(1, definition.min if definition is not None else 1)
            high = definition.max if definition is not None else MAX_RANKS
        if role == "chief":
            low, high = min(low, count), 1
        if not low <= count <= high:
            remedy = "use distributed.type: auto" if topology == "single" else None
            limits = f"exactly {low}" if low == high else f"{low} to {high}"
            bad("out_of_range", part, f"{count} {role} ranks; {topology} of {framework.name} takes {limits}", remedy)
        replicas[role] = count
    if topology == "single" and asked is not None and asked.ps:
        message = "a job of one process has no parameter servers"
        bad("out_of_range", "distributed.ps", message, "use distributed.type: ps")
    if not problems and sum(replicas.values()) > MAX_RANKS:
        bad("out_of_range", "distributed", f"more than {MAX_RANKS} ranks")
    return {role: count for role, count in replicas.items() if count}, problems


def _chief(framework: Framework, ranks: list[RankPlan]) -> int:
    for position, rank in enumerate(ranks):
        definition = framework.role(rank.role)
        if rank.role == "chief" or (definition is not None and definition.chief == rank.index):
            return position
    return 0


def _must_succeed(framework: Framework, role: str) -> bool:
    definition = framework.role(role)
    if definition is not None and definition.success is not None:
        return definition.success
    return role != "ps"
