"""The folders beside the package that come with it: in a checkout, or where an installation put them."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def places(folder: str) -> list[Path]:
    """Where `job-template` or `migrations` may lie, best first."""
    installed = Path(sysconfig.get_path("data")) / "share" / "cube-studio" / folder
    return [Path(__file__).resolve().parents[2] / folder, installed]


def shipped(folder: str) -> Path:
    """The first place that exists; of none, the first."""
    found = places(folder)
    return next((place for place in found if place.is_dir()), found[0])
