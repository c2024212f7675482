"""What is measured of Cube Studio alone: start, submits, and whether cost stays flat."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.http import load, percentile
from bench.platform import Platform
from bench.rows import add_runs
from bench.system import Sizes, listing, median, noise, one, rounds, wait_for
from bench.tree import Meter, wait_until_quiet


def measure(
    platform: Platform,
    sizes: Sizes,
    *,
    submits: int,
    fans: tuple[int, ...],
    listed: int,
    many: int,
    say: Callable[[str, Any], None],
) -> dict[str, Any]:
    """After the common part. `listed`: runs in the database when they are listed; `many`: for the last comparison."""
    found: dict[str, Any] = {}

    def keep(key: str, value: Any) -> None:
        found[key] = value
        say(key, value)

    wait_until_quiet(platform.tree, sizes.quiet_s)
    keep("submit", submit(platform, submits))
    keep("flat", {str(tasks): fan(platform, tasks, sizes.quiet_s) for tasks in fans})
    keep("ready", ready(platform, 3))
    sample = platform.submit("w1")
    platform.wait(sample)
    rows = 0
    for key, count in (("list", listed), ("many", many)):
        if count > rows:
            platform.stop()
            add_runs(platform.home / "cube.db", sample, count - rows)
            rows = count
            platform.restart()
        if count and key == "list":
            wait_until_quiet(platform.tree, sizes.quiet_s)
            keep("list", {"runs": count} | listing(platform, platform.list_request(), sizes.requests * 2))
        elif count:
            wait_until_quiet(platform.tree, sizes.quiet_s)
            again = rounds(platform, "w1", sizes.w1)
            keep("many", {"runs": count, "w1": again, "w3": rounds(platform, "w3", sizes.w3)})
            keep("many_list", {"runs": count} | listing(platform, platform.list_request(), sizes.requests))
    return found


def submit(platform: Platform, count: int) -> dict[str, Any]:
    """The cost of the request alone: the web process's CPU, while the runs are worked off beside it."""
    request = platform.submit_request()
    web = platform.tree.cpu_by_name().get("cube-web", 0.0)
    with Meter(platform.tree) as meter:
        times = load(
            request.url, request.headers, request.method, request.path, request.data, requests=count, clients=1
        )
        used = platform.tree.cpu_by_name().get("cube-web", 0.0) - web
    wait_for(lambda: platform.unfinished() == 0, 120 + count, every=0.2)
    return {
        "requests": count,
        "web_cpu_ms": round(used / count * 1e3, 2),
        "p50_ms": round(percentile(times, 50), 1),
        "p95_ms": round(percentile(times, 95), 1),
        "noise": noise(meter.other, meter.wall),
    }


def fan(platform: Platform, tasks: int, quiet_s: float) -> dict[str, Any]:
    """One run of so many tasks, 1 -> n -> 1; small ones several times, so that the CPU's ticks do not matter."""
    workload = platform.add_fan(tasks)
    wait_until_quiet(platform.tree, quiet_s)
    return median([one(platform, workload) for _ in range(max(1, min(5, 200 // tasks)))], tasks)


def ready(platform: Platform, times: int) -> dict[str, Any]:
    """From `cube up` on a home that is set up to the line that says so."""
    walls, noises = [], []
    for _ in range(times):
        with Meter(platform.tree) as meter:
            walls.append(platform.restart())
        noises.append(noise(meter.other, meter.wall))
        time.sleep(0.5)
    return {"wall_s": round(statistics.median(walls), 2), "walls_s": [round(w, 2) for w in walls], "noise": max(noises)}
