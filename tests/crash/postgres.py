"""A PostgreSQL of the test's own, to be stopped and started at will."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tests import databases


class Postgres:
    """Makes its cluster below `folder`, whose path must be short. Raises databases.NotInstalled."""

    def __init__(self, folder: Path) -> None:
        versions = sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))
        programs = {name: databases._program(name, *reversed(versions)) for name in ("initdb", "postgres", "psql")}
        self.folder = folder / "pg"
        self.server, self.client = programs["postgres"], programs["psql"]
        databases._folder(self.folder)
        data = self.folder / "data"
        self._run([programs["initdb"], "-D", str(data), "-U", "cube", "--auth=trust", "-E", "UTF8", "--no-sync"])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://cube@/postgres?host={self.folder}"

    def start(self) -> None:
        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off"}
        argv = [self.server, "-D", str(self.folder / "data"), *(f"--{name}={value}" for name, value in options.items())]
        self.process = databases._start(argv, self.folder)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "server.out").read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """Fast: every session is broken off, what is not committed is undone."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait(timeout=60) == 0

    def _answers(self) -> bool:
        argv = [self.client, "-h", str(self.folder), "-U", "cube", "-d", "postgres", "-c", "select 1"]
        return subprocess.run(argv, capture_output=True, timeout=10).returncode == 0

    def _run(self, argv: list[str]) -> None:
        user = databases._user()
        env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
        subprocess.run(argv, check=True, capture_output=True, user=user, cwd="/", env=env)
