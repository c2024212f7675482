"""Where the catalogue lies: as set, beside the source, or where the package installed it."""

from __future__ import annotations

from pathlib import Path

from myapp.domain.errors import Invalid
from myapp.utils.shipped import places

FOLDER = "job-template"


def catalog_root(setting: str | Path | None = None) -> Path:
    """The catalogue's folder. Raises Invalid, naming the places looked at, when there is none."""
    looked_at = [Path(setting)] if setting else places(FOLDER)
    for place in looked_at:
        if (place / "frameworks").is_dir():
            return place
    raise Invalid(
        f"no catalogue at {' or '.join(str(p) for p in looked_at)}", code="catalog_missing",
        resolution=f"point the catalogue setting at a folder with {FOLDER}'s frameworks/ and job/",
    )
