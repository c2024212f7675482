"""Control groups for one rank: where they can be made, and the limits to write into them."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Any

ROOT = "/sys/fs/cgroup"
PERIOD_US = 100_000
ABANDONED_S = 3600.0
MAX_PROCESSES = 4096       # of one rank, threads included: enough for any data loader, an end to any fork bomb


@dataclass(frozen=True)
class Cgroups:
    """`version` 0: none. The others are folders in which groups can be made (one and the same on v2)."""

    version: int
    memory: str | None = None
    cpu: str | None = None
    reason: str = ""
    pids: str | None = None

    @property
    def bases(self) -> list[str]:
        return sorted({base for base in (self.memory, self.cpu, self.pids) if base})

    def plan(self, name: str, memory: int, cpu_milli: int, cores: int) -> list[dict[str, Any]]:
        """The groups of one rank, for its shim to make: `{dir, files, optional}`.

        No CPU quota is set when the rank asks for the whole machine or more.
        """
        quota = cpu_milli * PERIOD_US // 1000 if 0 < cpu_milli < cores * 1000 else 0
        if self.version == 2 and self.memory:
            files = [["memory.max", str(memory)]]
            if quota and self.cpu:
                files.append(["cpu.max", f"{quota} {PERIOD_US}"])
            return [{"dir": f"{self.memory}/{name}", "files": files,
                     "optional": [["memory.swap.max", "0"], ["pids.max", str(MAX_PROCESSES)]]}]
        groups = []
        if self.memory:
            groups.append({
                "dir": f"{self.memory}/{name}",
                "files": [["memory.limit_in_bytes", str(memory)]],
                "optional": [["memory.memsw.limit_in_bytes", str(memory)]],
            })
        if self.cpu and quota:
            files = [["cpu.cfs_period_us", str(PERIOD_US)], ["cpu.cfs_quota_us", str(quota)]]
            groups.append({"dir": f"{self.cpu}/{name}", "files": files})
        if self.pids:
            groups.append({"dir": f"{self.pids}/{name}", "files": [["pids.max", str(MAX_PROCESSES)]]})
        return groups

    def sweep(self) -> None:
        """Remove empty groups that are an hour old: their attempts' folders were lost. One in use cannot be removed."""
        for base in self.bases:
            with os.scandir(base) as entries:
                for entry in entries:
                    try:
                        old = time.time() - entry.stat().st_mtime > ABANDONED_S
                        if old and entry.name.startswith("cube-"):
                            os.rmdir(entry.path)
                    except OSError:
                        continue


def name(uid: str, rank: int) -> str:
    return f"cube-{uid[:18]}-{rank}"


def pids(folder: str) -> list[int]:
    try:
        with open(f"{folder}/cgroup.procs") as f:
            return [int(pid) for pid in f.read().split() if pid != "0"]
    except (OSError, ValueError):
        return []


def remove(folder: str) -> bool:
    """Remove an empty group. False when something is still in it; a no-op when already gone."""
    for pause in (0.0, 0.002, 0.01, 0.05):
        if pause:
            time.sleep(pause)
        try:
            os.rmdir(folder)
            return True
        except FileNotFoundError:
            return True
        except OSError:
            continue
    return False


@functools.cache
def probe() -> Cgroups:
    """What can be used here, found by making a group and entering it; tried once per process."""
    own = _own()
    if os.path.exists(f"{ROOT}/cgroup.controllers"):
        return _probe_v2(ROOT + own.get("", "/").rstrip("/"))
    memory = _try_v1("memory", own)
    cpu = _try_v1("cpu", own)
    if memory or cpu:
        return Cgroups(1, memory, cpu, pids=_try_v1("pids", own))
    return Cgroups(0, reason="control groups are not writable here")


def _own() -> dict[str, str]:
    paths = {}
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def _try_v1(controller: str, own: dict[str, str]) -> str | None:
    path = own.get(controller, "/").rstrip("/")
    # In a container the path may be the host's, while the mount shows only the container's own subtree.
    for base in (f"{ROOT}/{controller}{path}", f"{ROOT}/{controller}"):
        if os.path.isdir(base) and _usable(base, f"{controller}."):
            return base
    return None


def _probe_v2(own: str) -> Cgroups:
    """The nearest ancestor in which a child gets the memory controller and may be entered."""
    base = own
    while base.startswith(ROOT):
        if _usable(base, "memory.max"):
            return Cgroups(2, base, base if _usable(base, "cpu.max") else None)
        if base == ROOT:
            break
        base = os.path.dirname(base)
    return Cgroups(0, reason="no control group with the memory controller is writable here")


def _usable(base: str, prefix: str) -> bool:
    trial = f"{base}/cube-probe-{os.getpid()}"
    try:
        os.mkdir(trial)
    except OSError:
        return False
    try:
        if not any(entry.startswith(prefix) for entry in os.listdir(trial)):
            return False
        command = ["/bin/sh", "-c", 'echo $$ > "$1"', "sh", f"{trial}/cgroup.procs"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False
    finally:
        remove(trial)
