"""Whatever is killed, and whenever: a run of 200 tasks ends rightly, every task exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.crash import harness
from tests.crash.api import ENDED
from tests.crash.harness import KINDS, Tree, all_succeeded, keys, mixed, pipeline, tree

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600), pytest.mark.xdist_group("crash-heavy")]

TASKS = 200
KILLS = 12


def test_200_tasks_while_everything_is_killed_again_and_again(tmp_path: Path) -> None:
    chosen = harness.seed()
    dice = random.Random(chosen)
    print(f"CUBE_CRASH_SEED={chosen}")
    killed: list[str] = []
    with tree(tmp_path) as cube:
        for number in range(harness.rounds(1)):
            tasks = mixed(TASKS, dice)
            pipeline_id = cube.api.publish(pipeline("chaos", tasks))
            run_id = cube.api.start(pipeline_id, f"chaos-{chosen}-{number}")
            killed += _kill_parts(cube, run_id, dice)
            if cube.api.run(run_id)["phase"] not in ENDED:
                cube.kill_everything()
                killed.append("all")
                cube.start()
            run = cube.api.ended(run_id, 240)
            all_succeeded(run)
            cube.witness.exactly_once(run_id, keys(tasks))
            print(f"round {number}: {TASKS} tasks once each; killed so far: {len(killed)}", flush=True)
        assert killed
        print(f"seed {chosen}: {', '.join(f'{kind} {killed.count(kind)}' for kind in (*KINDS, 'all'))}")
        assert cube.doctor() == []
        cube.no_objects()
        cube.stop()
        cube.nothing_alive()
        assert cube.doctor() == []


def _kill_parts(cube: Tree, run_id: int, dice: random.Random) -> list[str]:
    """KILLS random parts at random moments of the run, or as many as it lasts for; the last quarter of the tasks is
    left for the blow that ends everything at once."""
    killed: list[str] = []
    while len(killed) < KILLS:
        time.sleep(dice.uniform(0.05, 1.5))
        if sum(cube.witness.finished(run_id).values()) > TASKS * 3 // 4:
            break
        kind = dice.choice(KINDS)
        if cube.kill(kind):
            killed.append(kind)
    return killed
