"""What a local job sees and may use: its environment, the sandbox, limits, its log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from myapp.backends.local import cgroups, sandbox
from myapp.domain.ports import Cause, ObservedState, RankSpec, Rejected, Resources
from tests.contract.lab import MIB, SH, Lab, eventually, local_lab, log_of, run

S = ObservedState


# -- what a job is told, and what it is not ------------------------------------------------------------------------


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
        ({"env": {"A": "\ud800"}}, "Unicode"),
        ({"files": {"x": "\ud800"}}, "Unicode"),
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


# -- the sandbox ---------------------------------------------------------------------------------------------------


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


def test_a_job_cannot_reach_into_bubblewrap(tmp_path: Path) -> None:
    """bubblewrap starts outside of the sandbox: with the job's LD_PRELOAD it would run the job's code there."""
    if reason := sandbox.probe().reason:
        pytest.skip(reason)
    lab = local_lab(tmp_path, "bwrap")
    try:
        # makes the loader of every program that sees it say which program that is
        key, handle = run(lab, "echo $LD_SHOW_AUXV; tr '\\0' ' ' </proc/1/environ", env={"LD_SHOW_AUXV": "seen"})
        assert lab.end(key, handle).state is S.SUCCEEDED
        text = log_of(lab, key, handle)
    finally:
        lab.close()
    assert "seen" in text
    programs = [line.split()[-1] for line in text.splitlines() if line.startswith("AT_EXECFN")]
    assert programs, "the job's own programs load with it"
    assert not [name for name in programs if name.endswith("bwrap")]


def test_the_machine_s_settings_cannot_be_written(tmp_path: Path) -> None:
    """Root needs no capability for /proc/sys: core_pattern alone would run a job's code outside of the sandbox."""
    if reason := sandbox.probe().reason:
        pytest.skip(reason)
    lab = local_lab(tmp_path, "bwrap")
    try:
        key, handle = run(lab, "find /proc/sys /proc/fs /proc/scsi /proc/acpi -type f -writable 2>/dev/null; echo done")
        assert lab.end(key, handle).state is S.SUCCEEDED
        assert log_of(lab, key, handle) == "done\n"
    finally:
        lab.close()


def test_capabilities_say_why_there_is_no_sandbox(plain: Lab) -> None:
    found = plain.backend.capabilities()
    assert found.sandbox == "none"
    assert found.sandbox_reason


# -- limits --------------------------------------------------------------------------------------------------------

HOG = "x = bytearray(1)\nwhile True: x += bytearray(8 << 20)\n"


def test_memory_limit(lab: Lab) -> None:
    python = str(Path(sys.base_prefix, "bin", "python3"))      # not .venv's: a checkout in /tmp is hidden from jobs
    key, handle = lab.start((python, "-c", HOG), resources=Resources(cpu_milli=1000, memory=64 * MIB))
    rank = lab.end(key, handle).ranks[0]
    if cgroups.probe().memory:
        assert rank.cause is Cause.OOM
        assert "64 MiB" in rank.message
    else:
        assert rank.state is S.FAILED
        assert "MemoryError" in log_of(lab, key, handle)
    lab.backend.reap(key, handle)
    for base in cgroups.probe().bases:
        assert list(Path(base).glob(f"*{handle.uid[:18]}*")) == []


def test_cpu_limit(lab: Lab) -> None:
    groups = cgroups.probe()
    if not groups.cpu or groups.version != 1:
        pytest.skip("no cpu control group here")
    _, handle = lab.start("forever", resources=Resources(cpu_milli=500, memory=64 * MIB))
    folder = Path(groups.cpu) / cgroups.name(handle.uid, 0)
    eventually(lambda: handle.data["ranks"][0]["pid"] in cgroups.pids(str(folder)))
    assert (folder / "cpu.cfs_quota_us").read_text().strip() == "50000"


def test_groups_nobody_needs_are_swept(tmp_path: Path) -> None:
    groups = cgroups.Cgroups(1, str(tmp_path), str(tmp_path))
    for name in ("cube-old-0", "cube-young-0", "cube-busy-0", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "cube-busy-0/child").mkdir()
    for name in ("cube-old-0", "cube-busy-0", "other"):
        os.utime(tmp_path / name, (1, 1))
    groups.sweep()
    assert {p.name for p in tmp_path.iterdir()} == {"cube-young-0", "cube-busy-0", "other"}


@pytest.mark.parametrize(("groups", "expected"), [
    (cgroups.Cgroups(2, "/cg", "/cg"), [["memory.max", "1000"], ["cpu.max", "50000 100000"]]),
    (cgroups.Cgroups(2, "/cg", None), [["memory.max", "1000"]]),
    (cgroups.Cgroups(1, "/m", None), [["memory.limit_in_bytes", "1000"]]),
    (cgroups.Cgroups(1, None, "/c"), [["cpu.cfs_period_us", "100000"], ["cpu.cfs_quota_us", "50000"]]),
    (cgroups.Cgroups(1, None, None, pids="/p"), [["pids.max", "4096"]]),
    (cgroups.Cgroups(0), []),
])
def test_cgroup_plan(groups: cgroups.Cgroups, expected: list[list[str]]) -> None:
    assert [f for g in groups.plan("x", 1000, 500, 4) for f in g["files"]] == expected
    assert not any("cpu" in f[0] for g in groups.plan("x", 1000, 4000, 4) for f in g["files"])


@pytest.mark.skipif(not cgroups.probe().pids, reason="the pids controller cannot be used here")
def test_a_fork_bomb_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MAX_PROCESSES", 30)
    lab = local_lab(tmp_path)
    try:
        key, handle = run(lab, "i=0; while [ $i -lt 100 ]; do sleep 20 & i=$((i+1)); done; echo made all")
        assert lab.end(key, handle).ranks[0].exit_code != 0
        text = log_of(lab, key, handle)
    finally:
        lab.close()
    assert b"fork" in text.lower().encode()
    assert "made all" not in text


# -- logs ----------------------------------------------------------------------------------------------------------


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB that is nearly full of `ballast`."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    (folder / "ballast").write_bytes(b"x" * 1_000_000)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_holds_the_job_and_loses_nothing(lab: Lab, small_disk: Path) -> None:
    script = "i=0; while [ $i -lt 40000 ]; do echo 123456789; i=$((i+1)); done; touch $CUBE_WORKSPACE/through"
    key, handle = run(lab, script, labels={"log_dir": str(small_disk)})
    log = small_disk / "rank-0.log"
    eventually(lambda: log.exists() and log.stat().st_size >= 20_000)
    assert lab.backend.observe(key, handle).state is S.RUNNING
    assert not (lab.workspace / "through").exists()
    (small_disk / "ballast").unlink()
    assert lab.end(key, handle).state is S.SUCCEEDED
    assert log.read_text() == "123456789\n" * 40000
    assert lab.backend.collect(key, handle).logs == {0: str(log)}


def test_stop_with_a_full_disk_still_ends(plain: Lab, small_disk: Path) -> None:
    key, handle = run(plain, "while :; do echo 123456789; done", labels={"log_dir": str(small_disk)})
    log = small_disk / "rank-0.log"
    eventually(lambda: log.exists() and log.stat().st_size >= 20_000)
    plain.backend.stop(key, handle, 0)
    assert plain.end(key, handle).ranks[0].cause is Cause.CANCELLED
