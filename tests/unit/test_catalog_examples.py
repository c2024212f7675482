"""The example documents are valid, and the distributed ones run for real with what the renderer gives them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from myapp.catalog import Catalog, load_catalog
from myapp.catalog.yamldoc import load_one
from myapp.domain.frameworks.render import render_launch
from myapp.domain.frameworks.topology import Plan, check_job, plan
from myapp.domain.graph import validate_pipeline
from myapp.domain.jobspec import AIJob, parse_aijob
from myapp.domain.pipeline import PipelineDoc, parse_pipeline
from myapp.domain.ports import Addresses, AttemptKey, LaunchSpec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "myapp" / "example" / "pipeline"
PIPELINES = ["digits", "hello"]
JOBS = ["rendezvous", "ps-worker"]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(ROOT / "job-template")


def read_job(name: str) -> AIJob:
    job, problems = parse_aijob(load_one((EXAMPLES / name / "job.yaml").read_text()))
    assert job is not None, problems
    return job


def planned(catalog: Catalog, job: AIJob) -> Plan:
    result, problems = plan(catalog.frameworks[job.spec.framework], job.spec)
    assert result is not None, problems
    return result


def read_pipeline(name: str) -> PipelineDoc:
    pipeline, problems = parse_pipeline(load_one((EXAMPLES / name / "pipeline.yaml").read_text()))
    assert pipeline is not None, problems
    return pipeline


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_are_valid(catalog: Catalog, name: str) -> None:
    pipeline = read_pipeline(name)
    assert (pipeline.metadata.name, pipeline.metadata.project) == (name, "public")
    views = {key: template.view() for key, template in catalog.templates.items()}
    assert validate_pipeline(pipeline, templates=views, frameworks=catalog.frameworks) == []


@pytest.mark.parametrize("name", JOBS)
def test_jobs_are_valid(catalog: Catalog, name: str) -> None:
    job = read_job(name)
    assert (job.metadata.name, job.metadata.project) == (name, "public")
    assert check_job(catalog.frameworks[job.spec.framework], job.spec) == []


def test_every_example_has_a_readme() -> None:
    assert {p.parent.name for p in EXAMPLES.glob("*/README.md")} >= {*PIPELINES, *JOBS}


def test_the_sample_trains_three_models_side_by_side() -> None:
    pipeline = read_pipeline("digits")
    depth: dict[str, int] = {}
    for task in pipeline.spec.tasks:
        depth[task.name] = 1 + max((depth[key] for key in task.depends_on), default=-1)
    assert [k for k in depth if depth[k] == 2] == ["train-logistic", "train-forest", "train-xgboost"]
    assert max(depth.values()) == depth["publish"] == 4
    assert [param.name for param in pipeline.spec.params] == ["seed", "test_share", "n_estimators"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(catalog: Catalog, name: str) -> tuple[Plan, LaunchSpec]:
    """The job as a backend would get it, every rank on loopback with a port of its own."""
    job = read_job(name)
    plan_ = planned(catalog, job)
    framework = catalog.frameworks[job.spec.framework]
    size = plan_.world_size
    addresses = Addresses(
        hosts={role: ["127.0.0.1"] * count for role, count in plan_.replicas.items()},
        ports={port: free_port() for port in framework.ports},
        rank_ports={port: [free_port() for _ in range(size)] for port in framework.ports},
    )
    spec = render_launch(framework, job.spec, plan_, addresses, AttemptKey("public", 1, "x"), project="public", run=1,
                         task=name)
    return plan_, spec


def start(spec: LaunchSpec, folder: Path) -> list[subprocess.Popen[str]]:
    job, out = folder / "job", folder / "out"
    job.mkdir()
    for name, text in spec.files.items():
        (job / name).write_text(text)
    python = str(Path(sys.executable).parent)
    base = {"PATH": f"{python}{os.pathsep}{os.defpath}", "CUBE_JOB_DIR": str(job), "CUBE_OUTPUT_DIR": str(out)}
    return [
        subprocess.Popen(
            [word.replace("$(CUBE_JOB_DIR)", str(job)) for word in rank.command], env={**rank.env, **base}, text=True,
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in spec.ranks
    ]


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def value(folder: Path, name: str) -> Any:
    return json.loads((folder / "out" / "values" / name).read_text())


def test_rendezvous_ranks_meet_and_agree(catalog: Catalog, tmp_path: Path) -> None:
    plan_, spec = launch(catalog, "rendezvous")
    assert (plan_.topology, plan_.replicas, plan_.success_roles) == ("rendezvous", {"worker": 2}, ("worker",))
    processes = start(spec, tmp_path)
    try:
        logs = [p.communicate(timeout=60)[0] for p in processes]
        assert [p.returncode for p in processes] == [0, 0], logs
    finally:
        end(processes)
    assert value(tmp_path, "ranks") == 2
    assert value(tmp_path, "slope") == pytest.approx(3.0, abs=1e-3)
    assert all("y = 3.0000 x -0.5000" in log for log in logs)


def test_a_rendezvous_rank_alone_fails_when_its_peer_dies(catalog: Catalog, tmp_path: Path) -> None:
    _, spec = launch(catalog, "rendezvous")
    spec.files["main.py"] = spec.files["main.py"].replace("STEPS, RATE = 300", "STEPS, RATE = 10**9")
    processes = start(spec, tmp_path)
    try:
        assert processes[0].stdout is not None
        while "step" not in processes[0].stdout.readline():
            assert processes[0].poll() is None
        processes[1].kill()
        processes[0].communicate(timeout=60)
        assert processes[0].returncode == 1
    finally:
        end(processes)


def test_parameter_server_serves_until_the_workers_are_done(catalog: Catalog, tmp_path: Path) -> None:
    plan_, spec = launch(catalog, "ps-worker")
    assert (plan_.replicas, plan_.success_roles) == ({"worker": 2, "ps": 1}, ("worker",))
    processes = start(spec, tmp_path)
    roles = [rank.role for rank in spec.ranks]
    try:
        workers = [p for p, role in zip(processes, roles, strict=True) if role == "worker"]
        logs = [p.communicate(timeout=60)[0] for p in workers]
        assert [p.returncode for p in workers] == [0, 0], logs
        server = processes[roles.index("ps")]
        assert server.poll() is None
        server.terminate()
        server.communicate(timeout=60)
        assert server.returncode == -15
    finally:
        end(processes)
    assert value(tmp_path, "gradients") == 800
    assert value(tmp_path, "worst_error") < 1e-3


def test_hello_leaves_a_greeting(catalog: Catalog, tmp_path: Path) -> None:
    greet, shout = read_pipeline("hello").spec.tasks
    out = {"PATH": os.defpath, "CUBE_OUTPUT_DIR": str(tmp_path)}
    run_shell(greet.args["command"], {**out, "WHO": "Ada"})
    assert (tmp_path / "values" / "greeting").read_text() == "hello, Ada"
    assert run_shell(shout.args["command"], {**out, "GREETING": "hello, Ada"}) == "HELLO, ADA\n"


def run_shell(command: str, env: dict[str, str]) -> str:
    return subprocess.run(
        ["/bin/sh", "-c", command], env=env, check=True, capture_output=True, text=True, timeout=60
    ).stdout
