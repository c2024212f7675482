"""CPU time and memory of everything this process has started, whoever its parent is by now."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_KEPT = ("HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")


def environment(bin_folder: Path | None = None, **values: object) -> dict[str, str]:
    """A clean environment for a measured program: byte code is cached, no proxy, no telemetry, UTC."""
    path = [str(bin_folder)] if bin_folder else []
    # without pyenv's shims: they are shell scripts
    path += [folder for folder in os.environ.get("PATH", os.defpath).split(":") if "pyenv" not in folder]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    fixed = {"PATH": ":".join(path), "NO_PROXY": "127.0.0.1,localhost", "DO_NOT_TRACK": "1", "TZ": "UTC"}
    return kept | fixed | {name: str(value) for name, value in values.items()}


@dataclass(frozen=True)
class Process:
    """`cpu`: seconds of the process and of the children it has waited for."""

    pid: int
    parent: int
    state: str
    cpu: float


@dataclass(frozen=True)
class Memory:
    """`pss_mb`: each shared page counted once, shared out among those who map it."""

    processes: int
    rss_mb: float
    pss_mb: float


class Tree:
    """The descendants of this process. Orphans come to it (it is a sub-reaper), so none is lost from the count.

    The kernel counts in ticks of 10 ms per process: what is measured should last for many of them.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._own: dict[int, subprocess.Popen[bytes]] = {}
        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("this system has no sub-reapers: CPU time cannot be measured")

    def spawn(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program, its output in `logs/<name>.log`."""
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in argv],
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._own[process.pid] = process
        return process

    def run(
        self, argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None, timeout: float = 600
    ) -> str:
        """Run a program to its end; its output. Raises RuntimeError when it fails."""
        words = [str(word) for word in argv]
        process = subprocess.Popen(
            words, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._own[process.pid] = process
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise RuntimeError(f"{words[0]} did not end within {timeout:g} s: {_tail(output)}") from None
        finally:
            self._own.pop(process.pid, None)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words[:4])} ended with {process.returncode}: {_tail(output)}")
        return output.decode(errors="replace")

    def processes(self) -> list[Process]:
        """Every living descendant, at any depth."""
        children: dict[int, list[Process]] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (found := read_process(int(entry.name))) is not None:
                children.setdefault(found.parent, []).append(found)
        below: list[Process] = []
        todo = [os.getpid()]
        while todo:
            for child in children.get(todo.pop(), ()):
                below.append(child)
                todo.append(child.pid)
        return below

    def cpu(self) -> float:
        """CPU seconds, user and system, that all of it has used so far, the ended included."""
        self._reap()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + sum(process.cpu for process in self.processes())

    def cpu_by_name(self) -> dict[str, float]:
        """CPU seconds by the name of the process (`cube-web`, ...), its ended children counted with it."""
        found: dict[str, float] = {}
        for process in self.processes():
            name = _name(process.pid)
            found[name] = found.get(name, 0.0) + process.cpu
        return found

    def memory(self) -> Memory:
        count, rss, pss = 0, 0, 0
        for process in self.processes():
            try:
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            count += 1
            for line in lines:
                if line.startswith("Rss:"):
                    rss += int(line.split()[1])
                elif line.startswith("Pss:"):
                    pss += int(line.split()[1])
        return Memory(count, round(rss / 1024, 1), round(pss / 1024, 1))

    def stop(self, first: subprocess.Popen[bytes] | None = None, patience: float = 20.0) -> None:
        """End `first` in order, then whatever is left of the tree."""
        if first is not None and first.poll() is None:
            first.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                first.wait(patience)
        for signum, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signum)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                self._reap()
                if not self.processes():
                    return
                time.sleep(0.05)

    def _reap(self) -> None:
        """Wait for orphans that came to us and have ended."""
        for process in list(self._own.values()):
            process.poll()
        me = os.getpid()
        for one in self.processes():
            if one.state == "Z" and one.parent == me and one.pid not in self._own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)


def read_process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0], sum(int(field) for field in fields[11:15]) / _TICKS)


def busy() -> float:
    """CPU seconds the whole machine has been busy."""
    with open("/proc/stat") as stat:
        values = [int(value) for value in stat.readline().split()[1:9]]
    return (sum(values) - values[3] - values[4]) / _TICKS


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    """`with Meter(tree) as m:` then `m.wall`, `m.cpu` (of the tree) and `m.other`: CPU seconds of anybody else."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.wall = self.cpu = self.other = 0.0

    def __enter__(self) -> Meter:
        self._cpu, self._busy, self._own, self._at = self._tree.cpu(), busy(), own_cpu(), time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall = time.monotonic() - self._at
        self.cpu = self._tree.cpu() - self._cpu
        self.other = max(0.0, busy() - self._busy - self.cpu - (own_cpu() - self._own))

    def result(self, tasks: int = 1) -> dict[str, Any]:
        return {
            "wall_s": round(self.wall, 4),
            "cpu_s": round(self.cpu, 3),
            "other_cpu_s": round(self.other, 2),
            "tasks": tasks,
            "wall_ms_per_task": round(self.wall / tasks * 1e3, 2),
            "cpu_ms_per_task": round(self.cpu / tasks * 1e3, 2),
        }


def wait_until_quiet(tree: Tree, most_s: float, cores: float = 0.25) -> bool:
    """Wait, at most `most_s` seconds, until others use less than `cores`; False when they never did."""
    deadline = time.monotonic() + most_s
    while True:
        with Meter(tree) as meter:
            time.sleep(min(2.0, max(most_s, 0.2)))
        if meter.other / meter.wall < cores:
            return True
        if time.monotonic() >= deadline:
            return False


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def _tail(output: bytes) -> str:
    return output.decode(errors="replace").strip()[-2000:]
