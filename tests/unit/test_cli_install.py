"""The Makefile's set-up and the compose file, as far as they can be tried without installing anything."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def make_venv(tmp_path: Path, pythons: dict[str, str], chosen: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script with these programs as the only Pythons: name to shell script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in pythons.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", str(ROOT / "install/make-venv.sh"), str(tmp_path / "venv")],
        env={"PATH": str(programs), "PYTHON": chosen},
        capture_output=True,
        text=True,
    )


def fake(version: str, *, complete: bool = True) -> str:
    """A Python that tells its version, has its modules or not, and makes an environment by making a folder."""
    modules = "exit 0" if complete else "exit 1"
    return f"""case "$1 $2" in *version_info*) echo {version} ;; "-c import"*) {modules} ;; *) echo "made $*" ;; esac"""


@pytest.mark.parametrize(
    ("pythons", "said"),
    [
        ({}, "none was found"),
        ({"python3": "exit 127"}, "none was found"),
        ({"python3": fake("3.9"), "python3.11": fake("3.10")}, "found only: python3=3.9 python3.11=3.10"),
        ({"python3": fake("3.14")}, "found only: python3=3.14"),
        ({"python3": fake("3.12", complete=False)}, "lacks one of its own modules: venv"),
    ],
)
def test_a_missing_python_is_named_with_the_remedy(tmp_path: Path, pythons: dict[str, str], said: str) -> None:
    done = make_venv(tmp_path, pythons)
    assert done.returncode == 1
    assert said in done.stderr
    assert "apt install python3 python3-venv" in done.stderr


@pytest.mark.parametrize(
    ("pythons", "chosen", "made_with"),
    [
        ({"python3": fake("3.11")}, "", "python3 (3.11)"),
        ({"python3": fake("3.9"), "python3.12": fake("3.12")}, "", "python3.12 (3.12)"),
        ({"python3": fake("3.11"), "mine": fake("3.13")}, "mine", "mine (3.13)"),
    ],
)
def test_the_first_python_that_fits_is_taken(
    tmp_path: Path, pythons: dict[str, str], chosen: str, made_with: str
) -> None:
    done = make_venv(tmp_path, pythons, chosen)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"with {made_with}" in done.stdout
    assert f"made -m venv {tmp_path}/venv" in done.stdout


def test_make_alone_lists_the_targets() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True, env=env, check=True
    )
    listed = set(re.findall(r"^  ([a-z-]+) +[a-z]", done.stdout, re.MULTILINE))
    assert {"help", "run", "test", "test-unit", "lint", "bench", "docs", "clean"} <= listed


def test_every_secret_of_the_compose_file_must_be_given() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    document = yaml.safe_load(text)
    assert {"web", "worker", "beat", "watch", "postgres", "redis"} <= set(document["services"])
    used = set(re.findall(r"\$\{([A-Z_]+)(:[?-])", text))
    example = (ROOT / "install/docker/cube.env.example").read_text()
    for name, operator in used:
        if re.search("PASSWORD|SECRET", name):
            assert operator == ":?", f"{name} has a default"
            assert f"\n{name}=\n" in example
    assert {name for name, _ in used if re.search("PASSWORD|SECRET", name)} == {
        "POSTGRES_PASSWORD",
        "REDIS_PASSWORD",
        "CUBE_SECRET_KEY",
        "CUBE_ADMIN_PASSWORD",
    }


def test_watch_sees_the_workers_jobs() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    worker, watch = services["worker"], services["watch"]
    assert watch["pid"] == "service:worker"
    assert watch["volumes"] == worker["volumes"]
    assert watch["environment"]["CUBE_NODE"] == worker["environment"]["CUBE_NODE"] == worker["hostname"]


def test_nothing_installed_names_a_registry() -> None:
    for path in [*(ROOT / "requirements").glob("*.txt"), ROOT / "pyproject.toml", ROOT / "setup.py", ROOT / "Makefile"]:
        assert not re.search(r"--index-url|--find-links|https?://", path.read_text()), path.name
