"""What this machine has: processors, memory, devices."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess


def cores() -> int:
    return len(os.sched_getaffinity(0))


def cpu_milli() -> int:
    """Millicores this process may use: its affinity, or less where a control group says so."""
    amount = cores() * 1000
    for quota, period in (_v2_quota(), _v1_quota()):
        if quota > 0 and period > 0:
            amount = min(amount, quota * 1000 // period)
    return max(amount, 1)


def memory_bytes() -> int:
    """90 % of the machine's memory, or of this control group's limit where that is less."""
    amount = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", _own_v1_limit()):
        limit = _number(path)
        if limit > 0:
            amount = min(amount, limit)
    return amount * 9 // 10


def gpu_count() -> int:
    devices = [path for path in glob.glob("/dev/nvidia[0-9]*") if re.fullmatch(r"/dev/nvidia\d+", path)]
    if devices:
        return len(devices)
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith(b"GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0


def _own_v1_limit() -> str:
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if "memory" in controllers.split(","):
                return f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.limit_in_bytes"
    return ""


def _v2_quota() -> tuple[int, int]:
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        return (0, 0) if quota == "max" else (int(quota), int(period))
    except (OSError, ValueError):
        return 0, 0


def _v1_quota() -> tuple[int, int]:
    return _number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), _number("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def _number(path: str) -> int:
    try:
        with open(path) as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0
