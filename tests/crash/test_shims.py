"""The job's own side is killed: shims, the commands they run, one rank of several, the server that forks them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.crash import processes
from tests.crash.harness import Tree, all_succeeded, keys, pipeline, task, tree, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600), pytest.mark.xdist_group("crash-shims")]


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    with tree(tmp_path_factory.mktemp("shims")) as started:
        yield started


def started(cube: Tree, run_id: int, count: int) -> list[processes.Shim]:
    """The living shims of a run, once that many of its tasks have started."""
    until(lambda: len(cube.witness.ran(run_id)) >= count)
    mine = set(cube.witness.ran(run_id))
    return [shim for shim in processes.shims(cube.home) if shim.task in mine]


def test_a_killed_shim_costs_its_task_another_attempt_and_the_user_nothing(cube: Tree) -> None:
    tasks = [task(f"lost-{i}", seconds=4) for i in range(6)]
    run_id = cube.api.start(cube.api.publish(pipeline("lost", tasks)), "lost")
    victims = [shim for shim in started(cube, run_id, 6) if shim.task in ("lost-0", "lost-2", "lost-4")]
    jobs = [psutil.Process(job) for shim in victims if (job := shim.job()) is not None]
    assert len(jobs) == 3
    assert [shim.kill() for shim in victims] == [True] * 3
    _, alive = psutil.wait_procs(jobs, timeout=10)
    assert alive == []
    run = cube.api.ended(run_id)
    assert run["phase"] == "succeeded"
    found = {t["key"]: t for t in run["tasks"]}
    killed = {shim.task for shim in victims}
    for key, one in found.items():
        phases = [a["phase"] for a in one["attempts"]]
        assert phases == (["lost", "succeeded"] if key in killed else ["succeeded"])
        assert (one["user_failures"], one["infra_failures"]) == (0, int(key in killed))
    assert dict(cube.witness.ran(run_id)) == {key: 1 + (key in killed) for key in keys(tasks)}
    assert dict(cube.witness.finished(run_id)) == dict.fromkeys(keys(tasks), 1)
    assert dict(cube.witness.doubled(run_id)) == {}
    assert cube.doctor() == []


def test_a_killed_shim_of_a_run_that_is_cancelled_meanwhile_is_not_tried_again(cube: Tree) -> None:
    tasks = [task(f"gone-{i}", seconds=600) for i in range(3)]
    run_id = cube.api.start(cube.api.publish(pipeline("gone", tasks)), "gone")
    shims = started(cube, run_id, 3)
    cube.api.patiently("POST", f"/run/{run_id}/cancel", {})
    for shim in shims:
        shim.kill()
    run = cube.api.ended(run_id)
    assert run["phase"] == "stopped"
    assert [(t["phase"], len(t["attempts"])) for t in run["tasks"]] == [("stopped", 1)] * 3
    assert dict(cube.witness.ran(run_id)) == dict.fromkeys(keys(tasks), 1)


def test_a_killed_command_is_the_users_failure_and_is_named(cube: Tree) -> None:
    tasks = [
        task("once", seconds=600),
        task("again", command='[ "$CUBE_ATTEMPT" = 2 ] || sleep 600', retry={"limit": 1, "backoff": "1s"}),
    ]
    run_id = cube.api.start(cube.api.publish(pipeline("struck", tasks)), "struck")
    jobs = [shim.job() for shim in started(cube, run_id, 2)]
    for job in jobs:
        assert job is not None
        os.kill(job, signal.SIGKILL)
    run = cube.api.ended(run_id)
    found = {t["key"]: t for t in run["tasks"]}
    assert run["phase"] == "failed"
    assert "was killed by signal 9" in run["reason"]
    assert [a["phase"] for a in found["once"]["attempts"]] == ["failed"]
    assert [a["phase"] for a in found["again"]["attempts"]] == ["failed", "succeeded"]
    assert (found["again"]["user_failures"], found["again"]["infra_failures"]) == (1, 0)
    assert dict(cube.witness.ran(run_id)) == {"once": 1, "again": 2}


@pytest.mark.parametrize("what", ["shim", "command"])
def test_one_dead_rank_ends_the_job_at_once(cube: Tree, what: str) -> None:
    """The other rank would wait for ever: it ends with its peer, and nothing of it is left."""
    script = 'echo "$CUBE_TASK" >> "ran.$CUBE_RUN_ID"; sleep 600'
    job = {
        "framework": "python",
        "command": ["/bin/sh", "-c", script],
        "distributed": {"type": "rendezvous", "workers": 2},
        "resources": {"cpu": 0.2, "memory": "64Mi"},
    }
    document = pipeline(f"pair-{what}", [{"name": f"pair-{what}", "job": job, "retry": {"limit": 0}}])
    run_id = cube.api.start(cube.api.publish(document), f"pair-{what}")
    until(lambda: sum(cube.witness.ran(run_id).values()) == 2)
    first, second = (shim for shim in processes.shims(cube.home) if shim.task == f"pair-{what}")
    both = [psutil.Process(pid) for shim in (first, second) if (pid := shim.job()) is not None]
    assert len(both) == 2
    if what == "shim":
        first.kill()
        until(lambda: sum(cube.witness.ran(run_id).values()) == 4, what="a lost rank is the infrastructure's: again")
        cube.api.patiently("POST", f"/run/{run_id}/cancel", {})
    else:
        both[0].kill()
    _, alive = psutil.wait_procs(both, timeout=40)
    assert alive == []
    run = cube.api.ended(run_id)
    attempts = run["tasks"][0]["attempts"]
    if what == "shim":
        assert (run["phase"], len(attempts)) == ("stopped", 2)
        assert attempts[0]["cause"] == "lost"
    else:
        assert (run["phase"], len(attempts)) == ("failed", 1)
        assert "rank 0 (worker 0) was killed by signal 9" in run["reason"]
    assert cube.doctor() == []


def test_without_the_fork_server_running_jobs_go_on_and_new_ones_start(cube: Tree) -> None:
    tasks = [task(f"old-{i}", seconds=3) for i in range(4)] + [task(f"new-{i}", "old-0") for i in range(4)]
    run_id = cube.api.start(cube.api.publish(pipeline("forks", tasks)), "forks")
    started(cube, run_id, 4)
    servers = processes.fork_servers(cube.pids()["worker"])
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    run = cube.api.ended(run_id)
    all_succeeded(run)
    cube.witness.exactly_once(run_id, keys(tasks))
    assert processes.fork_servers(cube.pids()["worker"]) != servers


def test_afterwards_nothing_is_left(cube: Tree) -> None:
    cube.no_objects()
    cube.stop()
    cube.nothing_alive()
    assert cube.doctor() == []
