"""What a start says and reports: the sample only when it runs, the catalogue by name."""

from __future__ import annotations

import shutil
from pathlib import Path

from myapp.composition import create_platform
from myapp.config import Settings
from myapp.domain.permissions import PLATFORM
from myapp.persistence import schema
from myapp.services.create_project import ensure_public_project
from myapp.services.read_runs import list_runs
from myapp.supervisor.first_start import _sample_once, sync

ROOT = Path(__file__).resolve().parents[2] / "job-template"


def test_the_sample_is_announced_only_when_it_was_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    schema.upgrade(settings.database)
    platform = create_platform(settings, ringing=False)
    ensure_public_project(platform.context)
    assert sync(settings, platform)["refused"] == []
    [note] = _sample_once(settings, platform)
    assert "describe run 1" in note
    assert _sample_once(settings, platform) == []
    (tmp_path / "run" / "set-up.json").unlink()  # as in a home that was put back from a backup
    assert _sample_once(settings, platform) == []
    assert list_runs(platform.context, PLATFORM).count == 1
    platform.database.dispose()


def test_a_sync_reports_templates_and_frameworks(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    settings = Settings(home=tmp_path / "home", catalog_root=root)
    schema.upgrade(settings.database)

    def report() -> list[str]:
        platform = create_platform(settings, ringing=False)
        lines = sync(settings, platform)["lines"]
        platform.database.dispose()
        return lines

    first = report()
    assert {"template shell created", "framework shell added"} <= set(first)
    assert first[-1] == "0 templates and 0 frameworks unchanged"
    assert report() == ["10 templates and 6 frameworks unchanged"]
    shell, other = root / "frameworks" / "shell.yaml", root / "frameworks" / "other.yaml"
    shell.write_text(shell.read_text().replace("grace_s: 10", "grace_s: 11"))
    other.write_text(shell.read_text().replace("name: shell", "name: other"))
    same = "10 templates and 5 frameworks unchanged"
    assert report() == ["framework other added", "framework shell changed", same]
    other.unlink()
    assert report() == ["framework other removed", "10 templates and 6 frameworks unchanged"]
