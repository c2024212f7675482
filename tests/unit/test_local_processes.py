"""Local jobs as processes: what dies with what, limits, logs, and that nothing leaks in or out."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from myapp.backends.local import cgroups, leftovers, sandbox
from myapp.backends.local.identity import Identity, Life, boot_id, pid_namespace, stat_fields
from myapp.backends.local.interrupt import interrupt_all
from myapp.domain.ports import AttemptKey, Cause, Handle, ObservedState, RankSpec, Rejected, Resources
from tests.contract.lab import MIB, SH, Lab, eventually, local_lab, marked_processes

S = ObservedState


@pytest.fixture(params=["none", "bwrap"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "bwrap" and (reason := sandbox.probe().reason):
        pytest.skip(reason)
    lab = local_lab(tmp_path, request.param)
    yield lab
    lab.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Lab]:
    lab = local_lab(tmp_path)
    yield lab
    lab.close()


def run(lab: Lab, script: str, **options: object) -> tuple[AttemptKey, Handle]:
    return lab.start((SH, "-c", script), **options)


def log_of(lab: Lab, key: AttemptKey, handle: Handle) -> str:
    return lab.backend.read_log(key, handle, 0, 0, 1 << 20).data.decode()


# -- nothing survives, nothing is taken along ---------------------------------------------------------------------------

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
        [sys.executable, "-c", ORPHANS, str(plain.root)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
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


# -- identity ------------------------------------------------------------------------------------------------------------


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


# -- what a job is told, and what it is not -------------------------------------------------------------------------------


def test_environment_is_allow_listed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBE_SECRET_CANARY", "canary-of-the-platform")
    monkeypatch.setenv("UV_INDEX_PASSWORD", "canary-of-the-index")
    key, handle = run(lab, "env; ls -l /proc/self/fd", env={"EPOCHS": "3", "CUBE_RANK": "99", "OMP_NUM_THREADS": "7"})
    assert lab.end(key, handle).state is S.SUCCEEDED
    text = log_of(lab, key, handle)
    assert "canary" not in text
    seen = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):        # the shell's own
        seen.pop(name, None)
    assert set(seen) == {
        "PATH", "LANG", "TERM", "HOME", "TMPDIR", "OMP_NUM_THREADS", "EPOCHS", "CUDA_VISIBLE_DEVICES", "CUBE_JOB_DIR",
        "CUBE_OUTPUT_DIR", "CUBE_WORKSPACE", "CUBE_PROJECT", "CUBE_ROLE", "CUBE_INDEX", "CUBE_RANK", "CUBE_WORLD_SIZE",
        "CUBE_ATTEMPT", "CUBE_JOB_UID",
    }
    assert (seen["CUBE_RANK"], seen["EPOCHS"], seen["OMP_NUM_THREADS"]) == ("0", "3", "7")
    descriptors = [line.split()[-3] for line in text.splitlines() if " -> " in line]
    assert set(descriptors) <= {"0", "1", "2", "3"}, "3 is the folder that ls reads"


def test_devices_and_files(lab: Lab) -> None:
    spec = lab.spec("succeed", files={"main.sh": "echo from a file; echo x > $CUBE_JOB_DIR/y || echo read-only"})
    rank = RankSpec("worker", 0, 0, (SH, "-c", ". $CUBE_JOB_DIR/main.sh; echo gpus=$CUDA_VISIBLE_DEVICES"), {},
                    Resources(memory=64 * MIB, gpu=2), devices=(0, 3))
    key = lab.key()
    handle = lab.backend.arm(type(spec)(**{**spec.__dict__, "ranks": (rank,)}), key)
    lab.backend.fire(key, handle)
    assert lab.end(key, handle).state is S.SUCCEEDED
    text = log_of(lab, key, handle)
    assert "from a file" in text
    assert "gpus=0,3" in text
    if lab.backend.capabilities().sandbox == "bwrap":
        assert "read-only" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workdir": "../.."}, "outside"),
        ({"workdir": "missing"}, "not a folder"),
        ({"files": {"../x": ""}}, "not a name"),
        ({"inputs": ("/nowhere/at/all",)}, "does not exist"),
        ({"env": {"A=B": "x"}}, "not a name"),
        ({"env": {"A": "x\0y"}}, "NUL"),
        ({"stop_signal": "BANANA"}, "not a signal"),
        ({"labels": {"log_dir": "relative"}}, "absolute"),
    ],
)
def test_bad_specs_are_rejected(plain: Lab, options: dict[str, object], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        plain.arm("succeed", **options)
    assert list(plain.backend.list_owned()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-command",), "command not found: no-such-command"),
        (("./not-executable",), "cannot be executed"),
        ((SH, "-c", "no-such-thing-at-all"), "no-such-thing-at-all"),
    ],
)
def test_command_not_found(lab: Lab, command: tuple[str, ...], words: str) -> None:
    (lab.workspace / "not-executable").write_text("x")
    key, handle = lab.start(command)
    rank = lab.end(key, handle).ranks[0]
    assert (rank.exit_code, rank.cause) == (127, Cause.COMMAND_NOT_FOUND)
    assert words in rank.message


@pytest.mark.parametrize(("name", "number"), [("SEGV", 11), ("KILL", 9), ("USR1", 10), ("PIPE", 13)])
def test_death_by_signal(lab: Lab, name: str, number: int) -> None:
    key, handle = run(lab, f"kill -{name} $$; sleep 5")
    rank = lab.end(key, handle).ranks[0]
    assert (rank.exit_code, rank.cause) == (128 + number, Cause.SIGNAL)
    assert name in rank.message


def test_stop_signal_reaches_the_whole_group(lab: Lab) -> None:
    script = "(trap 'echo child got it; exit' USR2; touch $CUBE_WORKSPACE/child; while :; do sleep 0.05; done) & "
    script += "trap 'wait; echo done; exit 0' USR2; touch $CUBE_WORKSPACE/up; while :; do sleep 0.05; done"
    key, handle = run(lab, script, stop_signal="USR2")
    eventually(lambda: (lab.workspace / "up").exists() and (lab.workspace / "child").exists())
    lab.backend.stop(key, handle, 3600)
    assert lab.end(key, handle).state is S.SUCCEEDED
    assert {"child got it", "done"} <= set(log_of(lab, key, handle).splitlines())


# -- the sandbox ----------------------------------------------------------------------------------------------------------


def test_sandbox_hides_the_platform(tmp_path: Path) -> None:
    if reason := sandbox.probe().reason:
        pytest.skip(reason)
    config = tmp_path / "platform.env"
    config.write_text("SECRET=1")
    lab = local_lab(tmp_path, "bwrap", hidden=(str(config),))
    home = tmp_path / "home"
    (home / "cube.db").write_text("x")
    (home / "workspace/other").mkdir(parents=True)
    (home / "artifacts/up").mkdir(parents=True)
    (home / "artifacts/up/data").write_text("from upstream")
    script = f"""
        ls -A {home}; echo --; cat {config}; echo --; cat {home}/artifacts/up/data; echo --
        for place in {home} {home}/jobs /usr/local /etc {home}/artifacts/up $CUBE_JOB_DIR; do
            (echo x > $place/written) 2>/dev/null && echo "WRITES $place"
        done
        for place in $CUBE_WORKSPACE $HOME $TMPDIR /tmp /dev/shm $CUBE_OUTPUT_DIR/values; do
            (echo x > $place/written) || echo "CANNOT WRITE $place"
        done
        echo --; ls /proc | grep -c '^[0-9]'; ls ~/.. ; grep CapEff /proc/self/status
    """
    try:
        key, handle = run(lab, script, inputs=(str(home / "artifacts/up"),))
        assert lab.end(key, handle).state is S.SUCCEEDED, log_of(lab, key, handle)
        listing, hidden, upstream, writes, rest = log_of(lab, key, handle).split("--\n")
    finally:
        lab.close()
    assert set(listing.split()) == {"jobs", "artifacts"}
    assert "SECRET" not in hidden
    assert upstream.strip() == "from upstream"
    assert "WRITES /usr/local" not in writes
    assert "WRITES /etc" not in writes
    assert f"WRITES {home}/artifacts/up" not in writes
    assert "CANNOT" not in writes
    assert not (home / "written").exists()
    assert int(rest.split()[0]) < 12, "only the job's own processes are visible"
    if os.getuid() == 0:
        assert rest.split()[-1] == "0000000000000000"


def test_capabilities_say_why_there_is_no_sandbox(plain: Lab) -> None:
    found = plain.backend.capabilities()
    assert found.sandbox == "none"
    assert found.sandbox_reason


# -- limits ---------------------------------------------------------------------------------------------------------------

HOG = "x = bytearray(1)\nwhile True: x += bytearray(8 << 20)\n"


def test_memory_limit(lab: Lab) -> None:
    key, handle = lab.start((sys.executable, "-c", HOG), resources=Resources(cpu_milli=1000, memory=64 * MIB))
    rank = lab.end(key, handle).ranks[0]
    if cgroups.probe().memory:
        assert rank.cause is Cause.OOM
        assert "64 MiB" in rank.message
    else:
        assert rank.state is S.FAILED
        assert "MemoryError" in log_of(lab, key, handle)
    lab.backend.reap(key, handle)
    for base in cgroups.probe().bases:
        assert [name for name in os.listdir(base) if handle.uid[:18] in name] == []


def test_cpu_limit(lab: Lab) -> None:
    groups = cgroups.probe()
    if not groups.cpu or groups.version != 1:
        pytest.skip("no cpu control group here")
    key, handle = lab.start("forever", resources=Resources(cpu_milli=500, memory=64 * MIB))
    folder = Path(groups.cpu) / cgroups.name(handle.uid, 0)
    eventually(lambda: handle.data["ranks"][0]["pid"] in cgroups.pids(str(folder)))
    assert (folder / "cpu.cfs_quota_us").read_text().strip() == "50000"


@pytest.mark.parametrize(("groups", "expected"), [
    (cgroups.Cgroups(2, "/cg", "/cg"), [["memory.max", "1000"], ["cpu.max", "50000 100000"]]),
    (cgroups.Cgroups(2, "/cg", None), [["memory.max", "1000"]]),
    (cgroups.Cgroups(1, "/m", None), [["memory.limit_in_bytes", "1000"]]),
    (cgroups.Cgroups(1, None, "/c"), [["cpu.cfs_period_us", "100000"], ["cpu.cfs_quota_us", "50000"]]),
    (cgroups.Cgroups(0), []),
])
def test_cgroup_plan(groups: cgroups.Cgroups, expected: list[list[str]]) -> None:
    assert [f for g in groups.plan("x", 1000, 500, 4) for f in g["files"]] == expected
    assert not any("cpu" in f[0] for g in groups.plan("x", 1000, 4000, 4) for f in g["files"])


# -- logs -----------------------------------------------------------------------------------------------------------------


def test_log_is_cut_at_its_limit(tmp_path: Path) -> None:
    lab = local_lab(tmp_path, log_limit=1000)
    try:
        key, handle = run(lab, "i=0; while [ $i -lt 2000 ]; do echo 123456789; i=$((i+1)); done; exit 3")
        assert lab.end(key, handle).ranks[0].exit_code == 3
        text = log_of(lab, key, handle)
    finally:
        lab.close()
    assert text[:1000] == "123456789\n" * 100
    assert text[1000:] == "\n[cube] log truncated at 1000 bytes\n"


def test_full_disk_holds_the_job_and_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)], capture_output=True
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (small / "ballast").write_bytes(b"x" * 100_000)
        script = "i=0; while [ $i -lt 8000 ]; do echo 123456789; i=$((i+1)); done; touch $CUBE_WORKSPACE/through"
        key, handle = run(lab, script, labels={"log_dir": str(small)})
        log = small / "rank-0.log"
        eventually(lambda: log.exists() and log.stat().st_size >= 20_000)
        assert lab.backend.observe(key, handle).state is S.RUNNING
        (small / "ballast").unlink()
        assert lab.end(key, handle).state is S.SUCCEEDED
        assert log.read_text() == "123456789\n" * 8000
        assert lab.backend.collect(key, handle).logs == {0: str(log)}
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_stop_with_a_full_disk_still_ends(plain: Lab) -> None:
    key, handle = run(plain, "while :; do echo 123456789; done", labels={"log_dir": "/dev/full-is-no-folder"})
    plain.backend.stop(key, handle, 0)
    assert plain.end(key, handle).ranks[0].cause is Cause.CANCELLED
