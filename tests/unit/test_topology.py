"""Frameworks as data, rank plans, builds, and what can never fit."""

from __future__ import annotations

from typing import Any

import pytest

from myapp.domain.capacity import CapacityView, check_fit
from myapp.domain.errors import Problem
from myapp.domain.frameworks.framework import Framework, parse_framework
from myapp.domain.frameworks.matrix import choose, environment
from myapp.domain.frameworks.topology import Plan, check_job, plan
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.ports import Capacity, EnvironmentSpec, Resources

PYTORCH = {
    "name": "pytorch",
    "topology": "rendezvous",
    "distributed": {"ddp": "rendezvous", "mpi": "launcher-workers"},
    "roles": [{"name": "worker", "min": 1, "max": 64, "chief": 0}],
    "ports": {"rendezvous": 29500},
    "env": {"MASTER_ADDR": "{{ chief.host }}", "RANK": "{{ rank }}"},
    "reserved_env": ["LOCAL_RANK"],
    "elastic": {"supported": True},
    "script": {"command": ["{python}", "{file}"], "file": "main.py"},
    "exit_codes": {"137": "OOM_OR_KILLED"},
    "versions": [
        {
            "version": "2.4.1",
            "python": ["3.11"],
            "default": True,
            "cpu": {"requirements": ["torch==2.4.1"]},
            "cuda12.4": {"image": "pt:2.4", "requirements": ["torch==2.4.1+cu124"]},
            "cuda11.8": {"image": "pt:2.4-cu118"},
        },
        {"version": "2.5.0", "cpu": {"requirements": ["torch==2.5.0"]}},
    ],
}
TENSORFLOW = {
    "name": "tensorflow",
    "topology": "rendezvous",
    "distributed": {"multiworker": "rendezvous", "ps": "ps-worker"},
    "roles": [
        {"name": "chief", "max": 1, "default": 1},
        {"name": "worker", "max": 8, "success": False},
        {"name": "ps", "max": 4},
    ],
    "ports": {"grpc": {"port": 2222, "per_rank": True}},
    "env": {"TF_CONFIG": "{{ cluster_json }}"},
}
SOCKETS = {"name": "sockets", "topology": "ps-worker", "distributed": {"ps": "ps-worker"}}
SHELL = {"name": "shell", "script": {"command": ["/bin/sh", "{file}"], "file": "main.sh"}}


def framework(data: dict[str, Any]) -> Framework:
    parsed, problems = parse_framework(data)
    assert parsed is not None, problems
    return parsed


def job(**fields: Any) -> AIJobSpec:
    return AIJobSpec.model_validate({"framework": "x", "command": ["x"], **fields})


def planned(data: dict[str, Any], **fields: Any) -> Plan:
    result, problems = plan(framework(data), job(**fields))
    assert problems == []
    assert result is not None
    assert [rank.rank for rank in result.ranks] == list(range(result.world_size))
    assert sum(rank.chief for rank in result.ranks) == 1
    return result


@pytest.mark.parametrize(
    ("data", "fields", "topology", "replicas", "success", "chief"),
    [
        (SHELL, {}, "single", {"worker": 1}, ("worker",), 0),
        (PYTORCH, {}, "single", {"worker": 1}, ("worker",), 0),
        (PYTORCH, {"distributed": {"type": "none"}}, "single", {"worker": 1}, ("worker",), 0),
        (PYTORCH, {"distributed": {"workers": 4}}, "rendezvous", {"worker": 4}, ("worker",), 0),
        (PYTORCH, {"distributed": {"type": "ddp", "workers": 1}}, "rendezvous", {"worker": 1}, ("worker",), 0),
        (PYTORCH, {"roles": {"worker": {"replicas": 3}}}, "rendezvous", {"worker": 3}, ("worker",), 0),
        (
            TENSORFLOW,
            {"distributed": {"type": "ps", "workers": 2, "ps": 2}},
            "ps-worker",
            {"chief": 1, "worker": 2, "ps": 2},
            ("chief",),
            0,
        ),
        (
            TENSORFLOW,
            {"distributed": {"workers": 2, "ps": 1}},
            "ps-worker",
            {"chief": 1, "worker": 2, "ps": 1},
            ("chief",),
            0,
        ),
        (
            TENSORFLOW,
            {"roles": {"ps": {"replicas": 2}}},
            "ps-worker",
            {"chief": 1, "worker": 1, "ps": 2},
            ("chief",),
            0,
        ),
        (
            TENSORFLOW,
            {"distributed": {"type": "multiworker", "workers": 2}},
            "rendezvous",
            {"worker": 2},
            ("worker",),
            0,
        ),
        (SOCKETS, {"distributed": {"type": "ps", "workers": 2}}, "ps-worker", {"worker": 2, "ps": 1}, ("worker",), 0),
    ],
)
def test_plans(
    data: dict[str, Any],
    fields: dict[str, Any],
    topology: str,
    replicas: dict[str, int],
    success: tuple[str, ...],
    chief: int,
) -> None:
    result = planned(data, **fields)
    assert (result.topology, result.replicas, result.success_roles, result.chief.rank) == (
        topology,
        replicas,
        success,
        chief,
    )


def test_ranks_take_their_roles_resources_over_the_jobs() -> None:
    result = planned(
        SOCKETS,
        resources={"cpu": 4, "gpu": 1, "gpuType": "A100"},
        distributed={"workers": 1, "ps": 1},
        roles={"ps": {"resources": {"cpu": 1, "gpu": 0}}},
    )
    worker, ps = result.ranks
    assert worker.resources == Resources(cpu_milli=4000, gpu=1, gpu_type="A100")
    assert ps.resources == Resources(cpu_milli=1000, gpu=0, gpu_type="A100")
    assert (ps.role, ps.index, ps.rank) == ("ps", 0, 1)


@pytest.mark.parametrize(
    ("data", "fields", "code", "field"),
    [
        (SHELL, {"distributed": {"workers": 2}}, "out_of_range", "spec.distributed.workers"),
        (PYTORCH, {"distributed": {"type": "none", "workers": 2}}, "out_of_range", "spec.distributed.workers"),
        (PYTORCH, {"distributed": {"workers": 65}}, "out_of_range", "spec.distributed.workers"),
        (PYTORCH, {"roles": {"worker": {"replicas": 65}}}, "out_of_range", "spec.roles.worker.replicas"),
        (PYTORCH, {"distributed": {"type": "ps"}}, "unsupported_distribution", "spec.distributed.type"),
        (PYTORCH, {"distributed": {"type": "mpi", "workers": 2}}, "not_runnable", "spec.distributed.type"),
        (PYTORCH, {"distributed": {"type": "ddp"}, "roles": {"ps": {"replicas": 1}}}, "unknown_role", "spec.roles.ps"),
        (
            SOCKETS,
            {"distributed": {"type": "ps"}, "roles": {"chief": {"replicas": 1}}},
            "unknown_role",
            "spec.roles.chief",
        ),
        (
            PYTORCH,
            {"distributed": {"workers": 2}, "roles": {"worker": {"replicas": 3}}},
            "conflict",
            "spec.roles.worker.replicas",
        ),
        (SHELL, {"distributed": {"ps": 1}}, "out_of_range", "spec.distributed.ps"),
    ],
)
def test_what_cannot_be_planned_says_why(data: dict[str, Any], fields: dict[str, Any], code: str, field: str) -> None:
    result, problems = plan(framework(data), job(**fields), node="t")
    assert result is None
    assert [(p.code, p.field, p.node) for p in problems] == [(code, field, "t")]


@pytest.mark.parametrize("topology", ["launcher-workers", "driver-workers", "tracker-ring"])
def test_other_topologies_are_data_that_is_not_runnable_yet(topology: str) -> None:
    result, problems = plan(framework({"name": "x", "topology": topology}), job(distributed={"workers": 2}))
    assert result is None
    assert "not runnable yet" in problems[0].message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topology": "ring"}, "topology"),
        ({"roles": [{"name": "boss"}]}, "roles[0].name"),
        ({"roles": [{"name": "worker", "min": 3, "max": 1}]}, "roles[0].min"),
        ({"roles": [{"name": "worker"}, {"name": "worker"}]}, "roles[1].name"),
        ({"ports": {"p": 80}}, "ports.p.port"),
        ({"ports": {"p": "x"}}, "ports.p"),
        ({"env": {"A": "{{ params.x }}"}}, "env.A"),
        ({"env": {"A": "{{ ports.none }}"}}, "env.A"),
        ({"env": {"PATH": "x"}}, "env.PATH"),
        ({"env": {"A B": "x"}}, "env"),
        ({"exit_codes": {"abc": "X"}}, "exit_codes"),
        ({"exit_codes": {"999": "X"}}, "exit_codes"),
        ({"script": {"command": ["{shell}"], "file": "m"}}, "script.command[0]"),
        ({"script": {"command": ["x"], "file": "../m"}}, "script.file"),
        ({"versions": [{"version": "1"}]}, "versions[0]"),
        ({"versions": [{"version": "1", "gpu": {}}]}, "versions[0].gpu"),
        ({"versions": [{"version": "1", "cpu": {"image": 3}}]}, "versions[0].hardware.cpu.image"),
        ({"versions": [{"version": "1", "cpu": {}}, {"version": "1", "cpu": {}}]}, "versions[1].version"),
        ({"stop": {"signal": "KILL"}}, "stop.signal"),
        ({"nme": "x"}, "nme"),
        ({"name": "A/B"}, "name"),
        ({"reserved_env": "A"}, "reserved_env"),
        ({"distributed": {"ddp": "ring"}}, "distributed.ddp"),
    ],
)
def test_broken_frameworks_are_refused_with_the_field(change: dict[str, Any], field: str) -> None:
    parsed, problems = parse_framework({"name": "x", **change})
    assert parsed is None
    assert field in [p.field for p in problems]


def test_a_framework_reads_back_from_its_own_writing() -> None:
    for data in (PYTORCH, TENSORFLOW, SOCKETS, SHELL):
        parsed = framework(data)
        assert framework(parsed.model_dump(mode="json")) == parsed


@pytest.mark.parametrize(
    ("version", "gpu", "accelerator", "chosen"),
    [
        (None, False, None, ("2.4.1", "cpu")),
        ("2.4", False, None, ("2.4.1", "cpu")),
        ("2.5.0", False, "cuda12.4", ("2.5.0", "cpu")),
        (None, True, "cuda12.6", ("2.4.1", "cuda12.4")),
        (None, True, "cuda12.1", ("2.4.1", "cuda11.8")),
        (None, True, "cuda11.0", ("2.4.1", "cpu")),
        (None, True, None, ("2.4.1", "cuda12.4")),
        ("2.5", True, "cuda12.4", ("2.5.0", "cpu")),
        (None, True, "rocm6.1", ("2.4.1", "cpu")),
    ],
)
def test_the_matrix(version: str | None, gpu: bool, accelerator: str | None, chosen: tuple[str, str]) -> None:
    choice, problems = choose(framework(PYTORCH), version, gpu=gpu, accelerator=accelerator)
    assert problems == []
    assert choice is not None
    assert (choice.version, choice.hardware) == chosen


def test_unknown_versions_and_hardware() -> None:
    _, problems = choose(framework(PYTORCH), "2.4.2")
    assert [(p.code, p.field, p.resolution) for p in problems] == [
        ("unknown_version", "spec.version", "did you mean '2.4.1'?")
    ]
    assert [p.code for p in choose(framework(SHELL), "1")[1]] == ["unknown_version"]
    only_gpu = framework({"name": "x", "versions": [{"version": "1", "cuda12.4": {}}]})
    assert [p.code for p in choose(only_gpu, None)[1]] == ["unsupported_hardware"]
    assert choose(framework(SHELL), None)[1] == []


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (None, EnvironmentSpec(("torch==2.4.1",), python="3.11")),
        ({"requirements": ["pandas", "torch==2.4.1"]}, EnvironmentSpec(("torch==2.4.1", "pandas"), python="3.11")),
        ({"python": "3.12"}, EnvironmentSpec(("torch==2.4.1",), python="3.12")),
        ({"interpreter": "system"}, EnvironmentSpec(interpreter="system")),
    ],
)
def test_environments(asked: dict[str, Any] | None, result: EnvironmentSpec) -> None:
    choice, _ = choose(framework(PYTORCH), None)
    assert choice is not None
    assert environment(job(environment=asked), choice) == result


def codes(problems: list[Problem]) -> list[tuple[str, str | None]]:
    return [(p.code, p.field) for p in problems]


def test_check_job_reports_all_at_once() -> None:
    spec = job(
        version="9",
        env={"RANK": "1", "LOCAL_RANK": "1", "HOME": "/", "CUBE_X": "1", "OK": "1"},
        distributed={"type": "mpi"},
    )
    assert codes(check_job(framework(PYTORCH), spec)) == [
        ("reserved_env", "spec.env.RANK"),
        ("reserved_env", "spec.env.LOCAL_RANK"),
        ("reserved_env", "spec.env.HOME"),
        ("reserved_env", "spec.env.CUBE_X"),
        ("not_runnable", "spec.distributed.type"),
        ("unknown_version", "spec.version"),
    ]
    assert codes(check_job(framework(SOCKETS), job(command=None, script="x", elastic={"min": 1, "max": 2}))) == [
        ("no_script", "spec.script"),
        ("not_elastic", "spec.elastic"),
    ]
    assert check_job(framework(PYTORCH), job(elastic={"min": 1, "max": 2})) == []


GIB = 2**30
TWO_FLAVORS = CapacityView.of(
    [
        Capacity("small", "cpu", 4000),
        Capacity("small", "memory", 8 * GIB),
        Capacity("big", "cpu", 16000),
        Capacity("big", "memory", 64 * GIB),
        Capacity("big", "gpu", 2),
    ],
    where="the cluster",
)


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([Resources(16000, 64 * GIB, 2)], []),
        ([Resources(16001, GIB)], [("cpu", "needs 16001m cpu, the cluster has 16")]),
        ([Resources(1000, GIB, 4)], [("gpu", "needs 4 gpu, the cluster has 2")]),
        ([Resources(1000, 65 * GIB)], [("memory", "needs 65Gi memory, the cluster has 64Gi")]),
        ([Resources(1000, GIB, 1)] * 3, [("gpu", "its 3 ranks need 3 gpu together, the cluster has 2")]),
        ([Resources(10000, GIB)] * 2, []),
        ([Resources(10000, GIB)] * 3, [("cpu", "its 3 ranks need 30 cpu together, the cluster has 20")]),
        ([Resources(1000, GIB, 0, None, 1)], [("rdma", "needs 1 rdma, the cluster has 0")]),
        (
            [Resources(99000, 99 * GIB, 9)],
            [
                ("cpu", "needs 99 cpu, the cluster has 16"),
                ("memory", "needs 99Gi memory, the cluster has 64Gi"),
                ("gpu", "needs 9 gpu, the cluster has 2"),
            ],
        ),
    ],
)
def test_fit(ranks: list[Resources], found: list[tuple[str, str]]) -> None:
    problems = check_fit(ranks, TWO_FLAVORS, field="spec.resources", node="t")
    assert [(p.field, p.message) for p in problems] == [(f"spec.resources.{kind}", message) for kind, message in found]
    assert {(p.code, p.node) for p in problems} <= {("never_fits", "t")}
