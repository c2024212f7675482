"""What a dead shim left running, found by its session, its control groups and its mark, and killed."""

from __future__ import annotations

import os
import signal

from myapp.backends.local import cgroups
from myapp.backends.local.identity import Identity, boot_id, pid_namespace, stat_fields


def kill(identity: Identity, groups: list[str]) -> int:
    """Kill everything the dead shim's rank still has; returns how many processes were found (0: nothing is left).

    Only in the pid namespace and boot the shim lived in: elsewhere nothing of it can be named.
    """
    if identity.boot_id != boot_id() or identity.pid_ns != pid_namespace():
        return 0
    found = {pid for folder in groups for pid in cgroups.pids(folder)}
    found |= _marked(identity)
    found.discard(identity.pid)
    count = 0
    for pid in found:
        fields = stat_fields(pid)
        if fields is None or fields[0] in (b"Z", b"X") or pid == os.getpid():
            continue
        count += 1
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    return count


def _marked(identity: Identity) -> set[int]:
    mark = f"CUBE_JOB_UID={identity.uid}\0".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        fields = stat_fields(pid)
        if fields is None or int(fields[19]) < identity.start_time:
            continue
        if int(fields[3]) == identity.pid or (mark in _environ(pid) and not _has_living_shim(pid, identity)):
            found.add(pid)
    return found


def _has_living_shim(pid: int, identity: Identity) -> bool:
    """Whether a process of this job belongs to another rank, whose shim lives: walk up its parents."""
    for _ in range(64):
        fields = stat_fields(pid)
        if fields is None or pid == identity.pid:
            return False
        session, parent = int(fields[3]), int(fields[1])
        if session == pid and parent <= 1:
            return False
        if mark_of_shim(pid):
            return True
        if parent <= 1:
            return False
        pid = parent
    return False


def mark_of_shim(pid: int) -> bool:
    """Whether this process is a shim (a fork of the fork server)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"/cube_shim/server.py\0" in f.read()
    except OSError:
        return False


def _environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""
