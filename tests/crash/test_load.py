"""Two hundred submits at once and fifty clients reading meanwhile, on SQLite and one web process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.harness import logs_of, pipeline, tree

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900), pytest.mark.xdist_group("crash-heavy")]

SUBMITS = 200
READERS = 50
PAUSE_S = 0.1


def test_200_submits_at_once_and_50_readers_meet_no_error(tmp_path: Path) -> None:
    with tree(tmp_path) as cube:
        job = {"framework": "shell", "command": ["/bin/true"], "resources": {"cpu": 0.1, "memory": "32Mi"}}
        pipeline_id = cube.api.publish(pipeline("load", [{"name": "only", "job": job}]))
        done = threading.Event()
        everybody_ready = threading.Barrier(SUBMITS)

        def submit(number: int) -> int:
            everybody_ready.wait()
            return cube.api.start(pipeline_id, f"load-{number}")

        def read(number: int) -> int:
            count = 0
            while not done.is_set():
                status, page = cube.api.call("GET", f"/run/?q=(page_size:{10 + number})")
                assert status == 200, page
                for run in page["result"][:2]:
                    assert cube.api.call("GET", f"/run/{run['id']}")[0] == 200
                count += 1
                time.sleep(PAUSE_S)
            return count

        with ThreadPoolExecutor(SUBMITS + READERS) as pool:
            readers = [pool.submit(read, number) for number in range(READERS)]
            try:
                runs = list(pool.map(submit, range(SUBMITS)))
                assert len(set(runs)) == SUBMITS
                ended = [cube.api.ended(run_id, 240)["phase"] for run_id in runs]
            finally:
                done.set()
            reads = [reader.result() for reader in readers]
        assert ended == ["succeeded"] * SUBMITS
        assert min(reads) > 0
        assert cube.api.server_errors() == {}
        assert "database is locked" not in logs_of(cube.home)
        assert cube.doctor() == []
        print(f"{SUBMITS} submits, {sum(reads)} lists and {2 * sum(reads)} details read: {dict(cube.api.statuses)}")
