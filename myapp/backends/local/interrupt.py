"""Ends every local job when the platform itself is stopped from the keyboard."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from pathlib import Path

from myapp.backends.local import leftovers
from myapp.backends.local.backend import request_stop
from myapp.backends.local.folder import Folder, read_json
from myapp.backends.local.identity import Identity

MARGIN_S = 5.0


def interrupt_all(home: Path, grace_s: float, node: str | None = None) -> int:
    """Stop all live jobs under `home`, cause INTERRUPTED, and wait until their processes are gone.

    Kills after `grace_s` plus a margin for the shims to report. Returns how many shims lived. Never raises for one
    damaged attempt.
    """
    jobs = f"{os.path.abspath(home)}/jobs"
    node = node or socket.gethostname()
    alive: list[tuple[Identity, list[str], int]] = []
    for name in _names(jobs):
        folder = Folder(jobs, name)
        try:
            spec = read_json(folder.at("spec.json"))
            if spec is None or spec["node"] != node:
                continue
            found = [shim for rank in spec["ranks"] if (shim := _open(folder, rank)) is not None]
            if found:
                alive += found
                request_stop(folder, len(spec["ranks"]), "interrupted", grace_s)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    pending = {fd: (identity, groups) for identity, groups, fd in alive}
    _wait(set(pending), grace_s + MARGIN_S)
    for fd, (identity, groups) in pending.items():
        if not _ended(fd):
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            _wait({fd}, MARGIN_S)
            leftovers.kill(identity, groups)
        os.close(fd)
    return len(alive)


def _names(jobs: str) -> list[str]:
    try:
        return [name for name in os.listdir(jobs) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _open(folder: Folder, rank: dict[str, object]) -> tuple[Identity, list[str], int] | None:
    identity = Identity.parse(read_json(folder.rank(int(str(rank["rank"])), "identity.json")))
    fd = identity.open() if identity else None
    if identity is None or fd is None:
        return None
    groups = rank["cgroups"]
    return identity, [group["dir"] for group in groups] if isinstance(groups, list) else [], fd


def _ended(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _wait(fds: set[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    waiting = set(fds)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left * 1000):
            poller.unregister(fd)
            waiting.discard(fd)
