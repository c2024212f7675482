"""What is measured, and how: the same workloads for every system, each behind the same few verbs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.http import load, percentile
from bench.tree import Meter, Tree, wait_until_quiet

TASKS = {"w1": 1, "w2": 20, "w3": 52}
WHAT = {
    "w1": "a run of one task",
    "w2": "a chain of 20 tasks",
    "w3": "fan-out 1 -> 50 -> 1",
}


class Failed(Exception):
    """A run did not succeed: there is nothing to measure."""


@dataclass(frozen=True)
class Request:
    """How the list of runs is asked for."""

    url: str
    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    data: Any = None


class System(Protocol):
    """A running system, its tasks' commands all /bin/true, two at once."""

    name: str
    version: str
    tree: Tree
    stagger_s: float  # its polling interval: runs are begun at different moments of it

    def start(self) -> None:
        """Until it can take runs."""
        ...

    def submit(self, workload: str) -> Any:
        """Start a run of `w1`, `w2` or `w3`; its id."""
        ...

    def wait(self, run: Any) -> None:
        """Until the API says that the run has succeeded. Raises Failed when it did not."""
        ...

    def wait_all(self, runs: list[Any]) -> None:
        """Until all these runs, all of `w1`, have succeeded."""
        ...

    def list_request(self) -> Request: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Sizes:
    """How often each is done. `quiet_s`: how long to wait for others' load to go away, before each part."""

    w1: int = 5
    w2: int = 1
    w3: int = 1
    w4: int = 100
    w4_rounds: int = 1
    idle_s: float = 30.0
    settle_s: float = 15.0
    requests: int = 200
    quiet_s: float = 0.0


def wait_for(ready: Callable[[], Any], seconds: float, every: float = 0.05) -> Any:
    """The first true value of `ready()`, which may raise while it is not. Raises RuntimeError."""
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            value = ready()
            if value:
                return value
        except (OSError, EOFError, RuntimeError, ValueError, KeyError) as error:
            last = error
        time.sleep(every)
    raise RuntimeError(f"not there after {seconds:g} s: {last}")


def rounds(system: System, workload: str, times: int) -> dict[str, Any]:
    meters = []
    for i in range(times):
        time.sleep(system.stagger_s * ((i + 1) * 0.618 % 1))
        meters.append(one(system, workload))
    return median(meters, TASKS[workload])


def one(system: System, workload: str) -> Meter:
    with Meter(system.tree) as meter:
        system.wait(system.submit(workload))
    return meter


def median(meters: list[Meter], tasks: int) -> dict[str, Any]:
    """Wall: the median. CPU: the mean, as the kernel counts it in ticks that are long beside one run."""
    wall, cpu = statistics.median(m.wall for m in meters), statistics.fmean(m.cpu for m in meters)
    return {
        "runs": len(meters),
        "tasks": tasks,
        "wall_s": round(wall, 4),
        "walls_s": [round(m.wall, 3) for m in meters],
        "cpu_s": round(cpu, 4),
        "wall_ms_per_task": round(wall / tasks * 1e3, 2),
        "cpu_ms_per_task": round(cpu / tasks * 1e3, 2),
        "other_cpu_s": round(sum(m.other for m in meters), 2),
        "noise": noise(sum(m.other for m in meters), sum(m.wall for m in meters)),
    }


def noise(other: float, wall: float) -> float:
    """The share of two processors that others used meanwhile."""
    return round(other / (2 * wall), 3) if wall else 0.0


def at_once(system: System, count: int) -> dict[str, Any]:
    """Submit `count` one-task runs one after the other, wait until all have succeeded."""
    with Meter(system.tree) as meter:
        started = time.monotonic()
        runs = [system.submit("w1") for _ in range(count)]
        submitted = time.monotonic() - started
        system.wait_all(runs)
    return median([meter], count) | {"submit_s": round(submitted, 3)}


def idle(system: System, settle_s: float, seconds: float) -> dict[str, Any]:
    time.sleep(settle_s)
    with Meter(system.tree) as meter:
        time.sleep(seconds)
    memory = system.tree.memory()
    return {
        "processes": memory.processes,
        "pss_mb": memory.pss_mb,
        "rss_mb": memory.rss_mb,
        "cpu_percent_of_a_core": round(100 * meter.cpu / meter.wall, 2),
        "seconds": round(meter.wall, 1),
        "other_cpu_s": round(meter.other, 2),
    }


def listing(system: System, request: Request, requests: int, clients: int = 8) -> dict[str, Any]:
    """Latency alone and with several clients at once, and the CPU of one request."""
    found: dict[str, Any] = {"request": f"{request.method} {request.path}"}
    for key, count in (("alone", 1), (f"clients_{clients}", clients)):
        load(request.url, request.headers, request.method, request.path, request.data, requests=count, clients=count)
        with Meter(system.tree) as meter:
            times = load(
                request.url,
                request.headers,
                request.method,
                request.path,
                request.data,
                requests=requests,
                clients=count,
            )
        found[key] = {
            "requests": len(times),
            "p50_ms": round(percentile(times, 50), 1),
            "p95_ms": round(percentile(times, 95), 1),
            "cpu_ms": round(meter.cpu / len(times) * 1e3, 2),
            "per_second": round(len(times) / meter.wall, 1),
            "noise": noise(meter.other, meter.wall),
        }
    return found


def measure(system: System, sizes: Sizes, say: Callable[[str, Any], None]) -> dict[str, Any]:
    """All that is measured of every system alike. `say` is told each result as it comes."""
    found: dict[str, Any] = {"version": system.version, "at": time.strftime("%FT%TZ", time.gmtime())}

    def keep(key: str, value: Any) -> None:
        found[key] = value
        say(key, value)

    with Meter(system.tree) as meter:
        system.start()
    keep("first_start", {"wall_s": round(meter.wall, 2), "cpu_s": round(meter.cpu, 2)})
    one(system, "w1")
    keep("idle", idle(system, sizes.settle_s, sizes.idle_s))
    for workload, times in (("w1", sizes.w1), ("w2", sizes.w2), ("w3", sizes.w3)):
        wait_until_quiet(system.tree, sizes.quiet_s)
        keep(workload, rounds(system, workload, times))
    wait_until_quiet(system.tree, sizes.quiet_s)
    many = [at_once(system, sizes.w4) for _ in range(sizes.w4_rounds)]
    keep("w4", sorted(many, key=lambda one: float(one["wall_s"]))[len(many) // 2])
    time.sleep(1)
    keep("list", listing(system, system.list_request(), sizes.requests))
    refused = getattr(system, "refused", 0)
    if refused:
        keep("refused_submits", refused)
    return found
