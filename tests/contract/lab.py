"""A backend and what it takes to test it: the same jobs for real processes and for the fake."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from myapp.backends.fake.backend import FakeBackend, Script
from myapp.backends.local.backend import LocalBackend
from myapp.backends.local.settings import LocalSettings
from myapp.domain.ports import (
    AttemptKey,
    ExecutionBackend,
    Handle,
    LaunchSpec,
    Observation,
    ObservedState,
    RankSpec,
    Resources,
)

MIB = 1024 * 1024
DEADLINE_S = 60.0
SH = "/bin/sh"

# name of a job -> its command for real, and its script for the fake
JOBS: dict[str, tuple[tuple[str, ...], Script]] = {
    "succeed": ((SH, "-c", "echo hello; echo started >> $CUBE_WORKSPACE/starts"), Script(log=b"hello\n")),
    "exit3": ((SH, "-c", "echo oh no; exit 3"), Script(exit_code=3, log=b"oh no\n")),
    "forever": ((SH, "-c", "echo started >> $CUBE_WORKSPACE/starts; exec sleep 1000"), Script(run_s=None)),
    "stubborn": (
        (SH, "-c", "trap '' TERM; echo started >> $CUBE_WORKSPACE/starts; while :; do sleep 0.1; done"),
        Script(run_s=None, ignores_stop=True),
    ),
}


def eventually(check: Callable[[], Any], what: str = "") -> Any:
    """The first true answer of `check`. A deadline, not a measure: nothing is concluded from how long it took."""
    deadline = time.monotonic() + DEADLINE_S
    pause = 0.002
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what or check}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return answer


class Lab:
    def __init__(self, backend: ExecutionBackend, root: Path) -> None:
        self.backend = backend
        self.root = root
        self.workspace = root / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self._ids = itertools.count(1)

    @property
    def real(self) -> bool:
        return isinstance(self.backend, LocalBackend)

    def key(self) -> AttemptKey:
        number = next(self._ids)
        return AttemptKey("demo", number, f"demo-job-{number}")

    def spec(self, *jobs: str | tuple[str, ...], roles: tuple[str, ...] = (), **options: Any) -> LaunchSpec:
        """One rank per job: a name in JOBS or an argv."""
        env = options.pop("env", {})
        resources = options.pop("resources", Resources(cpu_milli=1000, memory=256 * MIB))
        ranks = []
        for number, job in enumerate(jobs):
            command = JOBS[job][0] if isinstance(job, str) else job
            role = roles[number] if roles else "worker"
            index = sum(r.role == role for r in ranks)
            ranks.append(RankSpec(role, index, number, command, dict(env), resources))
        return replace(
            LaunchSpec("job", tuple(ranks), ("worker",), workspace=str(self.workspace), sha256="a" * 64), **options
        )

    def arm(self, *jobs: str | tuple[str, ...], **options: Any) -> tuple[AttemptKey, Handle]:
        key = self.key()
        return key, self.backend.arm(self.spec(*jobs, **options), key)

    def start(self, *jobs: str | tuple[str, ...], **options: Any) -> tuple[AttemptKey, Handle]:
        key, handle = self.arm(*jobs, **options)
        self.backend.fire(key, handle)
        return key, handle

    def until(self, key: AttemptKey, handle: Handle, *states: ObservedState) -> Observation:
        seen: list[Observation] = []

        def check() -> bool:
            seen[:] = [self.backend.observe(key, handle)]
            return seen[0].state in states

        try:
            eventually(check)
        except AssertionError:
            raise AssertionError(f"wanted {states}, last seen {seen}") from None
        return seen[0]

    def end(self, key: AttemptKey, handle: Handle) -> Observation:
        return self.until(key, handle, ObservedState.SUCCEEDED, ObservedState.FAILED)

    def started(self, key: AttemptKey) -> int:
        """How many times commands were started in this lab's workspace (for the fake: of this object)."""
        if isinstance(self.backend, FakeBackend):
            return self.backend.starts(key.object_name)
        path = self.workspace / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def kill_shim(self, key: AttemptKey, handle: Handle, rank: int = 0) -> None:
        if isinstance(self.backend, FakeBackend):
            self.backend.vanish(key.object_name)
            return
        os.kill(handle.data["ranks"][rank]["pid"], signal.SIGKILL)

    def close(self) -> None:
        for owned in list(self.backend.list_owned()):
            self.backend.destroy(owned)
        if isinstance(self.backend, LocalBackend):
            self.backend.close()


def plan_of(spec: LaunchSpec, key: AttemptKey, rank: int) -> Script:
    return next(script for command, script in JOBS.values() if command == spec.ranks[rank].command)


def local_lab(root: Path, sandbox: Any = "none", **settings: Any) -> Lab:
    return Lab(LocalBackend(LocalSettings(home=root / "home", sandbox=sandbox, node="here", **settings)), root)


def run(lab: Lab, script: str, **options: Any) -> tuple[AttemptKey, Handle]:
    """Start a shell script and release it."""
    return lab.start((SH, "-c", script), **options)


def log_of(lab: Lab, key: AttemptKey, handle: Handle) -> str:
    return lab.backend.read_log(key, handle, 0, 0, 1 << 20).data.decode()


def marked_processes(uid: str) -> list[int]:
    """Living processes whose environment carries the job's mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"CUBE_JOB_UID={uid}\0".encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(int(entry.name))
        except OSError:
            continue
    return found
