"""Stopped from the keyboard in the middle of a run: all ends with it, and the next start goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.harness import keys, pipeline, task, tree, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


def test_ctrl_c_in_the_middle_of_a_run_costs_the_user_nothing(tmp_path: Path) -> None:
    tasks = [task(f"first-{i}", seconds=0.1) for i in range(4)]
    tasks += [task(f"second-{i}", f"first-{i}", seconds=6) for i in range(4)]
    tasks += [task(f"third-{i}", f"second-{i}", seconds=0.1) for i in range(4)]
    with tree(tmp_path) as cube:
        run_id = cube.api.start(cube.api.publish(pipeline("stopped", tasks)), "stopped")
        until(lambda: len(cube.witness.ran(run_id)) == 8)
        cube.stop()
        cube.nothing_alive()
        assert cube.doctor() == []
        ran = cube.witness.ran(run_id)
        assert dict(ran) == dict.fromkeys(keys(tasks)[:8], 1)
        cube.start()
        run = cube.api.ended(run_id)
        assert run["phase"] == "succeeded"
        for one in run["tasks"]:
            interrupted = one["key"].startswith("second")
            assert [a["cause"] for a in one["attempts"]] == (["interrupted", ""] if interrupted else [""])
            assert (one["user_failures"], one["infra_failures"]) == (0, int(interrupted))
        assert dict(cube.witness.doubled(run_id)) == {}
        assert dict(cube.witness.finished(run_id)) == dict.fromkeys(keys(tasks), 1)
        assert cube.doctor() == []
