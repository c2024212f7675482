"""From a plan to what each rank is started with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from myapp.domain.errors import Invalid
from myapp.domain.frameworks.framework import Framework, parse_framework
from myapp.domain.frameworks.render import port_names, render_launch
from myapp.domain.frameworks.topology import plan
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.ports import Addresses, AttemptKey, LaunchSpec

PYTORCH: dict[str, Any] = {
    "name": "pytorch",
    "topology": "rendezvous",
    "distributed": {"ddp": "rendezvous"},
    "ports": {"rendezvous": 29500},
    "env": {
        "MASTER_ADDR": "{{ chief.host }}",
        "MASTER_PORT": "{{ ports.rendezvous }}",
        "WORLD_SIZE": "{{ world_size }}",
        "RANK": "{{ rank }}",
        "LOCAL_RANK": "{{ local_rank }}",
    },
    "reserved_env": ["MASTER_ADDR"],
    "script": {"command": ["{python}", "-u", "{file}"], "file": "main.py"},
    "stop": {"signal": "INT", "grace_s": 60},
    "versions": [
        {
            "version": "2.4",
            "python": ["3.11"],
            "cpu": {"requirements": ["torch"]},
            "cuda12.4": {"image": "pt:gpu", "requirements": ["torch+gpu"]},
        }
    ],
}
TENSORFLOW: dict[str, Any] = {
    "name": "tensorflow",
    "topology": "rendezvous",
    "distributed": {"ps": "ps-worker"},
    "ports": {"grpc": {"port": 2222, "per_rank": True}},
    "roles": [{"name": "chief", "max": 1, "default": 1}, {"name": "worker", "max": 8}, {"name": "ps", "max": 4}],
    "env": {
        "TF_CONFIG": "{{ cluster_json }}",
        "HOSTS": "{{ hosts.worker }}",
        "ME": "{{ role }}:{{ index }}",
        "SERVERS": "{{ replicas.ps }}",
        "MINE": "{{ ports.grpc }}",
        "CHIEF": "{{ chief.address }}",
        "AT": "{{ host }}",
    },
}
SHELL: dict[str, Any] = {
    "name": "shell",
    "script": {"command": ["/bin/sh", "{file}"], "file": "main.sh"},
    "env": {"SHLVL_X": "{{ rank }}"},
}
KEY = AttemptKey("vision", 7, "vision-train-7-abcdef01")


def framework(data: dict[str, Any]) -> Framework:
    parsed, problems = parse_framework(data)
    assert parsed is not None, problems
    return parsed


def launch(
    data: dict[str, Any], addresses: Addresses | None = None, options: dict[str, Any] | None = None, **fields: Any
) -> LaunchSpec:
    known = framework(data)
    spec = AIJobSpec.model_validate(
        {"framework": data["name"], **({} if "script" in fields else {"command": ["run"]}), **fields}
    )
    planned, problems = plan(known, spec)
    assert planned is not None, problems
    if addresses is None:
        hosts = {
            role: [f"10.0.{i}.{n}" for n in range(count)] for i, (role, count) in enumerate(planned.replicas.items())
        }
        addresses = Addresses(hosts, {name: 5000 + i for i, name in enumerate(port_names(known, planned))})
    return render_launch(
        known, spec, planned, addresses, KEY, project="vision", run=12, task="train", **(options or {})
    )


def test_a_shell_script() -> None:
    spec = launch(SHELL, script="echo hi", args=["a", "b"], env={"X": "1"}, workdir="src")
    (rank,) = spec.ranks
    assert rank.command == ("/bin/sh", "$(CUBE_JOB_DIR)/main.sh", "a", "b")
    assert spec.files == {"main.sh": "echo hi"}
    assert rank.env == {
        "X": "1",
        "SHLVL_X": "0",
        "CUBE_PROJECT": "vision",
        "CUBE_RUN_ID": "12",
        "CUBE_TASK": "train",
        "CUBE_ATTEMPT": "1",
        "CUBE_ROLE": "worker",
        "CUBE_INDEX": "0",
        "CUBE_RANK": "0",
        "CUBE_WORLD_SIZE": "1",
    }
    assert (spec.name, spec.workdir, spec.success_roles) == ("train", "src", ("worker",))
    assert spec.environment.requirements == ()


def test_rendezvous_ranks_know_each_other() -> None:
    spec = launch(PYTORCH, distributed={"type": "ddp", "workers": 3}, script="x")
    assert [rank.env["RANK"] for rank in spec.ranks] == ["0", "1", "2"]
    assert {rank.env["MASTER_ADDR"] for rank in spec.ranks} == {"10.0.0.0"}
    assert {(rank.env["MASTER_PORT"], rank.env["WORLD_SIZE"], rank.env["LOCAL_RANK"]) for rank in spec.ranks} == {
        ("5000", "3", "0")
    }
    assert {rank.command for rank in spec.ranks} == {("python", "-u", "$(CUBE_JOB_DIR)/main.py")}
    assert (spec.environment.requirements, spec.environment.python) == (("torch",), "3.11")
    assert (spec.stop_signal, spec.grace_s) == ("INT", 60)


def test_one_process_of_a_distributed_framework_is_told_nothing() -> None:
    spec = launch(PYTORCH, command=["python", "t.py"])
    assert not {"MASTER_ADDR", "RANK"} & set(spec.ranks[0].env)
    assert spec.ranks[0].command == ("python", "t.py")


def test_parameter_servers_on_one_machine_get_their_own_ports() -> None:
    known = framework(TENSORFLOW)
    spec = AIJobSpec.model_validate(
        {"framework": "tensorflow", "command": ["x"], "distributed": {"type": "ps", "workers": 2, "ps": 1}}
    )
    planned, _ = plan(known, spec)
    assert planned is not None
    names = port_names(known, planned)
    assert names == ("grpc.0", "grpc.1", "grpc.2", "grpc.3")
    hosts = {"chief": ["127.0.0.1"], "worker": ["127.0.0.1"] * 2, "ps": ["127.0.0.1"]}
    asked = Addresses(hosts, {name: 7000 + 10 * i for i, name in enumerate(names)})
    listed = Addresses(hosts, {"grpc": 1}, {"grpc": [7000, 7010, 7020, 7030]})
    for addresses in (asked, listed):
        result = launch(TENSORFLOW, addresses, distributed={"type": "ps", "workers": 2, "ps": 1})
        configs = [json.loads(rank.env["TF_CONFIG"]) for rank in result.ranks]
        assert {json.dumps(config["cluster"]) for config in configs} == {
            json.dumps(
                {"chief": ["127.0.0.1:7000"], "ps": ["127.0.0.1:7030"], "worker": ["127.0.0.1:7010", "127.0.0.1:7020"]}
            )
        }
        assert [config["task"] for config in configs] == [
            {"type": "chief", "index": 0},
            {"type": "worker", "index": 0},
            {"type": "worker", "index": 1},
            {"type": "ps", "index": 0},
        ]
        assert [rank.env["MINE"] for rank in result.ranks] == ["7000", "7010", "7020", "7030"]
        assert {rank.env["HOSTS"] for rank in result.ranks} == {"127.0.0.1:7010,127.0.0.1:7020"}
        assert [rank.env["ME"] for rank in result.ranks] == ["chief:0", "worker:0", "worker:1", "ps:0"]
        assert {(rank.env["SERVERS"], rank.env["CHIEF"], rank.env["AT"]) for rank in result.ranks} == {
            ("1", "127.0.0.1:7000", "127.0.0.1")
        }
        assert result.success_roles == ("chief", "worker")


def test_without_numbers_from_the_backend_the_declared_port_is_used() -> None:
    spec = launch(PYTORCH, Addresses({"worker": ["a", "b"]}, {}), distributed={"workers": 2})
    assert spec.ranks[1].env["MASTER_PORT"] == "29500"


@pytest.mark.parametrize("name", ["MASTER_ADDR", "RANK", "CUBE_RANK", "HOME", "PATH", "CUDA_VISIBLE_DEVICES"])
def test_reserved_variables_are_refused(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        launch(PYTORCH, env={name: "x"})
    assert [(p.code, p.field) for p in caught.value.problems] == [("reserved_env", f"spec.env.{name}")]


def test_the_platform_s_values_win_and_are_not_rendered_again() -> None:
    spec = launch(
        PYTORCH,
        env={"X": "{{ chief.host }}"},
        args=["{{ rank }}"],
        options={"env": {"CUBE_RUN_NAME": "r"}, "attempt": 3},
    )
    rank = spec.ranks[0]
    assert (rank.env["X"], rank.command, rank.env["CUBE_RUN_NAME"], rank.env["CUBE_ATTEMPT"]) == (
        "{{ chief.host }}",
        ("run", "{{ rank }}"),
        "r",
        "3",
    )


def test_devices_builds_and_labels() -> None:
    spec = launch(
        PYTORCH,
        resources={"gpu": 2},
        distributed={"workers": 2},
        options={
            "devices": {0: (0, 1), 1: (2, 3)},
            "accelerator": "cuda12.6",
            "labels": {"log_dir": "/l"},
            "inputs": ("/a",),
            "workspace": "/w",
        },
    )
    assert [rank.devices for rank in spec.ranks] == [(0, 1), (2, 3)]
    assert (spec.image, spec.environment.requirements) == ("pt:gpu", ("torch+gpu",))
    assert spec.labels == {"project": "vision", "run": "12", "task": "train", "framework": "pytorch", "log_dir": "/l"}
    assert (spec.inputs, spec.workspace) == (("/a",), "/w")
    assert launch(PYTORCH, image="own:1").image == "own:1"


def test_an_interpreter_replaces_the_build() -> None:
    spec = launch(PYTORCH, environment={"interpreter": "system"})
    assert (spec.environment.interpreter, spec.environment.requirements) == ("system", ())
    with pytest.raises(Invalid):
        launch(PYTORCH, version="9.9")


def test_the_hash_is_of_the_work_and_not_of_the_devices() -> None:
    base: dict[str, Any] = {"distributed": {"workers": 2}}
    first = launch(PYTORCH, **base).sha256
    assert len(first) == 64
    assert launch(PYTORCH, options={"devices": {0: (1,)}}, **base).sha256 == first
    assert launch(PYTORCH, options={"sha256": "given"}, **base).sha256 == "given"
    others = [
        launch(PYTORCH, args=["x"], **base),
        launch(PYTORCH, env={"A": "1"}, **base),
        launch(PYTORCH, distributed={"workers": 3}),
    ]
    assert len({first, *(other.sha256 for other in others)}) == 4


def test_inline_files_go_along_with_the_script() -> None:
    spec = launch(PYTORCH, script="x", files={"args.json": "{}"})
    assert spec.files == {"args.json": "{}", "main.py": "x"}
