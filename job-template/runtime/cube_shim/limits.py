"""Control groups of one rank: entered before its release, read when it ends."""

from __future__ import annotations

import os
from typing import Any


def enter(groups: list[dict[str, Any]]) -> bool:
    """Create each group `{dir, files: [[name, value]], optional: [[name, value]]}` and move this process into it."""
    try:
        for group in groups:
            folder = group["dir"]
            try:
                os.mkdir(folder, 0o755)
            except FileExistsError:
                pass
            for name, value in group["files"]:
                _put(os.path.join(folder, name), value)
            for name, value in group.get("optional", ()):
                try:
                    _put(os.path.join(folder, name), value)
                except OSError:
                    pass
            _put(os.path.join(folder, "cgroup.procs"), "0")
    except OSError:
        return False
    return True


def _put(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def out_of_memory(groups: list[dict[str, Any]]) -> bool:
    """Whether the kernel killed a process of these groups for their memory limit."""
    for group in groups:
        for name in ("memory.events", "memory.oom_control"):
            try:
                with open(os.path.join(group["dir"], name)) as f:
                    for line in f:
                        key, _, count = line.partition(" ")
                        if key == "oom_kill" and int(count) > 0:
                            return True
            except (OSError, ValueError):
                continue
    return False
