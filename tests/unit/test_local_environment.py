"""Environments of jobs: what may be asked for, that one is built once, and what a failure says."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from myapp.backends.local import environment, sandbox
from myapp.domain.ports import AttemptKey, Cause, EnvironmentSpec, Handle, ObservedState, Rejected
from tests.contract.lab import Lab, eventually, local_lab

S = ObservedState


def wheel(folder: Path, name: str, code: str) -> None:
    """A real wheel, built by hand: the tests need no index."""
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as z:
        info = f"{name}-1.0.dist-info"
        z.writestr(f"{name}.py", code)
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture
def index(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that the installer, and only the installer, is told of."""
    folder = tmp_path_factory.mktemp("wheels")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    wheel(folder, "greeting", "def hello():\n    return 'hello from the wheel'\n")
    return folder


@pytest.fixture(params=["none", "bwrap"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, index: Path) -> Iterator[Lab]:
    if request.param == "bwrap" and (reason := sandbox.probe().reason):
        pytest.skip(reason)
    lab = local_lab(tmp_path, request.param)
    yield lab
    lab.close()


USE = ("python", "-c", "import greeting, sys; print(greeting.hello(), sys.prefix)")
WANTS = EnvironmentSpec(requirements=("greeting",))


def log_of(lab: Lab, key: AttemptKey, handle: Handle) -> str:
    return lab.backend.read_log(key, handle, 0, 0, 1 << 20).data.decode()


def test_built_once_and_used_again(lab: Lab) -> None:
    first = lab.start(USE, environment=WANTS)
    done = lab.end(*first)
    assert done.state is S.SUCCEEDED, log_of(lab, *first)
    assert "installing greeting (environment " in log_of(lab, *first)
    second = lab.start(USE, environment=EnvironmentSpec(requirements=("Greeting",)))
    assert lab.end(*second).state is S.SUCCEEDED
    assert log_of(lab, *second).startswith("hello from the wheel ")
    assert log_of(lab, *second).split()[-1] == log_of(lab, *first).split()[-1]
    assert str(lab.root / "home/envs") in log_of(lab, *second)


def test_the_platform_is_not_importable(lab: Lab) -> None:
    key, handle = lab.start(("python", "-c", "import flask"), environment=WANTS)
    rank = lab.end(key, handle).ranks[0]
    assert rank.exit_code == 1
    assert "No module named 'flask'" in rank.message


def _use(root: str, mode: str, number: int) -> str:
    lab = local_lab(Path(root), mode)
    try:
        key = AttemptKey("demo", number, f"demo-job-{number}")
        handle = lab.backend.arm(lab.spec(USE, environment=WANTS), key)
        lab.backend.fire(key, handle)
        done = lab.end(key, handle)
        text = log_of(lab, key, handle)
        assert done.state is S.SUCCEEDED, text
        return text
    finally:
        lab.backend.close()


def test_many_processes_asking_at_once_build_it_once(lab: Lab) -> None:
    mode = lab.backend.settings.sandbox
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        texts = pool.starmap(_use, [(str(lab.root), mode, n) for n in range(1, 5)])
    assert sum("installing" in text for text in texts) == 1
    assert all("hello from the wheel" in text for text in texts)
    assert len([p for p in (lab.root / "home/envs").iterdir() if (p / ".ready").exists()]) == 1


def test_a_half_built_one_is_built_again(lab: Lab) -> None:
    key, handle = lab.start(USE, environment=WANTS)
    lab.end(key, handle)
    env = next(p for p in (lab.root / "home/envs").iterdir() if (p / ".ready").exists())
    (env / ".ready").unlink()
    next(env.glob("lib/python*/site-packages/greeting.py")).unlink()
    key, handle = lab.start(USE, environment=WANTS)
    assert lab.end(key, handle).state is S.SUCCEEDED, log_of(lab, key, handle)


def test_unsatisfiable_requirements_are_explained(lab: Lab) -> None:
    key, handle = lab.start(USE, environment=EnvironmentSpec(requirements=("greeting==9",)))
    done = lab.end(key, handle)
    assert done.ranks[0].cause is Cause.ENVIRONMENT
    assert "greeting==9" in done.message
    assert "greeting==9" in log_of(lab, key, handle)
    assert list((lab.root / "home/envs").glob("*/.ready")) == []


def test_an_unreachable_index_is_worth_another_try(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    for name in [n for n in os.environ if n.upper().endswith("_PROXY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    key, handle = lab.start(USE, environment=EnvironmentSpec(requirements=("absent-package",)))
    done = lab.end(key, handle)
    assert done.ranks[0].cause is Cause.ENVIRONMENT_TRANSIENT, done.message


def test_waiting_is_shown_and_can_be_stopped(lab: Lab) -> None:
    import fcntl

    key, handle = lab.arm(USE, environment=WANTS)
    spec = json.loads((lab.root / "home/jobs" / key.object_name / "spec.json").read_text())
    with open(spec["environment"]["path"] + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lab.backend.fire(key, handle)
        eventually(lambda: "waiting for the environment greeting" in lab.backend.observe(key, handle).message)
        assert lab.backend.observe(key, handle).state is S.PENDING
        lab.backend.stop(key, handle, 30)
        assert lab.end(key, handle).ranks[0].cause is Cause.CANCELLED


def test_a_named_interpreter(tmp_path: Path) -> None:
    lab = local_lab(tmp_path, interpreters={"platform": sys.executable})
    try:
        command = ("python3", "-c", "import sys; print(sys.prefix)")
        key, handle = lab.start(command, environment=EnvironmentSpec(interpreter="platform"))
        assert lab.end(key, handle).state is S.SUCCEEDED
        assert log_of(lab, key, handle).strip() == sys.prefix
        with pytest.raises(Rejected, match="known: platform"):
            lab.arm("succeed", environment=EnvironmentSpec(interpreter="other"))
    finally:
        lab.close()


@pytest.mark.parametrize(
    "requirement",
    [
        "--index-url=http://evil", "-e .", "-r /etc/passwd", ".", "/tmp/x", "../x", "x @ http://evil/x.whl",
        "x @ file:///etc", "git+https://evil/x", "x; os_system('x')", "", "x\n--index-url http://evil", "a b",
        "x" * 5000 + "!",
    ],
)
def test_refused_requirements(requirement: str) -> None:
    with pytest.raises(Rejected) as caught:
        environment.normalise((requirement,), allow_urls=False)
    assert caught.value.cause is Cause.ENVIRONMENT
    assert caught.value.resolution


def test_normal_form() -> None:
    one = environment.normalise(("Scikit_Learn >=1.5,<2", "xgboost"), False)
    two = environment.normalise(("xgboost", "scikit-learn<2,>=1.5", "xgboost"), False)
    assert one == two == ["scikit-learn<2,>=1.5", "xgboost"]
    assert environment.normalise(("x @ https://host/x.whl",), True) == ["x @ https://host/x.whl"]


@pytest.mark.parametrize("version", ["2.7", "3", "latest", "3.11; rm", "/usr/bin/python"])
def test_refused_versions(tmp_path: Path, version: str) -> None:
    lab = local_lab(tmp_path)
    try:
        with pytest.raises(Rejected, match="not a Python version"):
            lab.arm("succeed", environment=EnvironmentSpec(python=version))
    finally:
        lab.close()


def test_installer_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX_URL", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "yes")
    for name in ("UV_CACHE_DIR", "CUBE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "PIP_TARGET", "MY_PROXY_PASSWORD"):
        monkeypatch.setenv(name, "no")
    found = environment.installer_env()
    assert {"UV_INDEX_URL", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "PIP_INDEX_URL"} <= set(found)
    assert "no" not in found.values()


def test_pip_settings_are_handed_to_the_installer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://mirror/simple\n[install]\nfind-links = /one\n  /two\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    environment._pip_settings.cache_clear()
    try:
        found = environment.installer_env()
        assert (found["UV_DEFAULT_INDEX"], found["UV_FIND_LINKS"]) == ("https://mirror/simple", "/one,/two")
        monkeypatch.setenv("UV_INDEX_URL", "https://chosen/simple")
        assert "UV_DEFAULT_INDEX" not in environment.installer_env()
    finally:
        environment._pip_settings.cache_clear()
