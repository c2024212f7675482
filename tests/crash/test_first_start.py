"""Killed while it sets itself up for the first time: the next start finishes what that one began."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash import harness
from tests.crash.harness import Tree, pipeline, task

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

LONGEST_S = 4.0


def test_killed_at_any_moment_of_the_first_start(tmp_path: Path) -> None:
    """The moments spread over the whole set-up: schema, administrator, catalogue, the parts coming up."""
    chosen = harness.seed()
    dice = random.Random(chosen)
    print(f"CUBE_CRASH_SEED={chosen}")
    for number in range(harness.rounds(1) * 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        cube = Tree(folder)
        at = dice.uniform(0.3, LONGEST_S)
        argv = [sys.executable, "-m", "myapp.cli", "up"]
        with subprocess.Popen(argv, env=cube.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            time.sleep(at)
            first.send_signal(signal.SIGKILL)
        cube.nothing_alive()
        print(f"killed after {at:.2f} s; database {(cube.home / 'cube.db').exists()}", flush=True)
        try:
            cube.start()
            run_id = cube.api.start(cube.api.publish(pipeline("first", [task("only")])), "first")
            assert cube.api.ended(run_id)["phase"] == "succeeded"
            assert cube.doctor() == []
            cube.stop()
        finally:
            cube.close()
