"""Which process a shim is, and whether it still lives: proof, not a guess."""

from __future__ import annotations

import fcntl
import functools
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DEAD = (b"Z", b"X")          # ended, and only not collected by its parent yet


class Life(StrEnum):
    ALIVE = "alive"
    GONE = "gone"          # proven
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Identity:
    """A shim as it wrote itself down. `start_time` in clock ticks since boot (field 22 of /proc/<pid>/stat)."""

    pid: int
    start_time: int
    boot_id: str
    node: str
    pid_ns: int
    uid: str

    @classmethod
    def parse(cls, document: Any) -> Identity | None:
        try:
            return cls(
                int(document["pid"]), int(document["start_time"]), str(document["boot_id"]),
                str(document["node"]), int(document["pid_ns"]), str(document["uid"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def life(self, node: str, evidence: str | None = None) -> Life:
        """Whether this process lives, as seen from `node`.

        `evidence` is the path of its identity file: the shim holds a lock on it until it dies, which decides where pids
        cannot be compared (another process namespace of the same machine).
        """
        if self.node != node:
            return Life.UNKNOWN
        if self.boot_id != boot_id():
            return Life.GONE
        if self.pid_ns != pid_namespace():
            return _locked(evidence) if evidence else Life.UNKNOWN
        fields = stat_fields(self.pid)
        alive = fields is not None and fields[0] not in DEAD and int(fields[19]) == self.start_time
        return Life.ALIVE if alive else Life.GONE

    def open(self) -> int | None:
        """A pidfd of exactly this process, None when it is gone. The caller closes it."""
        if self.boot_id != boot_id() or self.pid_ns != pid_namespace():
            return None
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        fields = stat_fields(self.pid)
        if fields is None or fields[0] in DEAD or int(fields[19]) != self.start_time:
            os.close(fd)
            return None
        return fd

    def send(self, number: int) -> bool:
        """Signal exactly this process. False when it is gone (or lives in another process namespace)."""
        fd = self.open()
        if fd is None:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)


def _locked(path: str) -> Life:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return Life.UNKNOWN
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return Life.GONE
    except BlockingIOError:
        return Life.ALIVE
    except OSError:
        return Life.UNKNOWN
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat after the command's name: [0] state, [1] ppid, [3] session, [19] start time."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as f:
            return f.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


@functools.cache
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


@functools.cache
def pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
