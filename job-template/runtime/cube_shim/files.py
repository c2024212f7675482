"""Small files written whole or not at all, and what identifies a process."""

from __future__ import annotations

import errno
import json
import os
from typing import Any

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def read_json(path: str) -> Any:
    """The document at `path`, or None when there is none (or only a torn one)."""
    try:
        with open(path, "rb") as f:
            return json.loads(f.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def write_json(path: str, document: Any, *, sync: bool = False) -> None:
    """Replace `path` by rename. Raises OSError; leaves no half-written file."""
    temporary = f"{path}.{os.getpid()}"
    _write(temporary, document, sync)
    os.replace(temporary, path)


def create_json(path: str, document: Any) -> int | None:
    """Create `path` with its content in one step. Returns an open descriptor of it, or None when it exists already."""
    temporary = f"{path}.{os.getpid()}"
    fd = _write(temporary, document, False, keep=True)
    try:
        os.link(temporary, path)
    except FileExistsError:
        os.close(fd)
        return None
    finally:
        os.unlink(temporary)
    return fd


def _write(path: str, document: Any, sync: bool, *, keep: bool = False) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(document).encode()
        while data:
            data = data[os.write(fd, data):]
        if sync:
            os.fsync(fd)
    except BaseException:
        os.close(fd)
        try:
            os.unlink(path)
        except OSError:
            pass
        raise
    if not keep:
        os.close(fd)
    return fd


def read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def stat_fields(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat after the name: [0] state, [1] ppid, [2] pgrp, [3] session, [19] start."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def boot_id() -> str:
    return (read_text("/proc/sys/kernel/random/boot_id") or "").strip()


def pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
