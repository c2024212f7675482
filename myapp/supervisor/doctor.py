"""`cube doctor`: what this machine offers, whether the platform is well, and whether the invariants hold."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from myapp.config import Settings
from myapp.supervisor.errors import StartError

State = Literal["ok", "note", "bad"]
_LOW_DISK = 512 * 1024 * 1024
RULES = {
    "I1": "at most one live attempt per task",
    "I2": "open allocations never exceed capacity",
    "I3": "ended rows never change",
    "I4": "the history of every row is whole",
    "I5": "every object on a backend belongs to an attempt",
    "I6": "an ended attempt holds nothing, a live one what it needs",
}


@dataclass(frozen=True)
class Finding:
    """`note`: works, but less well than it could; `bad`: something is broken."""

    name: str
    state: State
    detail: str
    resolution: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def line(self) -> str:
        remedy = f"\n         -> {self.resolution}" if self.resolution and self.state != "ok" else ""
        return f"{self.state:>5}  {self.name}: {self.detail}{remedy}"


def examine(settings: Settings) -> list[Finding]:
    """Every finding; nothing is changed."""
    checks: list[tuple[str, Callable[[Settings], Iterator[Finding]]]] = [
        ("python", _python),
        ("home", _home),
        ("redis", _redis),
        ("jobs", _machine),
        ("catalogue", _catalogue),
        ("platform", _platform),
        ("database", _database),
    ]
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings += check(settings)
        except Exception as error:  # the rest is wanted all the same
            findings.append(Finding(name, "bad", f"could not be examined: {type(error).__name__}: {error}"))
    return findings


def _python(settings: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding("python", "ok" if good else "bad", version, "Cube Studio runs on Python 3.11, 3.12 and 3.13.")


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.root
    if not home.is_dir():
        yield Finding("home", "note", f"{home} does not exist yet", "Start the platform once: make run")
        return
    disk = shutil.disk_usage(home)
    low = disk.free < _LOW_DISK
    free = f"{disk.free // 2**20} MiB free"
    yield Finding(
        "home", "bad" if low else "ok", f"{home}, {free}", "Free some space: runs wait while logs cannot be kept."
    )


def _redis(settings: Settings) -> Iterator[Finding]:
    from redis import Redis
    from redis.exceptions import RedisError

    from myapp.supervisor import checks

    if settings.embedded_redis:
        try:
            yield Finding("redis program", "ok", checks.redis_binary())
        except StartError as error:
            yield Finding("redis program", "bad", error.message, error.resolution)
    if not settings.embedded_redis or (settings.root / "run" / "url").exists():
        client = Redis.from_url(checks.with_redis(settings).redis, socket_timeout=2, socket_connect_timeout=2)
        try:
            client.ping()
            yield Finding("redis", "ok", "answers")
        except RedisError as error:
            yield Finding("redis", "bad", f"does not answer: {error}", "Runs go on, but slowly. Restart Redis.")
        finally:
            client.close()


def _machine(settings: Settings) -> Iterator[Finding]:
    from myapp.backends.local import cgroups, machine, sandbox

    found = sandbox.probe()
    if settings.local_sandbox == "none":
        yield Finding(
            "sandbox", "note", "switched off (CUBE_LOCAL_SANDBOX=none)", "Jobs can read what the platform can."
        )
    elif found.path:
        yield Finding("sandbox", "ok", found.path)
    else:
        state: State = "bad" if settings.local_sandbox == "bwrap" else "note"
        yield Finding(
            "sandbox",
            state,
            f"jobs run without one: {found.reason}",
            "Install it (Debian, Ubuntu: apt install bubblewrap).",
        )
    groups = cgroups.probe()
    if groups.version:
        yield Finding("limits", "ok", f"cgroups v{groups.version}")
    else:
        yield Finding(
            "limits",
            "note",
            f"by rlimits only: {groups.reason}",
            "Start under systemd-run --user --scope -p Delegate=yes.",
        )
    yield Finding(
        "capacity",
        "ok",
        f"{machine.cpu_milli() / 1000:g} CPUs, {machine.memory_bytes() / 2**30:.1f} GiB, {machine.gpu_count()} GPUs",
    )


def _catalogue(settings: Settings) -> Iterator[Finding]:
    from myapp.catalog import load_catalog

    catalog = load_catalog(settings.catalog)
    for problem in catalog.problems:
        yield Finding("catalogue", "bad", str(problem))
    if not catalog.problems:
        yield Finding("catalogue", "ok", f"{len(catalog.frameworks)} frameworks, {len(catalog.templates)} templates")


def _platform(settings: Settings) -> Iterator[Finding]:
    from urllib.parse import urlsplit

    from myapp.supervisor.up import probe

    try:
        url = (settings.root / "run" / "url").read_text().strip()
    except OSError:
        yield Finding("platform", "note", "is not running on this CUBE_HOME", "Start it: make run")
        return
    ready, why = probe(settings.model_copy(update={"host": urlsplit(url).hostname, "port": urlsplit(url).port}))
    yield Finding(
        "platform", "ok" if ready else "bad", f"ready at {url}" if ready else why, "See what `cube up` prints."
    )


def _database(settings: Settings) -> Iterator[Finding]:
    from myapp.persistence import schema

    if not settings.database_url and not (settings.root / "cube.db").exists():
        yield Finding("database", "note", "does not exist yet", "Start the platform once: make run")
        return
    revision = schema.current(settings.database)
    if revision != schema.HEAD:
        yield Finding(
            "database", "bad", f"schema {revision}, wanted {schema.HEAD}", "Bring it up to date: cube db upgrade"
        )
        return
    yield Finding("database", "ok", f"schema {revision}")
    yield from _invariants(settings)


def _invariants(settings: Settings) -> Iterator[Finding]:
    """I1 to I6, each said to hold or not, and whatever nobody takes care of."""
    from myapp.composition import create_platform
    from myapp.services.doctor import doctor

    platform = create_platform(settings, ringing=False)
    try:
        found = doctor(platform.context, platform.backends)
    finally:
        platform.database.dispose()
    broken = {one.code for one in found}
    for rule, holds in RULES.items():
        if rule not in broken:
            yield Finding(rule, "ok", holds)
    for one in found:
        yield Finding(one.code, "bad" if one.severity == "error" else "note", one.message, one.resolution)
