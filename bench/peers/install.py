"""Pinned peers, installed by uv."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from bench.tree import Tree, environment

VENVS = Path.home() / ".cache" / "cube-bench"
PINS = {
    "airflow": ("apache-airflow==3.3.2",),
    "prefect": ("prefect==3.9.1",),
    "dagster": ("dagster==1.13.28", "dagster-webserver==1.13.28"),
    "luigi": ("luigi==3.8.1",),
}


def program(peer: str, name: str = "python") -> Path:
    return VENVS / peer / "bin" / name


def installed(peer: str) -> bool:
    """`prefect-tuned` is Prefect."""
    name = peer.removesuffix("-tuned")
    return program(name, name).exists()


def install(tree: Tree, peer: str) -> None:
    """Into a new virtual environment, byte code compiled; nothing when it is there. Raises RuntimeError."""
    if installed(peer):
        return
    print(f"installing {' '.join(PINS[peer])} into {VENVS / peer} ...", flush=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    env = environment()
    tree.run([*uv, "venv", "--clear", "--python", sys.executable, VENVS / peer], env)
    tree.run([*uv, "pip", "install", "--compile-bytecode", "--python", program(peer), *PINS[peer]], env, timeout=1200)


def version(tree: Tree, peer: str) -> str:
    """What is installed, by the name of its first pin."""
    name = PINS[peer][0].partition("==")[0]
    found = importlib.metadata.distributions(
        name=name, path=[str(path) for path in (VENVS / peer / "lib").glob("python*/site-packages")]
    )
    return next((one.version for one in found), "unknown")
