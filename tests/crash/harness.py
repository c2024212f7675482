"""The real platform under fire: started whole (`Tree`) or in parts (`Parts`), with what tells from outside whether
anything was lost, done twice or left behind.

Each task of a run appends a line to a file of the workspace when it starts and another when it ends, and holds a lock
that the kernel takes from the dead: what ran, how often and whether two ran at once is known without the database.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.crash import processes
from tests.crash.api import Api
from tests.e2e.platform import Platform

HEAD = {"apiVersion": "cube-studio.io/v1alpha1"}
KINDS = ("web", "worker", "beat", "watch", "redis")
REAPED_S = 60.0  # an ended object is deleted after 15 s, an unknown one after a minute


def seed() -> int:
    """CUBE_CRASH_SEED, or a new one. Print it."""
    return int(os.environ.get("CUBE_CRASH_SEED") or random.randrange(10**6))


def rounds(default: int) -> int:
    return int(os.environ.get("CUBE_CRASH_ROUNDS") or default)


def outage_s(default: float) -> float:
    """How long Redis or the database is away."""
    return float(os.environ.get("CUBE_CRASH_OUTAGE_S") or default)


class Witness:
    """What the tasks themselves have written down. They write it in the workspace of the project `public`."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "workspace" / "public"

    def ran(self, run_id: int) -> Counter[str]:
        """How often each task has started."""
        return self._lines(f"ran.{run_id}")

    def finished(self, run_id: int) -> Counter[str]:
        return self._lines(f"finished.{run_id}")

    def doubled(self, run_id: int) -> Counter[str]:
        """Tasks that ran beside themselves."""
        return self._lines(f"doubled.{run_id}")

    def _lines(self, name: str) -> Counter[str]:
        try:
            return Counter((self.folder / name).read_text().split())
        except FileNotFoundError:
            return Counter()

    def exactly_once(self, run_id: int, keys: list[str]) -> None:
        once = dict.fromkeys(keys, 1)
        assert dict(self.ran(run_id)) == once
        assert dict(self.finished(run_id)) == once
        assert dict(self.doubled(run_id)) == {}


def task(name: str, *upstream: str, seconds: float = 0.05, command: str = "", **fields: Any) -> dict[str, Any]:
    """A task that witnesses itself and lasts that long."""
    script = (
        'r=$CUBE_RUN_ID; echo "$CUBE_TASK" >> "ran.$r"; '
        'exec 9>> "lock.$r.$CUBE_TASK"; flock -n 9 || echo "$CUBE_TASK" >> "doubled.$r"; '
        f'{command or f"sleep {seconds:g}"}; code=$?; echo "$CUBE_TASK" >> "finished.$r"; exit $code'
    )
    job = {"framework": "shell", "command": ["/bin/sh", "-c", script], "resources": {"cpu": 0.2, "memory": "64Mi"}}
    return {"name": name, "job": job, "dependsOn": list(upstream), **fields}


def pipeline(name: str, tasks: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "project": "public"}
    return {**HEAD, "kind": "Pipeline", "metadata": metadata, "spec": {"tasks": tasks, **spec}}


def mixed(size: int, dice: random.Random) -> list[dict[str, Any]]:
    """Fan-outs, fan-ins and chains, `size` tasks of 0.05 to 0.3 s."""
    tasks: list[dict[str, Any]] = [task("t0", seconds=0.1)]
    while len(tasks) < size:
        left = size - len(tasks)
        first, tip = len(tasks), tasks[-1]["name"]
        length = min(left, dice.randint(3, 12))
        names = [f"t{first + i}" for i in range(length)]
        wide = dice.random() < 0.7 and length > 2
        for i, name in enumerate(names):
            joins = wide and i == length - 1
            upstream = names[:-1] if joins else [tip] if wide or i == 0 else [names[i - 1]]
            tasks.append(task(name, *upstream, seconds=dice.uniform(0.05, 0.3 if wide else 0.1)))
    return tasks


def keys(tasks: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in tasks]


def until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "it did not happen") -> Any:
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def all_succeeded(run: dict[str, Any], attempts: int = 1) -> None:
    """Every task has succeeded, in that many attempts."""
    assert (run["phase"], run["reason"]) == ("succeeded", ""), run["reason"]
    wrong = [t for t in run["tasks"] if (t["phase"], len(t["attempts"])) != ("succeeded", attempts)]
    assert not wrong, f"run {run['id']}: {wrong[:3]}"


def logs_of(home: Path) -> str:
    """Everything any process of the platform has written for people."""
    files = [home.parent / "stderr", *home.glob("*/*.log"), *home.parent.glob("*.err")]
    return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


class Home:
    """What `Tree` and `Parts` share: a CUBE_HOME looked at from outside."""

    home: Path
    api: Api

    @property
    def env(self) -> dict[str, str]:
        raise NotImplementedError

    @property
    def witness(self) -> Witness:
        return Witness(self.home)

    def doctor(self) -> list[str]:
        """What `cube doctor` finds bad."""
        argv = [sys.executable, "-m", "myapp.cli", "doctor", "--json"]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120)
        found = json.loads(done.stdout)
        assert len([one for one in found if one["name"] in ("I1", "I2", "I3", "I4", "I5", "I6")]) >= 6, done.stdout
        bad = [f"{one['name']}: {one['detail']}" for one in found if one["state"] == "bad"]
        assert done.returncode == (1 if bad else 0), done.stderr
        return bad

    def objects(self) -> list[str]:
        """Names of the folders of attempts that are still there. (What a kill left half made or half deleted has a
        name with a dot, and is swept an hour later.)"""
        return sorted(path.name for path in (self.home / "jobs").iterdir() if not path.name.startswith("."))

    def no_objects(self) -> None:
        until(lambda: not self.objects(), REAPED_S, "objects were left in jobs/")

    def nothing_alive(self, seconds: float = 15.0) -> None:
        assert processes.gone(self.home, seconds) == {}


class Tree(Home):
    """`cube up`, its API signed in to."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.home = folder / "var"
        self.platform = Platform(self.home, CUBE_LOCAL_CPU="2", **settings)
        self.api = Api("", self.home)

    @property
    def env(self) -> dict[str, str]:
        return self.platform.env

    def start(self) -> Tree:
        self.platform.start()
        self.api.url = self.platform.url
        if not self.api.token:
            self.api.login()
        return self

    def pids(self) -> dict[str, int]:
        """The living parts and the supervisor itself, by name."""
        assert self.platform.process is not None
        found = {"supervisor": self.platform.process.pid}
        for child in psutil.Process(self.platform.process.pid).children():
            try:
                name = Path(f"/proc/{child.pid}/comm").read_text().strip().removeprefix("cube-")
                if child.status() != psutil.STATUS_ZOMBIE:
                    found[name.removesuffix("-server")] = child.pid
            except (OSError, psutil.Error):
                continue
        return found

    def kill(self, name: str) -> bool:
        """SIGKILL a part; False when it is dead just now."""
        pid = self.pids().get(name)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_everything(self) -> None:
        """SIGKILL the supervisor and all it started, at once; but not the shims, which outlive it with their jobs."""
        assert self.platform.process is not None
        supervisor = psutil.Process(self.platform.process.pid)
        parts = supervisor.children()
        below = parts + [child for part in parts for child in processes.children(part)]
        for process in (supervisor, *below):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.platform.process.communicate()
        psutil.wait_procs(below, timeout=20)

    def stop(self) -> None:
        assert self.platform.stop() == 0

    def close(self) -> None:
        """However the test ended."""
        self.api.close()
        process = self.platform.process
        if process is not None and process.poll() is None:
            self.platform.stop()
        elif process is not None and process.stdout is not None:
            process.stdout.close()
        _sweep(self.home)


class Redis:
    """A Redis of the test's own, on a socket, to be stopped at will."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None
        argv = [program, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        argv += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: self.say("PING") == b"+PONG", 10)

    def say(self, word: str) -> bytes:
        """A command without arguments, and the first line of its answer; empty when nobody answers."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(str(self.socket))
                client.sendall(word.encode() + b"\r\n")
                return client.recv(64).split(b"\r\n")[0]
        except OSError:
            return b""

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Parts(Home):
    """web, worker, beat and watch, each a process of its own, beside a Redis of the test's."""

    def __init__(self, folder: Path, *, database_url: str = "") -> None:
        self.folder = folder
        self.home = folder / "var"
        self.redis = Redis(_short(folder))
        self.port = _free_port()
        self.api = Api(f"http://127.0.0.1:{self.port}", self.home)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.settings = {
            "CUBE_HOME": str(self.home),
            "CUBE_PORT": str(self.port),
            "CUBE_SAMPLE": "false",
            "CUBE_LOCAL_CPU": "2",
            "CUBE_REDIS_URL": self.redis.url,
            "CUBE_DATABASE_URL": database_url,
            "HOME": str(folder),
        }

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUBE_", "MAKE"))}
        return kept | self.settings

    def start(self, *names: str) -> Parts:
        """Prepare the database, then start these parts (default: all)."""
        self.redis.start()
        argv = [sys.executable, "-m", "myapp.cli", "init"]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        for name in names or ("web", "worker", "beat", "watch"):
            self.launch(name)
        self.await_ready()
        self.api.login()
        return self

    def launch(self, name: str, **settings: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.err", "ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "myapp.cli", name],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=self.env | settings,
                start_new_session=True,
            )
        self.running[name] = process
        return process

    def await_ready(self) -> None:
        def answers() -> bool:
            try:
                return self.api.call("GET", "/_openapi")[0] in (200, 401)
            except OSError:
                return False

        until(answers, 60, "the web server does not answer")

    def close(self) -> None:
        self.api.close()
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.redis.kill()
        shutil.rmtree(self.redis.folder, ignore_errors=True)
        _sweep(self.home)


@contextmanager
def tree(folder: Path, **settings: str) -> Iterator[Tree]:
    made = Tree(folder, **settings)
    try:
        yield made.start()
    finally:
        made.close()


@contextmanager
def parts(folder: Path, *names: str, database_url: str = "") -> Iterator[Parts]:
    made = Parts(folder, database_url=database_url)
    try:
        yield made.start(*names)
    finally:
        made.close()


def _sweep(home: Path) -> None:
    """End what a failed test has left, so that it does not disturb the next."""
    for pid in processes.of_home(home):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _short(folder: Path) -> Path:
    """A folder for sockets, whose paths must be short."""
    made = Path("/tmp") / f"cube-crash-{os.getpid()}-{abs(hash(str(folder))) % 10**8}"
    made.mkdir(mode=0o700)
    return made


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
