"""The supervisor's children: forked without exec, so that they share its memory; started again when they die."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from myapp.supervisor.checks import release_lock_in_child
from myapp.utils import process

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
STEADY_S = 30.0  # having lived that long, a child's next death is its first again

_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT, signal.SIGUSR1)


@dataclass
class Child:
    """One part. `run` is called in the forked process; its result is the exit code."""

    name: str
    run: Callable[[], int | None]
    pid: int = 0
    started: float = 0.0
    failures: int = 0
    restart_at: float | None = None
    ended: str = field(default="", repr=False)

    @property
    def alive(self) -> bool:
        return self.pid != 0

    def start(self) -> None:
        self.restart_at = None
        self.started = time.monotonic()
        self.pid = fork(f"cube-{self.name}", self.run)

    def reap(self) -> int | None:
        """The wait status when it has ended since; None while it lives (or was not started)."""
        if not self.pid:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self.pid, 0
        if pid == 0:
            return None
        self.send_group(signal.SIGKILL)  # what it may have left in its group
        self.pid = 0
        self.ended = how_it_ended(status)
        return status

    def plan_restart(self) -> float:
        """Seconds until it is to be started again: longer each time it dies soon."""
        now = time.monotonic()
        self.failures = 1 if now - self.started > STEADY_S else self.failures + 1
        pause = float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.failures - 1)))
        self.restart_at = now + pause
        return pause

    def send(self, signum: signal.Signals) -> None:
        if self.pid:
            _send(os.kill, self.pid, signum)

    def send_group(self, signum: signal.Signals) -> None:
        if self.pid:
            _send(os.killpg, self.pid, signum)


def fork(name: str, run: Callable[[], int | None]) -> int:
    """The pid of a new process that calls `run` and ends with its result.

    It leads a process group (so that a terminal's Ctrl-C reaches the supervisor alone), has default signal handlers,
    writes to stderr only, and dies with this process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        for signum in _RESET:
            signal.signal(signum, signal.SIG_DFL)
        os.setpgid(0, 0)
        process.die_with_parent(parent)
        process.set_name(name)
        release_lock_in_child()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        code = run() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def how_it_ended(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"


def _send(function: Callable[[int, int], None], pid: int, signum: signal.Signals) -> None:
    try:
        function(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass
