"""What a job leaves is read with suspicion."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from myapp.backends.local import collect as module
from myapp.backends.local.collect import collect
from myapp.backends.local.folder import remove_tree


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "out/values").mkdir(parents=True)
    (tmp_path / "out/artifacts").mkdir()
    yield tmp_path / "out"
    remove_tree(str(tmp_path / "out"))  # deeper than pytest can delete


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.97", 0.97), ("3\n", 3), ('"x"', "x"), ("true", True), ("null", None), ("hello\n", "hello"), ("", ""),
        ('{"a": [1, 2]}', {"a": [1, 2]}), ("NaN", "NaN"), ("1e999", "1e999"), ("[Infinity]", "[Infinity]"),
        ("a\0b", "a\ufffdb"), (r'"a\u0000b"', "a\ufffdb"), ("[" * 100_00, "[" * 100_00), ("ü", "ü"),
    ],
)
def test_values(out: Path, text: str, value: Any) -> None:
    (out / "values/v").write_text(text)
    found = collect(str(out), {})
    assert found.values == {"v": value}
    assert found.problems == []
    json.dumps(found.values, allow_nan=False)


def make_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("v", make_link("/etc/passwd"), ""),
        ("v", lambda p: os.mkfifo(p), "not a regular file"),
        ("v", lambda p: p.mkdir(), "not a regular file"),
        ("v", lambda p: p.write_bytes(b"\xff\xfe"), "UTF-8"),
        ("v", lambda p: p.write_bytes(b"x" * 70_000), "64 KiB"),
        ("-v", lambda p: p.write_text("x"), "valid name"),
        ("a b", lambda p: p.write_text("x"), "valid name"),
        ("x" * 129, lambda p: p.write_text("x"), "valid name"),
        ("..\n", lambda p: p.write_text("x"), "valid name"),
    ],
)
def test_bad_values(out: Path, name: str, make: Callable[[Path], None], words: str) -> None:
    make(out / "values" / name)
    (out / "values/good").write_text("1")
    found = collect(str(out), {})
    assert found.values == {"good": 1}
    assert len(found.problems) == 1
    assert words in found.problems[0]


def test_artifacts(out: Path) -> None:
    (out / "artifacts/model/deep").mkdir(parents=True)
    (out / "artifacts/model/deep/weights").write_text("w")
    (out / "artifacts/model/latest").symlink_to("deep/weights")
    (out / "artifacts/report.html").write_text("r")
    found = collect(str(out), {})
    assert found.artifacts == {
        "model": str(out / "artifacts/model"), "report.html": str(out / "artifacts/report.html"),
    }
    assert found.problems == []


def make_nested(folder: Path, depth: int, name: str = "d") -> None:
    """`depth` folders in one another, and a file in the last: deeper than recursion goes, longer than paths may be."""
    folder.mkdir(exist_ok=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        at, above = os.open(name, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: make_nested(p, 64),
        lambda p: make_nested(p, 1500),
        lambda p: make_nested(p, 30, "d" * 255),
        make_link("/etc"),
        lambda p: (p.mkdir(), (p / "x").symlink_to("/etc/passwd")),
        lambda p: (p.mkdir(), (p / "x").symlink_to("../../values")),
        lambda p: (p.mkdir(), (p / "x").mkdir(), (p / "x/y").symlink_to("../..")),
        lambda p: (p.mkdir(), os.mkfifo(p / "pipe")),
        lambda p: os.mkfifo(p),
    ],
)
def test_bad_artifacts(out: Path, make: Callable[[Path], Any]) -> None:
    make(out / "artifacts/bad")
    found = collect(str(out), {})
    assert found.artifacts == {}
    assert len(found.problems) == 1
    assert found.problems[0].startswith("artifacts/bad")


@pytest.mark.parametrize(("depth", "name"), [(1500, "d"), (30, "d" * 255)])
def test_any_folder_can_be_removed(tmp_path: Path, depth: int, name: str) -> None:
    folder, kept = tmp_path / "attempt", tmp_path / "kept"
    kept.mkdir(mode=0o500)
    make_nested(folder, depth, name)
    (folder / "closed").mkdir()
    (folder / "closed/file").write_text("x")
    (folder / "closed").chmod(0)
    (folder / "link").symlink_to(kept)
    remove_tree(str(folder))
    assert list(tmp_path.iterdir()) == [kept]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o500


@pytest.mark.parametrize("folder", ["values", "artifacts"])
def test_a_replaced_folder_is_not_followed(out: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").write_text("x")
    (out / folder).rmdir()
    (out / folder).symlink_to(tmp_path / "elsewhere")
    found = collect(str(out), {})
    assert (found.values, found.artifacts) == ({}, {})
    assert "replaced" in found.problems[0]


def test_metrics(out: Path) -> None:
    lines = [
        '{"name": "loss", "value": 1, "step": 3, "at": 12.5}', "", '{"name": "val/acc", "value": 0.5}', "nonsense",
        '{"name": "x", "value": "NaN"}', '{"name": "x"}', '[1]', '{"name": "x", "value": true}',
        '{"name": 3, "value": 1}',
    ]
    (out / "metrics.jsonl").write_text("\n".join(lines))
    os.utime(out / "metrics.jsonl", (100, 100))
    found = collect(str(out), {})
    assert found.metrics == [
        {"name": "loss", "value": 1.0, "step": 3, "at": 12.5}, {"name": "val/acc", "value": 0.5, "at": 100.0},
    ]
    assert [p.split(":")[0] for p in found.problems] == [f"metrics.jsonl line {n}" for n in (4, 5, 6, 7, 8, 9)]


def test_bounds(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    monkeypatch.setattr(module, "MAX_ARTIFACTS", 2)
    monkeypatch.setattr(module, "MAX_METRICS", 2)
    for number in range(3):
        (out / f"values/v{number}").write_text("1")
        (out / f"artifacts/a{number}").write_text("1")
    (out / "metrics.jsonl").write_text('{"name": "m", "value": 1}\n' * 3)
    found = collect(str(out), {})
    assert (len(found.values), len(found.artifacts), len(found.metrics), len(found.problems)) == (2, 2, 2, 3)


def test_nothing_there(tmp_path: Path) -> None:
    found = collect(str(tmp_path / "none"), {0: str(tmp_path / "no.log")})
    assert (found.values, found.artifacts, found.metrics, found.logs, found.problems) == ({}, {}, [], {}, [])
