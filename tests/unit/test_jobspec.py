"""AIJob documents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.catalog.yamldoc import load_documents
from myapp.domain.jobspec import AIJob, check_interpreter, check_job_body, check_relative_path, parse_aijob
from myapp.domain.ports import Resources

SEED = """
apiVersion: cube-studio.io/v1alpha1
kind: AIJob
metadata: {name: resnet50, project: vision}
spec:
  framework: tensorflow
  command: ["python", "train.py"]
  resources: {gpu: 2, cpu: 8, memory: "32Gi"}
  distributed: {type: "horovod", workers: 4}
"""


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "AIJob",
        "metadata": {"name": "j"},
        "spec": {"framework": "python", "command": ["true"], **spec},
    }


def problems_of(document: Any) -> list[Any]:
    parsed, problems = parse_aijob(document)
    assert (parsed is None) == bool(problems)
    for problem in problems:
        assert problem.message.isprintable()
    return problems


def test_the_seed_example_is_valid_as_it_stands() -> None:
    parsed, problems = parse_aijob(load_documents(SEED)[0].value)
    assert problems == []
    assert parsed is not None
    assert parsed.spec.resources.resolve() == Resources(cpu_milli=8000, memory=32 * 2**30, gpu=2)
    assert parsed.spec.distributed is not None
    assert (parsed.spec.distributed.type, parsed.spec.distributed.workers) == ("horovod", 4)


def test_everything_in_the_design_is_accepted() -> None:
    parsed, problems = parse_aijob(
        job(
            version="2.4",
            image="x/y:1",
            env={"EPOCHS": "3", "N": 4, "FLAG": True},
            args=["--lr", 0.1],
            workdir="src",
            resources={"cpu": "500m", "memory": "2G", "gpu": 2, "gpuType": "A100", "rdma": 0},
            distributed={"type": "auto", "workers": 4},
            roles={"ps": {"replicas": 2, "resources": {"cpu": 2}}},
            elastic={"min": 2, "max": 8},
            volumes=[{"type": "pvc", "name": "data", "mountPath": "/data"}],
            retry={"limit": 2, "backoff": "10s", "maxBackoff": "5m"},
            timeout="2h",
            priority="normal",
            queue="default",
            environment={"requirements": ["numpy==2.1", "torch>=2 ; python_version > '3.10'"]},
            files={"a.txt": "x"},
        )
    )
    assert problems == []
    assert parsed is not None
    assert parsed.spec.env == {"EPOCHS": "3", "N": "4", "FLAG": "true"}
    assert parsed.spec.args == ["--lr", "0.1"]
    assert parsed.spec.timeout == 7200
    assert parsed.spec.retry.max_backoff == 300
    assert parsed.spec.roles["ps"].resources is not None


def test_a_document_reads_back_from_its_own_writing() -> None:
    parsed, _ = parse_aijob(load_documents(SEED)[0].value)
    assert parsed is not None
    again = AIJob.model_validate({**parsed.to_dict()})
    assert again == parsed


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"scrpt": "x"}, "unknown_field", "spec.scrpt"),
        ({"resources": {"cpus": 1}}, "unknown_field", "spec.resources.cpus"),
        ({"resources": {"gpu_type": "x"}}, "unknown_field", "spec.resources.gpu_type"),
        ({"resources": {"cpu": "much"}}, "bad_quantity", "spec.resources.cpu"),
        ({"resources": {"gpu": -1}}, "out_of_range", "spec.resources.gpu"),
        ({"resources": {"gpu": "2"}}, "wrong_type", "spec.resources.gpu"),
        ({"resources": {"memory": 0}}, "bad_quantity", "spec.resources.memory"),
        ({"resources": []}, "wrong_type", "spec.resources"),
        ({"framework": None}, "wrong_type", "spec.framework"),
        ({"version": 2.4}, "wrong_type", "spec.version"),
        ({"command": "python train.py"}, "wrong_type", "spec.command"),
        ({"command": []}, "bad_length", "spec.command"),
        ({"command": [None]}, "wrong_type", "spec.command[0]"),
        ({"command": [""]}, "bad_length", "spec.command[0]"),
        ({"command": ["a\0b"]}, "bad_character", "spec.command[0]"),
        ({"script": "x"}, "command_or_script", "spec.script"),
        ({"scriptFile": "main.py"}, "unknown_field", "spec.scriptFile"),
        ({"env": {"A": ["x"]}}, "wrong_type", "spec.env.A"),
        ({"env": {"A-B": "x"}}, "bad_name", "spec.env.A-B"),
        ({"env": {"A": "\0"}}, "bad_character", "spec.env.A"),
        ({"env": {"A": "x" * 200_000}}, "too_large", "spec.env.A"),
        ({"distributed": {"type": "horovd"}}, "not_allowed", "spec.distributed.type"),
        ({"distributed": {"workers": 0}}, "out_of_range", "spec.distributed.workers"),
        ({"distributed": {"workers": 2.5}}, "wrong_type", "spec.distributed.workers"),
        ({"roles": {"ps": {"replica": 1}}}, "unknown_field", "spec.roles.ps.replica"),
        ({"elastic": {"min": 3, "max": 1}}, "out_of_range", "spec.elastic"),
        ({"volumes": [{"type": "nfs"}]}, "not_allowed", "spec.volumes[0].type"),
        ({"retry": {"limit": 1000}}, "out_of_range", "spec.retry.limit"),
        ({"retry": {"backoff": "x"}}, "bad_quantity", "spec.retry.backoff"),
        ({"retry": {"backoff": "1h", "maxBackoff": "1s"}}, "out_of_range", "spec.retry.backoff"),
        ({"timeout": "soon"}, "bad_quantity", "spec.timeout"),
        ({"timeout": 0}, "bad_quantity", "spec.timeout"),
        ({"timeout": True}, "bad_quantity", "spec.timeout"),
        ({"priority": "urgent"}, "not_allowed", "spec.priority"),
        ({"workdir": "../.."}, "bad_path", "spec.workdir"),
        ({"workdir": "/etc"}, "bad_path", "spec.workdir"),
        ({"environment": {"requirements": ["--index-url x"]}}, "bad_requirement", "spec.environment.requirements[0]"),
        (
            {"environment": {"requirements": ["numpy\n-r /etc/passwd"]}},
            "bad_requirement",
            "spec.environment.requirements[0]",
        ),
        ({"environment": {"requirements": ["numpy", "./x"]}}, "bad_requirement", "spec.environment.requirements[1]"),
        ({"environment": {"requirements": ["x @ file:///etc"]}}, "bad_requirement", "spec.environment.requirements[0]"),
        ({"environment": {"requirements": ["numpy"], "interpreter": "x"}}, "environment", "spec.environment"),
        ({"files": {"../x": "a"}}, "bad_path", "spec.files"),
        ({"files": {".bashrc": "a"}}, "bad_path", "spec.files"),
    ],
)
def test_each_mistake_names_its_field(spec: dict[str, Any], code: str, field: str) -> None:
    found = [(p.code, p.field) for p in problems_of(job(**spec))]
    assert (code, field) in found


@pytest.mark.parametrize(
    ("spec", "resolution"),
    [
        ({"scrpt": "x"}, "did you mean 'script'?"),
        ({"resources": {"zzz": 1}}, "known: cpu, gpu, gpuType, memory, rdma"),
        ({"resources": {"gpu_type": "x"}}, "did you mean 'gpuType'?"),
        ({"distributed": {"type": "horovd"}}, "did you mean 'horovod'?"),
        ({"roles": {"ps": {"replica": 1}}}, "did you mean 'replicas'?"),
        ({"version": 2.4}, "put it in quotes"),
        ({"command": "python x.py"}, "write a list such as [python, train.py]"),
        ({"timout": 1}, "did you mean 'timeout'?"),
    ],
)
def test_each_mistake_says_what_to_do(spec: dict[str, Any], resolution: str) -> None:
    assert resolution in [p.resolution for p in problems_of(job(**spec))]


def test_all_problems_are_reported_at_once() -> None:
    document = job(comand=["x"], resources={"cpu": "x", "gpus": 1}, env={"1": "x"}, workdir="..", retry={"limit": -1})
    document["metadata"] = {"name": "../x", "projct": "p"}
    document["kind"] = "Job"
    del document["apiVersion"]
    del document["spec"]["command"]
    fields = {p.field for p in problems_of(document)}
    assert fields >= {
        "apiVersion",
        "kind",
        "metadata.projct",
        "spec.comand",
        "spec.resources.cpu",
        "spec.resources.gpus",
        "spec.env.1",
        "spec.workdir",
        "spec.retry.limit",
    }
    assert "spec" not in fields  # the misspelt command is not missing as well


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        3,
        {},
        {"spec": None},
        {"spec": []},
        {"spec": {"env": 3, "roles": [], "retry": 1}},
        job(command={"a": 1}),
        {**job(), "metadata": []},
        {**job(), "metadata": {"name": 3}},
    ],
)
def test_wrong_shapes_are_problems(document: Any) -> None:
    assert problems_of(document)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "../x"}, "metadata.name"),
        ({"name": "A"}, "metadata.name"),
        ({"name": "a", "project": "a/b"}, "metadata.project"),
        ({}, "metadata.name"),
        ({"name": "a", "project": "X"}, "metadata.project"),
    ],
)
def test_metadata(metadata: dict[str, Any], field: str) -> None:
    assert [p.field for p in problems_of({**job(), "metadata": metadata})] == [field]


def test_templated_values_wait_for_rendering() -> None:
    body = {
        "framework": "python",
        "script": "{{ args.s }}",
        "args": "{{ args.a }}",
        "resources": {"cpu": "{{ args.c }}", "gpu": "{{ args.g }}"},
        "distributed": {"workers": "{{ args.n }}"},
        "environment": {"requirements": "{{ args.r }}"},
    }
    assert check_job_body(body, field="job") == []
    found = check_job_body({**body, "resources": {"cpu": "lots", "gpus": "{{ args.g }}"}}, field="job", node="t")
    assert [(p.code, p.field, p.node) for p in found] == [("bad_quantity", "job.resources.cpu", "t")]


def test_interpreters_must_be_allowed() -> None:
    assert check_interpreter("torch", {"torch": "/x"}, "f") is None
    problem = check_interpreter("toch", {"torch": "/x"}, "f")
    assert problem is not None
    assert problem.resolution == "did you mean 'torch'?"


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("a", True),
        ("a/b.c", True),
        ("", False),
        ("/a", False),
        ("..", False),
        ("a/../b", False),
        ("~", False),
        ("a\\b", False),
        ("a\0", False),
        ("..a/b", True),
        ("a\n", False),
    ],
)
def test_relative_paths(path: str, good: bool) -> None:
    assert check_relative_path(path) is good


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
FIELDS = [
    "framework",
    "version",
    "command",
    "script",
    "args",
    "env",
    "files",
    "resources",
    "distributed",
    "roles",
    "elastic",
    "volumes",
    "retry",
    "timeout",
    "priority",
    "environment",
    "workdir",
    "extra",
]


@given(st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=6))
def test_any_spec_is_a_job_or_problems(spec: dict[str, Any]) -> None:
    parsed, problems = parse_aijob({**job(), "spec": spec})
    assert (parsed is None) == bool(problems)
    assert all(p.message.isprintable() and (p.field or "").isprintable() for p in problems)
