"""The log store is full: jobs that log wait, nothing of what they say is lost, and they go on when there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Tree, all_succeeded, keys, pipeline, task, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

LINES = 4000  # of 50 bytes: 200 kB a task
WRITERS = 4
SMALL, LARGE = "320k", "16m"


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[Tree]:
    """A platform whose logs lie on a file system of their own, smaller than what is to be written."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    made = Tree(tmp_path)
    logs = made.home / "logs"
    logs.mkdir(parents=True)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=700", "none", str(logs)]
    mounted = subprocess.run(argv, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield made.start()
    finally:
        made.close()
        subprocess.run(["umount", "-l", str(logs)], check=True)


def test_jobs_that_fill_the_log_store_wait_for_room(cube: Tree) -> None:
    count = f'i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); printf "%-49d\\n" $i; done'
    tasks = [task(f"writer-{i}", command=count) for i in range(WRITERS)]
    tasks.append(task("end", *keys(tasks)))
    run_id = cube.api.start(cube.api.publish(pipeline("full", tasks)), "full")

    def full() -> bool:
        usage = os.statvfs(cube.home / "logs")
        return usage.f_bavail == 0 and sum(cube.witness.ran(run_id).values()) == WRITERS

    until(full, what="the log store was never full")
    quiet = cube.api.start(cube.api.publish(pipeline("quiet", [task("silent")])), "quiet")
    waiting = cube.api.run(run_id)
    assert waiting["phase"] == "running"
    assert dict(cube.witness.finished(run_id)).get("end") is None
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(cube.home / "logs")], check=True)
    for one, names in ((run_id, keys(tasks)), (quiet, ["silent"])):
        all_succeeded(cube.api.ended(one))
        cube.witness.exactly_once(one, names)
    for i in range(WRITERS):
        text = cube.api.text(run_id, f"writer-{i}")
        assert [int(line) for line in text.splitlines()] == list(range(1, LINES + 1))
    assert cube.api.server_errors() == {}
    assert cube.doctor() == []
