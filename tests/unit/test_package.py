"""A wheel holds all that the platform needs: it runs where there is no checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from myapp.utils.shipped import places, shipped

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build")


def test_a_checkout_uses_its_own_folders() -> None:
    assert shipped("migrations") == ROOT / "migrations"
    assert places("job-template")[1].parts[-3:] == ("share", "cube-studio", "job-template")


def test_a_wheel_holds_the_catalogue_the_migrations_and_the_pages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("myapp", "job-template", "migrations", "requirements"):
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_OUT)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build, str(tmp_path)], cwd=source, check=True,
                   capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    share = f"{wheel.name.rpartition('-py3')[0]}.data/data/share/cube-studio"
    wanted = {
        f"{place}/{path.relative_to(base).as_posix()}"
        for place, base, pattern in (
            (f"{share}/job-template", ROOT / "job-template", "frameworks/*.yaml"),
            (f"{share}/job-template", ROOT / "job-template", "job/*/*.*"),
            (f"{share}/job-template", ROOT / "job-template", "runtime/*/*.py"),
            (f"{share}/migrations", ROOT / "migrations", "versions/*.py"),
            ("myapp", ROOT / "myapp", "static/cube/*"),
            ("myapp", ROOT / "myapp", "templates/cube/*.html"),
            ("myapp", ROOT / "myapp", "example/pipeline/*/*.yaml"),
        )
        for path in base.glob(pattern)
    }
    assert len(wanted) > 50
    assert wanted - held == set()
