"""A running process follows the catalogue's files; a broken state never takes effect."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from myapp.catalog.live import LOOK_AGAIN_S, LiveCatalog

ROOT = Path(__file__).resolve().parents[2] / "job-template"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "frameworks").mkdir()
    (tmp_path / "job").mkdir()
    shutil.copy(ROOT / "frameworks" / "shell.yaml", tmp_path / "frameworks")
    (tmp_path / "runtime" / "cube_runtime").mkdir(parents=True)
    (tmp_path / "runtime" / "cube_runtime" / "__init__.py").write_text("VERSION = 1\n")
    return tmp_path


def test_new_files_take_effect_after_a_while(root: Path) -> None:
    clock = Clock()
    live = LiveCatalog(root, clock)
    assert list(live.frameworks) == ["shell"]
    shutil.copy(ROOT / "frameworks" / "python.yaml", root / "frameworks")
    assert live.frameworks.get("python") is None
    clock.now += LOOK_AGAIN_S
    assert live.frameworks["python"].name == "python"
    assert live.runtime_files["python"] == {"cube_runtime.py": "VERSION = 1\n"}
    assert live.runtime_files.get("fortran", {}) == {}
    assert (len(live.frameworks), len(live.runtime_files)) == (2, 2)


def test_a_broken_file_keeps_the_last_good_state_and_is_logged_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    live = LiveCatalog(root, clock)
    file = root / "frameworks" / "shell.yaml"
    good = file.read_text()
    file.write_text("name: [")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.now += LOOK_AGAIN_S
            assert list(live.frameworks) == ["shell"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "shell.yaml" in caplog.text
    file.write_text(good.replace("name: shell", "name: sh"))
    clock.now += LOOK_AGAIN_S
    assert list(live.frameworks) == ["sh"]
