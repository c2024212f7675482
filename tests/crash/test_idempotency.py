"""One Idempotency-Key, one run: from twenty threads at once, and again across a killed web server."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.harness import pipeline, task, tree

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

THREADS = 20


def test_the_same_key_from_many_threads_and_across_a_killed_web_server_is_one_run(tmp_path: Path) -> None:
    with tree(tmp_path) as cube, ThreadPoolExecutor(THREADS) as pool:
        pipeline_id = cube.api.publish(pipeline("one", [task("only")]))

        def submit(key: str) -> int:
            return cube.api.start(pipeline_id, key)

        first = set(pool.map(submit, ["a"] * THREADS))
        assert len(first) == 1
        asked = [pool.submit(submit, "b") for _ in range(THREADS)]
        os.kill(cube.pids()["web"], signal.SIGKILL)
        second = {one.result() for one in asked}
        assert len(second) == 1
        assert second != first
        assert set(pool.map(submit, ["a", "b"] * THREADS)) == first | second
        assert cube.api.patiently("GET", "/run/")["count"] == 2
        for run_id in first | second:
            assert cube.api.ended(run_id)["phase"] == "succeeded"
            cube.witness.exactly_once(run_id, ["only"])
        assert cube.api.server_errors() == {}
        assert cube.doctor() == []
