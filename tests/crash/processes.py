"""Which processes belong to a CUBE_HOME, and which of them are shims: by /proc alone, never by name."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil


def of_home(home: Path) -> dict[int, str]:
    """Every living process that names this folder in its command line, environment, folder or open files: pid -> what
    it is. Neither this process nor those it descends from."""
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {}
    for pid in psutil.pids():
        if pid not in ours and _names(pid, str(home)):
            what = _words(pid)
            if what is not None:
                found[pid] = what
    return found


def _names(pid: int, home: str) -> bool:
    folder = Path("/proc", str(pid))
    for name in ("cmdline", "environ"):
        try:
            if home.encode() in (folder / name).read_bytes():
                return True
        except OSError:
            continue
    try:
        links = [folder / "cwd", *(folder / "fd").iterdir()]
    except OSError:
        return False
    for link in links:
        try:
            if str(link.readlink()).startswith(home):
                return True
        except OSError:
            continue
    return False


def _words(pid: int) -> str | None:
    """The command line; None when it has ended (a zombie is nobody's)."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return " ".join(process.cmdline())[:200] or process.name()
    except psutil.Error:
        return None


@dataclass(frozen=True)
class Shim:
    """A living shim. `task`: the key of the task whose rank it runs."""

    pid: int
    started: int
    task: str
    rank: int
    folder: Path

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Signal exactly this process; False when it has gone already."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if start_time(self.pid) != self.started:
                return False
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def job(self) -> int | None:
        """The pid of the job's own first process: below bubblewrap, where there is one."""
        try:
            below = psutil.Process(self.pid).children(recursive=True)
            inner = [child for child in below if child.name() != "bwrap"]
        except psutil.Error:
            return None
        return inner[0].pid if inner else None


def shims(home: Path) -> Iterator[Shim]:
    """The living shims of a CUBE_HOME that have been released, by what they wrote down."""
    for path in sorted((home / "jobs").glob("[!.]*/rank-*/identity.json")):
        folder = path.parent.parent
        try:
            identity = json.loads(path.read_text())
            spec = json.loads((folder / "spec.json").read_text())
        except (OSError, ValueError):
            continue
        rank = int(path.parent.name.removeprefix("rank-"))
        pid, started = identity["pid"], identity["start_time"]
        if (folder / "go").exists() and start_time(pid) == started:
            yield Shim(pid, started, spec["ranks"][rank]["env"]["CUBE_TASK"], rank, folder)


def start_time(pid: int) -> int | None:
    """In ticks since boot; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children()
        return found
    except psutil.NoSuchProcess:
        return []


def fork_servers(parent: int) -> list[int]:
    """The fork servers that a worker has started."""
    try:
        below = psutil.Process(parent).children()
        return [child.pid for child in below if any("cube_shim/server.py" in word for word in child.cmdline())]
    except psutil.Error:
        return []


def gone(home: Path, seconds: float) -> dict[int, str]:
    """What is left of a CUBE_HOME's processes after at most that long: empty when nothing is."""
    deadline = time.monotonic() + seconds
    while (left := of_home(home)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
