"""Where the catalogue lies: as set, beside the source, or where the package installed it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from myapp.domain.errors import Invalid

FOLDER = "job-template"


def catalog_root(setting: str | Path | None = None) -> Path:
    """The catalogue's folder. Raises Invalid, naming the places looked at, when there is none."""
    if setting:
        places = [Path(setting)]
    else:
        checkout = Path(__file__).resolve().parents[2] / FOLDER
        installed = Path(sysconfig.get_path("data")) / "share" / "cube-studio" / FOLDER
        places = [checkout, installed]
    for place in places:
        if (place / "frameworks").is_dir():
            return place
    raise Invalid(
        f"no catalogue at {' or '.join(str(p) for p in places)}", code="catalog_missing",
        resolution=f"point the catalogue setting at a folder with {FOLDER}'s frameworks/ and job/",
    )
