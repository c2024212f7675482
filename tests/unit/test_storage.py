"""The log and artifact stores, on a local folder and on an object store."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from myapp.domain.errors import CubeError, Invalid, NotFound, TooLarge
from myapp.storage import artifacts as artifact_module
from myapp.storage.artifacts import FOLDER, ArtifactStore, zipped
from myapp.storage.logs import LogStore

PLACE = ("alpha", 7, "train", 1)


@pytest.fixture(params=["local", "remote"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts", f"file://{tmp_path}/bucket" if request.param == "remote" else "")


@pytest.fixture(params=["local", "remote"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs", f"file://{tmp_path}/bucket" if request.param == "remote" else "")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha")
    (folder / "deep" / "er" / ".hidden").write_bytes(b"\0\1")
    (folder / "ünï cøde.bin").write_bytes(b"x" * 10)
    return folder


def test_a_file_is_kept_and_again_is_the_same(artifacts: ArtifactStore, source: Path) -> None:
    first = artifacts.put(*PLACE, "a.txt", str(source / "a.txt"))
    assert (first.path, first.size, first.media_type) == ("alpha/7/train/1/a.txt", 5, "text/plain")
    assert artifacts.put(*PLACE, "a.txt", str(source / "a.txt")) == first
    assert b"".join(artifacts.iterate(first.path)) == b"alpha"
    assert artifacts.entries(first.path) is None
    assert artifacts.size(first.path) == 5


def test_a_folder_is_kept_listed_and_zipped(artifacts: ArtifactStore, source: Path, tmp_path: Path) -> None:
    kept = artifacts.put(*PLACE, "report", str(source))
    assert (kept.size, kept.media_type) == (17, FOLDER)
    assert artifacts.put(*PLACE, "report", str(source)) == kept
    found = artifacts.entries(kept.path) or []
    assert [(e.path, e.size) for e in found] == [("a.txt", 5), ("deep/er/.hidden", 2), ("ünï cøde.bin", 10)]
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zipped(artifacts, kept.path))))
    assert {n: archive.read(n) for n in archive.namelist()} == {
        "a.txt": b"alpha",
        "deep/er/.hidden": b"\0\1",
        "ünï cøde.bin": b"x" * 10,
    }
    artifacts.fetch(kept.path, str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "deep" / "er" / ".hidden").read_bytes() == b"\0\1"


def test_an_empty_folder_and_an_empty_file(artifacts: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").write_bytes(b"")
    folder, file = (artifacts.put(*PLACE, name, str(tmp_path / name)) for name in ("empty", "none"))
    assert (artifacts.entries(folder.path), folder.size) == ([], 0)
    assert b"".join(artifacts.iterate(file.path)) == b""


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a\nb",
        ".hidden",
        "x" * 300,
        "\u202egnp.exe",
        "a\x1b[2J",
    ],
)
def test_a_bad_name_is_refused(artifacts: ArtifactStore, source: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid):
        artifacts.put(*PLACE, name, str(source / "a.txt"))
    assert not [p for root in ("artifacts", "bucket") for p in (tmp_path / root).rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    "place",
    [("../x", 1, "t", 1), ("alpha", 1, "../t", 1), ("alpha", -1, "t", 1), ("alpha", 1, "t/u", 1), ("Alpha", 1, "t", 1)],
)
def test_a_bad_place_is_refused(
    artifacts: ArtifactStore, logs: LogStore, source: Path, place: tuple[str, int, str, int]
) -> None:
    with pytest.raises(Invalid):
        artifacts.put(*place, "a", str(source / "a.txt"))
    with pytest.raises(Invalid):
        logs.read(*place, 0, 0, 100)
    with pytest.raises(Invalid):
        logs.live_dir(*place)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../out/a.txt",
        "alpha/../../out/a.txt",
        "alpha/7/train/1/a.txt/../../x",
        "alpha//7",
        "alpha/./7",
        "a\0b",
        "nosuch",
    ],
)
def test_no_path_leads_out_of_the_store(artifacts: ArtifactStore, source: Path, path: str) -> None:
    artifacts.put(*PLACE, "a.txt", str(source / "a.txt"))
    with pytest.raises(NotFound):
        artifacts.open(path)
    with pytest.raises(NotFound):
        artifacts.entries(path)


def test_links_and_special_files_are_left_out(artifacts: ArtifactStore, source: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    (source / "link").symlink_to(secret)
    (source / "up").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "sock"))
    kept = artifacts.put(*PLACE, "report", str(source))
    assert [e.path for e in artifacts.entries(kept.path) or []] == ["a.txt", "deep/er/.hidden", "ünï cøde.bin"]
    for bad in ("link", "pipe", "sock"):
        with pytest.raises(Invalid):
            artifacts.put(*PLACE, "one", str(source / bad))
    with pytest.raises(NotFound):
        artifacts.put(*PLACE, "one", str(source / "nosuch"))


def test_a_link_planted_in_the_store_is_not_followed(source: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    kept = store.put(*PLACE, "report", str(source))
    planted = tmp_path / "artifacts" / kept.path
    (planted / "evil").symlink_to("/etc/passwd")
    (planted / "dir").symlink_to("/etc", target_is_directory=True)
    for inner in ("evil", "dir/passwd"):
        with pytest.raises(NotFound):
            store.open(kept.path, inner)
    assert store.local_path(f"{kept.path}/dir") is None


def test_a_file_the_job_still_holds_is_copied(tmp_path: Path, source: Path) -> None:
    """A second name of the same file in the workspace must not be a way to change what was published."""
    store = ArtifactStore(tmp_path / "artifacts")
    os.link(source / "a.txt", tmp_path / "other-name")
    kept = store.put(*PLACE, "a.txt", str(source / "a.txt"))
    (tmp_path / "other-name").write_text("changed")
    assert b"".join(store.iterate(kept.path)) == b"alpha"
    alone = store.put(*PLACE, "big", str(source / "ünï cøde.bin"))
    path = store.local_path(alone.path)
    assert path is not None
    assert Path(path).stat().st_ino == (source / "ünï cøde.bin").stat().st_ino


def test_too_many_files_are_refused_and_nothing_stays(
    artifacts: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_module, "MAX_ENTRIES", 5)
    (tmp_path / "many").mkdir()
    for n in range(6):
        (tmp_path / "many" / str(n)).touch()
    with pytest.raises(TooLarge):
        artifacts.put(*PLACE, "many", str(tmp_path / "many"))
    with pytest.raises(NotFound):
        artifacts.entries("alpha/7/train/1/many")


def test_a_put_that_fails_half_way_leaves_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    keep = artifact_module._keep
    calls: list[str] = []

    def full(path: str, target: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        keep(path, target)

    monkeypatch.setattr(artifact_module, "_keep", full)
    with pytest.raises(OSError, match="No space"):
        store.put(*PLACE, "report", str(source))
    assert [p for p in (tmp_path / "artifacts").rglob("*") if p.is_file()] == []
    monkeypatch.undo()
    assert store.put(*PLACE, "report", str(source)).size == 17


def test_deleting_a_run_deletes_only_its_own(artifacts: ArtifactStore, source: Path) -> None:
    for run in (7, 70):
        artifacts.put("alpha", run, "train", 1, "a.txt", str(source / "a.txt"))
    artifacts.delete_run("alpha", 7)
    artifacts.delete_run("alpha", 7)
    with pytest.raises(NotFound):
        artifacts.open("alpha/7/train/1/a.txt")
    assert artifacts.size("alpha/70/train/1/a.txt") == 5


def test_a_log_reads_the_same_live_and_sealed(logs: LogStore) -> None:
    empty = logs.read(*PLACE, 0, 0, 100)
    assert (empty.data, empty.next_offset, empty.eof) == (b"", 0, False)
    folder = Path(logs.live_dir(*PLACE))
    (folder / "rank-0.log").write_bytes(b"0123456789")
    (folder / "rank-1.log").write_bytes(b"")
    (folder / "other.txt").write_bytes(b"not a log")

    def pieces() -> list[tuple[bytes, int, int]]:
        found = [
            logs.read(*PLACE, 0, offset, limit)
            for offset, limit in ((0, 4), (4, 4), (8, 4), (10, 4), (99, 4), (-5, 4), (0, -1))
        ]
        return [(p.data, p.offset, p.next_offset) for p in found]

    live = pieces()
    assert live[:3] == [(b"0123", 0, 4), (b"4567", 4, 8), (b"89", 8, 10)]
    assert live[3:5] == [(b"", 10, 10), (b"", 10, 10)]
    assert not logs.read(*PLACE, 0, 8, 4).eof
    sealed = logs.seal(*PLACE)
    assert [(o.rank, o.seq, o.byte_start, o.byte_end, o.object_key) for o in sealed] == [
        (0, 0, 0, 10, "alpha/7/train/1/rank-0.log"),
        (1, 0, 0, 0, "alpha/7/train/1/rank-1.log"),
    ]
    assert pieces() == live
    assert [logs.read(*PLACE, 0, 0, 4).eof, logs.read(*PLACE, 0, 6, 4).eof, logs.read(*PLACE, 1, 0, 4).eof] == [
        False,
        True,
        True,
    ]
    assert (logs.size(*PLACE, 0), logs.size(*PLACE, 5), logs.ranks(*PLACE)) == (10, 0, [0, 1])
    assert logs.read(*PLACE, 5, 0, 4).eof
    assert logs.seal(*PLACE) == sealed


def test_logs_kept_elsewhere_are_taken_over(logs: LogStore, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(b"from the backend")
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    given = {0: str(tmp_path / "job.log"), 1: str(tmp_path / "nosuch")}
    sealed = logs.seal(*PLACE, given)
    assert [(o.rank, o.byte_end) for o in sealed] == [(0, 16)]
    assert logs.seal(*PLACE, given) == sealed
    assert logs.read(*PLACE, 0, 5, 100).data == b"the backend"
    with pytest.raises(OSError, match="symbolic"):
        logs.seal("alpha", 8, "train", 1, {0: str(tmp_path / "link.log")})


def test_a_log_that_is_no_plain_file_is_empty(logs: LogStore) -> None:
    folder = Path(logs.live_dir(*PLACE))
    (folder / "rank-0.log").symlink_to("/etc/passwd")
    os.mkfifo(folder / "rank-1.log")
    assert [logs.read(*PLACE, rank, 0, 100).data for rank in (0, 1, -1, 10**9)] == [b""] * 4
    assert logs.seal(*PLACE) == []


def test_an_upload_cut_short_is_done_again(tmp_path: Path) -> None:
    logs = LogStore(tmp_path / "logs", f"file://{tmp_path}/bucket")
    (Path(logs.live_dir(*PLACE)) / "rank-0.log").write_bytes(b"whole")
    half = tmp_path / "bucket" / "logs" / "alpha" / "7" / "train" / "1"
    half.mkdir(parents=True)
    (half / "rank-0.log").write_bytes(b"who")
    assert logs.read(*PLACE, 0, 0, 100).data == b"whole"
    assert [o.byte_end for o in logs.seal(*PLACE)] == [5]
    assert not (tmp_path / "logs" / "alpha" / "7" / "train" / "1").exists()
    assert logs.read(*PLACE, 0, 0, 100).data == b"whole"


def test_one_read_is_bounded(logs: LogStore) -> None:
    (Path(logs.live_dir(*PLACE)) / "rank-0.log").write_bytes(b"x" * (3 * 1024 * 1024))
    assert len(logs.read(*PLACE, 0, 0, 10**9).data) == 1024 * 1024


@pytest.mark.parametrize("make", [lambda url: ArtifactStore("/nowhere", url), lambda url: LogStore("/nowhere", url)])
def test_an_unusable_url_says_so(make: Callable[[str], Any]) -> None:
    with pytest.raises(CubeError, match="storage URL"):
        make("nosuch://bucket")


def test_fsspec_is_imported_only_for_a_url(tmp_path: Path) -> None:
    program = (
        "import sys; from myapp.storage.logs import LogStore; from myapp.storage.artifacts import ArtifactStore;"
        f"LogStore({str(tmp_path)!r}); ArtifactStore({str(tmp_path)!r}); print('fsspec' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "False"
