"""The systems Cube Studio is measured beside, each in a virtual environment of its own under ~/.cache/cube-bench."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.peers.airflow import Airflow
from bench.peers.dagster import Dagster
from bench.peers.install import installed
from bench.peers.luigi import Luigi
from bench.peers.prefect import Prefect
from bench.system import System
from bench.tree import Tree

PEERS: dict[str, Callable[[Tree, Path], System]] = {
    "airflow": Airflow,
    "prefect": Prefect,
    "dagster": Dagster,
    "prefect-tuned": partial(Prefect, tuned=True),
    "dagster-tuned": partial(Dagster, tuned=True),
    "luigi": Luigi,
}
__all__ = ["PEERS", "installed"]
