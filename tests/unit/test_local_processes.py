"""Local jobs as processes: what dies with what, limits, logs, and that nothing leaks in or out."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from myapp.backends.local import leftovers
from myapp.backends.local.identity import Identity, Life, boot_id, pid_namespace, stat_fields
from myapp.backends.local.interrupt import interrupt_all
from myapp.domain.ports import AttemptKey, Cause, Handle, ObservedState
from tests.contract.lab import Lab, eventually, local_lab, marked_processes, run

S = ObservedState


# -- nothing survives, nothing is taken along ----------------------------------------------------------------------

FAMILY = "(setsid sleep 1000 &) ; (trap '' TERM; sleep 1000) & sleep 1000 & echo ok > $CUBE_WORKSPACE/up;"


@pytest.mark.parametrize("end", ["exit", "stop", "kill-shim"])
def test_no_process_is_left(lab: Lab, end: str) -> None:
    key, handle = run(lab, FAMILY + ("exit 0" if end == "exit" else "wait"))
    if end != "exit":
        eventually((lab.workspace / "up").exists)
        assert marked_processes(handle.uid)
    if end == "stop":
        lab.backend.stop(key, handle, 0)
    if end == "kill-shim":
        lab.kill_shim(key, handle)
        lab.until(key, handle, S.ABSENT)
    else:
        lab.end(key, handle)
    assert marked_processes(handle.uid) == []


def test_killing_the_fork_server_harms_no_job(lab: Lab) -> None:
    armed = lab.arm("succeed")
    running = lab.start("forever")
    eventually(lambda: lab.started(running[0]))
    server = lab.backend._server.pid
    os.kill(server, signal.SIGKILL)
    eventually(lambda: (stat_fields(server) or [b"Z"])[0] == b"Z")
    lab.backend.fire(*armed)
    assert lab.end(*armed).state is S.SUCCEEDED
    assert lab.backend.observe(*running).state is S.RUNNING
    later = lab.start("exit3")
    assert lab.end(*later).ranks[0].exit_code == 3
    assert lab.backend._server.pid != server


ORPHANS = """
import os, signal, sys
from pathlib import Path
from tests.contract.lab import local_lab
lab = local_lab(Path(sys.argv[1]))
armed, running = lab.arm("succeed"), lab.start("forever")
print(os.getpid(), lab.backend._server.pid, armed[1].uid, running[1].uid, flush=True)
signal.pause()
"""


def test_jobs_survive_their_owner(plain: Lab) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", ORPHANS, str(plain.root)], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    with owner:
        pid, server, armed_uid, running_uid = owner.stdout.readline().split()
        os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: (stat_fields(int(server)) or [b"Z"])[0] == b"Z", "the fork server ends with its owner")
    armed = AttemptKey("demo", 1, "demo-job-1"), plain.backend.arm(plain.spec("succeed"), plain.key())
    running = AttemptKey("demo", 2, "demo-job-2"), plain.backend.arm(plain.spec("forever"), plain.key())
    assert (armed[1].uid, running[1].uid) == (armed_uid, running_uid)
    plain.backend.fire(*armed)
    assert plain.end(*armed).state is S.SUCCEEDED
    assert plain.backend.observe(*running).state is S.RUNNING
    plain.backend.stop(*running, 0)
    assert plain.end(*running).ranks[0].cause is Cause.CANCELLED


def _arm_once(root: str, start: float) -> str:
    lab = local_lab(Path(root))
    while os.times().elapsed < start:
        pass
    try:
        return lab.backend.arm(lab.spec("succeed", "succeed"), lab.key()).uid
    finally:
        lab.backend.close()


def test_processes_arming_at_once_make_one_object(plain: Lab) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        uids = pool.starmap(_arm_once, [(str(plain.root), os.times().elapsed + 0.5)] * 4)
    assert len(set(uids)) == 1
    key = plain.key()
    handle = plain.backend.arm(plain.spec("succeed", "succeed"), key)
    plain.backend.fire(key, handle)
    plain.end(key, handle)
    assert plain.started(key) == 2, "each of the two ranks was started once"


def test_arm_completes_what_a_crash_left(plain: Lab) -> None:
    key, handle = plain.arm("succeed", "succeed")
    folder = plain.root / "home/jobs" / key.object_name
    os.kill(handle.data["ranks"][1]["pid"], signal.SIGKILL)
    (folder / "rank-1/identity.json").unlink()      # as if the crash had come before the second rank
    again = plain.backend.arm(plain.spec("succeed", "succeed"), key)
    assert again.uid == handle.uid
    assert again.data["ranks"][0] == handle.data["ranks"][0]
    plain.backend.fire(key, again)
    assert plain.end(key, again).state is S.SUCCEEDED
    assert plain.started(key) == 2


def test_a_vanished_folder_ends_its_job(plain: Lab) -> None:
    key, handle = plain.start("forever")
    eventually(lambda: plain.started(key))
    shutil.rmtree(plain.root / "home/jobs" / key.object_name)
    assert plain.backend.observe(key, handle).state is S.ENDING
    plain.until(key, handle, S.ABSENT)
    assert marked_processes(handle.uid) == []


def test_interrupt_all(lab: Lab) -> None:
    armed, running, stubborn = lab.arm("succeed"), lab.start("forever"), lab.start("stubborn")
    eventually(lambda: lab.started(running[0]) == 2)
    ended = lab.start("exit3")
    lab.end(*ended)
    eventually(lambda: stat_fields(ended[1].data["ranks"][0]["pid"]) is None)
    assert interrupt_all(lab.root / "home", 0.2, "here") == 3
    for key, handle in (armed, running, stubborn):
        seen = lab.backend.observe(key, handle)
        assert (seen.state, seen.ranks[0].cause) == (S.FAILED, Cause.INTERRUPTED)
        assert marked_processes(handle.uid) == []
    assert lab.backend.observe(*ended).ranks[0].cause is Cause.EXIT_NONZERO
    assert interrupt_all(lab.root / "home", 0.2, "here") == 0
    assert interrupt_all(lab.root / "nowhere", 0.2, "here") == 0


# -- identity ------------------------------------------------------------------------------------------------------


def me(**changes: object) -> Identity:
    fields = stat_fields(os.getpid())
    assert fields is not None
    values = {"pid": os.getpid(), "start_time": int(fields[19]), "boot_id": boot_id(), "node": "here",
              "pid_ns": pid_namespace(), "uid": "x"} | changes
    return Identity(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "life"),
    [
        ({}, Life.ALIVE),
        ({"start_time": 1}, Life.GONE),                  # the pid is another's now
        ({"pid": 2**22 - 1}, Life.GONE),
        ({"boot_id": "another"}, Life.GONE),
        ({"node": "another"}, Life.UNKNOWN),
        ({"pid_ns": 1}, Life.UNKNOWN),
    ],
)
def test_life(changes: dict[str, object], life: Life) -> None:
    assert me(**changes).life("here") is life
    if changes.get("node") is None:
        assert me(**changes).send(0) is (life is Life.ALIVE)


def test_life_in_another_pid_namespace_is_told_by_the_lock(plain: Lab) -> None:
    key, handle = plain.arm("succeed")
    path = plain.root / "home/jobs" / key.object_name / "rank-0/identity.json"
    foreign = Identity.parse(json.loads(path.read_text()) | {"pid_ns": 1, "pid": 1})
    assert foreign is not None
    assert foreign.life("here", str(path)) is Life.ALIVE
    plain.kill_shim(key, handle)
    plain.until(key, handle, S.ABSENT)
    assert foreign.life("here", str(path)) is Life.GONE
    assert leftovers.kill(foreign, []) == 0


def test_another_node_is_unknown(plain: Lab) -> None:
    key, handle = plain.arm("succeed")
    there = Handle(handle.uid, handle.data | {"node": "there"})
    assert plain.backend.observe(key, there).state is S.UNKNOWN


def test_a_damaged_spec_is_unknown(plain: Lab) -> None:
    key, handle = plain.arm("succeed")
    path = plain.root / "home/jobs" / key.object_name / "spec.json"
    whole = path.read_text()
    path.write_text(whole[:50])
    assert plain.backend.observe(key, handle).state is S.UNKNOWN
    path.write_text(whole)
    assert plain.backend.observe(key, handle).state is S.INERT
