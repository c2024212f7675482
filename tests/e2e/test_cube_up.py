"""`cube up`: what it says, how it ends, and that nothing is lost or left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.platform import Platform, job, running, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "var"


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    with Platform(home) as started:
        yield started


def test_it_says_it_is_ready_once_and_the_password_once(home: Path) -> None:
    platform = Platform(home)
    with platform:
        password = (home / "admin-password").read_text().strip()
        assert (home / "admin-password").stat().st_mode & 0o777 == 0o600
        assert (home / "run" / "url").read_text().strip() == platform.url
        platform.stop()
        assert [line for line in platform.lines if line.startswith("Cube Studio is ready: http://")] == platform.lines[
            :1
        ]
        assert sum(password in line for line in platform.lines) == 1
    with platform:
        platform.stop()
        assert password not in "\n".join(platform.lines)
        assert password not in platform.errors


def test_ctrl_c_stops_everything_and_the_run_goes_on_after_the_next_start(home: Path) -> None:
    words = f"sleep 8{os.getpid()}.125"
    with Platform(home) as platform:
        run = platform.json("apply", "-f", "-", stdin=job("sleeper", words.split()))[0]["id"]
        until(lambda: running(words))
        children = [psutil.Process(pid) for pid in platform.children().values()]
        assert platform.stop() == 0
        assert running(words) == []
        assert [child for child in children if child.is_running()] == []
        assert running(str(home)) == []
        assert not (home / "run" / "url").exists()
    with platform:
        until(lambda: running(words))
        found = platform.json("describe", "run", str(run))
        assert (found["phase"], len(found["tasks"][0]["attempts"])) == ("running", 2)
        assert platform.cube("cancel", str(run), "--wait").stdout == f"run {run} is stopped\n"
        assert running(words) == []


def test_killed_with_nothing_left_to_clean_up_it_starts_again(home: Path) -> None:
    with Platform(home) as platform:
        run = platform.json("apply", "-f", "-", stdin=job("short", ["sleep", "2"]))[0]["id"]
        children = [psutil.Process(pid) for pid in platform.children().values()]
        assert len(children) == 5
        assert platform.stop(signal.SIGKILL) == -signal.SIGKILL
        psutil.wait_procs(children, timeout=20)
        assert [child for child in children if child.is_running()] == []
    with platform:
        until(lambda: platform.phase(run) == "succeeded")
        assert platform.cube("doctor").returncode == 0


@pytest.mark.parametrize("part", ["web", "worker", "beat", "watch", "redis"])
def test_a_part_that_is_killed_is_started_again_and_named(platform: Platform, part: str) -> None:
    before = platform.children()[part]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.children().get(part, before) != before)
    assert f"cube: {part} was killed by SIGKILL; starting it again" in platform.errors
    done = until(lambda: next((d for d in [platform.cube("whoami")] if d.returncode == 0), None))
    assert done.stdout.startswith("admin at ")
    run = platform.json("apply", "-f", "-", stdin=job("after", ["true"]))[0]["id"]
    until(lambda: platform.phase(run) == "succeeded")


def refused(home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    other = Platform(home, **settings)
    return subprocess.run(
        [sys.executable, "-m", "myapp.cli", "up"], env=other.env, capture_output=True, text=True, timeout=60
    )


def test_what_stands_in_the_way_is_named_before_anything_starts(platform: Platform, home: Path, tmp_path: Path) -> None:
    port = platform.url.rpartition(":")[2]
    second = refused(home)
    assert (second.returncode, second.stdout) == (1, "")
    assert "already running" in second.stderr
    taken = refused(tmp_path / "other", CUBE_PORT=port)
    assert (taken.returncode, taken.stdout) == (1, "")
    assert f"port {port} on 127.0.0.1 is taken" in taken.stderr
    assert "make run PORT=" in taken.stderr
    assert not (tmp_path / "other" / "cube.db").exists()
    (tmp_path / "file").touch()
    unwritable = refused(tmp_path / "file" / "home")
    assert unwritable.returncode == 1
    assert "cannot be written" in unwritable.stderr
    wrong = refused(tmp_path / "other", CUBE_WEB_THREADS="many")
    assert wrong.returncode == 2
    assert "CUBE_WEB_THREADS" in wrong.stderr
    assert platform.cube("whoami").returncode == 0


def test_a_second_ctrl_c_does_not_wait(home: Path) -> None:
    """A job that ignores TERM, with a second wish while its grace lasts."""
    words = f"sleep 9{os.getpid()}.125"
    with Platform(home) as platform:
        platform.json("apply", "-f", "-", stdin=job("stubborn", ["sh", "-c", f"trap '' TERM; {words}; {words}"]))
        until(lambda: running(words))
        assert platform.process is not None
        platform.process.send_signal(signal.SIGINT)
        until(lambda: not (home / "run" / "url").exists())
        until(lambda: "interrupt" in platform.children())
        assert platform.stop() == 0
        assert running(words) == []
        assert running(str(home)) == []
