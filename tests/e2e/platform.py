"""The real platform, started as a user starts it, and the real `cube` command against it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import psutil

from myapp.client.follow import await_run
from myapp.client.session import open_api

START_S = 60.0
STOP_S = 40.0


class Platform:
    """`cube up` on a CUBE_HOME of its own; `lines` are those of its standard output."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.settings = {"CUBE_PORT": "0", "CUBE_SAMPLE": "false", **settings}
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.url = ""

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUBE_", "MAKE"))}
        return kept | self.settings | {"CUBE_HOME": str(self.home), "HOME": str(self.home.parent)}

    @property
    def errors(self) -> str:
        return (self.home.parent / "stderr").read_text()

    def start(self) -> Platform:
        with self._errors() as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "myapp.cli", "up"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.env,
                start_new_session=True,
            )
        self.lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            found = re.match(r"Cube Studio is ready: (http://\S+)", line)
            if found:
                self.url = found[1]
                return self
        self.process.wait()
        raise AssertionError(f"not ready, exit code {self.process.returncode}: {self.errors}")

    def _errors(self) -> IO[str]:
        return (self.home.parent / "stderr").open("a")

    def stop(self, signum: signal.Signals = signal.SIGINT) -> int:
        """The exit code; everything it said since is in `lines`."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        assert self.process.stdout is not None
        with self.process.stdout as rest:
            self.lines += rest.read().splitlines()
        return self.process.wait(STOP_S)

    def children(self) -> dict[str, int]:
        """The parts' pids by name."""
        assert self.process is not None
        found = psutil.Process(self.process.pid).children()
        names = {Path(f"/proc/{child.pid}/comm").read_text().strip(): child.pid for child in found}
        return {name.removeprefix("cube-").removesuffix("-server"): pid for name, pid in names.items()}

    def cube(self, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "myapp.cli", *argv],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.env | env,
            timeout=240,
        )

    def json(self, *argv: str, **options: str) -> Any:
        done = self.cube(*argv, "--json", **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def phase(self, run_id: int) -> str:
        return str(self.json("describe", "run", str(run_id))["phase"])

    def ended(self, run_id: int) -> dict[str, Any]:
        """The run once it has ended."""
        with open_api(self.url, self.env) as api:
            return await_run(api, run_id)

    def __enter__(self) -> Platform:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


def job(name: str, command: list[str]) -> str:
    """An AIJob as YAML."""
    return json.dumps(
        {
            "apiVersion": "cube-studio.io/v1alpha1",
            "kind": "AIJob",
            "metadata": {"name": name, "project": "public"},
            "spec": {"framework": "shell", "command": command, "resources": {"cpu": 0.1, "memory": "64Mi"}},
        }
    )


def until(condition: Any, seconds: float = 60.0) -> Any:
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return value


def running(words: str) -> list[int]:
    """The pids of processes whose command line holds these words."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if words in " ".join(process.info["cmdline"] or []):
            found.append(process.info["pid"])
    return found
