"""The disk is full: what has something to write waits, nothing is lost, and all goes on when there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.harness import Tree, all_succeeded, keys, outage_s, pipeline, task, tree, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

LINES = 4000  # of 50 bytes: 200 kB a task
WRITERS = 4
SMALL, LARGE = "320k", "16m"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of that size, mounted there."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    folder.mkdir(parents=True)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
    mounted = subprocess.run(argv, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[Tree]:
    """A platform whose logs lie on a file system of their own, smaller than what is to be written."""
    with small_disk(tmp_path / "var" / "logs", SMALL), tree(tmp_path) as started:
        yield started


def free(folder: Path) -> int:
    """Bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


def test_jobs_that_fill_the_log_store_wait_for_room(cube: Tree) -> None:
    count = f'i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); printf "%-49d\\n" $i; done'
    tasks = [task(f"writer-{i}", command=count) for i in range(WRITERS)]
    tasks.append(task("end", *keys(tasks)))
    run_id = cube.api.start(cube.api.publish(pipeline("full", tasks)), "full")

    def full() -> bool:
        return free(cube.home / "logs") == 0 and sum(cube.witness.ran(run_id).values()) == WRITERS

    until(full, what="the log store was never full")
    quiet = cube.api.start(cube.api.publish(pipeline("quiet", [task("silent")])), "quiet")
    waiting = cube.api.run(run_id)
    assert waiting["phase"] == "running"
    assert "end" not in cube.witness.finished(run_id)
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(cube.home / "logs")], check=True)
    for one, names in ((run_id, keys(tasks)), (quiet, ["silent"])):
        all_succeeded(cube.api.ended(one))
        cube.witness.exactly_once(one, names)
    for i in range(WRITERS):
        text = cube.api.text(run_id, f"writer-{i}")
        assert [int(line) for line in text.splitlines()] == list(range(1, LINES + 1))
    assert cube.api.server_errors() == {}
    assert cube.doctor() == []


def test_with_no_room_for_anything_a_run_waits_and_goes_on(tmp_path: Path) -> None:
    """Database, jobs, logs, Redis: all of CUBE_HOME. The witness of the tasks alone keeps some room."""
    tasks = [task(f"a-{i}", seconds=1) for i in range(4)]
    tasks += [task(f"b-{i}", f"a-{i}", seconds=0.2) for i in range(4)]
    tasks += [task(f"c-{i}", f"b-{i}", seconds=0.2) for i in range(4)]
    home = tmp_path / "var"
    with small_disk(home, "96m"), small_disk(home / "workspace", "1m"), tree(tmp_path) as cube:
        pipeline_id = cube.api.publish(pipeline("crowded", tasks))
        run_id = cube.api.start(pipeline_id, "crowded")
        until(lambda: len(cube.witness.ran(run_id)) >= 2)
        with open(home / "ballast", "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(65536))
            except OSError:
                pass
        assert free(home) == 0
        until_at = time.monotonic() + outage_s(5)
        while time.monotonic() < until_at:
            status, answer = cube.api.call("POST", f"/pipeline/{pipeline_id}/run", {}, Idempotency_Key="late")
            assert status in (202, 503), answer
            time.sleep(0.5)
        (home / "ballast").unlink()
        late = cube.api.start(pipeline_id, "late")
        for one in (run_id, late):
            all_succeeded(cube.api.ended(one))
            cube.witness.exactly_once(one, keys(tasks))
        assert set(cube.api.server_errors()) <= {503}
        assert [bad for bad in cube.doctor() if not bad.startswith("home: ")] == []  # which says the disk is small
