from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from myapp.backends.local.watcher import LocalWatcher
from myapp.domain.ports import ObservedState
from tests.contract.lab import Lab, eventually, local_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = local_lab(tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def watcher(lab: Lab) -> Iterator[LocalWatcher]:
    watcher = LocalWatcher(lab.root / "home", "here")
    yield watcher
    watcher.close()


def heard(watcher: LocalWatcher, attempt: int) -> None:
    seen: list[int] = []
    eventually(lambda: seen.extend(watcher.events(10)) or attempt in seen, f"attempt {attempt}; heard {seen}")


@pytest.mark.parametrize("long_path", [False, True])
def test_the_end_of_a_job_is_heard(tmp_path: Path, long_path: bool) -> None:
    root = tmp_path / ("x" * 120 if long_path else "x")
    root.mkdir()
    lab = local_lab(root)
    watcher = LocalWatcher(root / "home", "here")
    try:
        key, handle = lab.start("exit3")
        heard(watcher, key.attempt_id)
        assert lab.end(key, handle).ranks[0].exit_code == 3
        assert watcher.events(0) == [], "one end, one ring"
    finally:
        watcher.close()
        lab.close()


def test_silence_while_nothing_changes(lab: Lab, watcher: LocalWatcher) -> None:
    key, _ = lab.start("forever")
    eventually(lambda: lab.started(key))
    assert watcher.events(0.05) == []


@pytest.mark.parametrize("fired", [False, True])
def test_a_killed_shim_is_heard(lab: Lab, watcher: LocalWatcher, fired: bool) -> None:
    key, handle = lab.start("forever") if fired else lab.arm("forever")
    if fired:
        eventually(lambda: lab.started(key))
    watcher.events(0)
    lab.kill_shim(key, handle)
    heard(watcher, key.attempt_id)
    lab.until(key, handle, ObservedState.ABSENT)


def test_jobs_armed_before_the_watcher_are_followed(lab: Lab) -> None:
    armed, ended = lab.arm("forever"), lab.start("succeed")
    lab.end(*ended)
    watcher = LocalWatcher(lab.root / "home", "here")
    try:
        lab.kill_shim(*armed)
        heard(watcher, armed[0].attempt_id)
    finally:
        watcher.close()


def test_a_new_watcher_takes_over(lab: Lab, watcher: LocalWatcher) -> None:
    second = LocalWatcher(lab.root / "home", "here")
    try:
        key, _ = lab.start("succeed")
        heard(second, key.attempt_id)
    finally:
        second.close()


def test_nonsense_on_the_bell_is_ignored(lab: Lab, watcher: LocalWatcher) -> None:
    path = lab.root / "home/run/bell.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        for message in (b"", b"x", b"1 ended", b"1 ended a b c d", b"\xff" * 500):
            bell.sendto(message, str(path))
        bell.sendto(f"7 ended x 0 {os.getpid()} 1".encode(), str(path))
    assert watcher.events(1) == [7]


def test_many_jobs_at_once(lab: Lab, watcher: LocalWatcher) -> None:
    jobs = [lab.start("succeed") for _ in range(40)]
    missing = {key.attempt_id for key, _ in jobs}

    def all_heard() -> bool:
        missing.difference_update(watcher.events(0.2))
        return not missing

    eventually(all_heard, f"never heard of {missing}")
