"""Tells which attempts have changed, without asking: shims ring a bell, and the kernel tells when one dies."""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from myapp.backends.local.folder import Folder, read_json
from myapp.backends.local.identity import Identity, boot_id, pid_namespace

RESCAN_S = 60.0          # the net under lost datagrams
FILES_WANTED = 65536


class LocalWatcher:
    """For one watch process per CUBE_HOME and node: the latest to start takes the bell over. Not thread-safe.

    `run/bell.sock` is a datagram socket: `<attempt> <event> <object> <rank> <pid> <start time>`, event armed, stage or
    ended. Each armed shim is followed by a pidfd, so that one killed without a word is noticed as well.
    """

    def __init__(self, home: Path, node: str | None = None) -> None:
        self._home = os.path.abspath(home)
        self._node = node or socket.gethostname()
        self._run = f"{self._home}/run"
        self._jobs = f"{self._home}/jobs"
        for folder in (self._run, self._jobs):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        _raise_file_limit()
        self._poll = select.epoll()
        self._bell = self._bind()
        self._poll.register(self._bell.fileno(), select.EPOLLIN)
        self._attempts: dict[int, tuple[int, tuple[int, int]]] = {}      # pidfd -> attempt, (pid, start time)
        self._followed: dict[tuple[int, int], int] = {}                  # (pid, start time) -> pidfd
        self._next_scan = 0.0
        self._early: set[int] = set()
        self._scan()

    def fileno(self) -> int:
        """Readable when `events` has something to say."""
        return self._poll.fileno()

    def close(self) -> None:
        for fd in self._attempts:
            os.close(fd)
        self._attempts.clear()
        self._followed.clear()
        self._poll.close()
        self._bell.close()

    def events(self, timeout: float) -> list[int]:
        """Ids of attempts to look at: a shim of theirs ended or entered another stage.

        Waits at most `timeout` seconds.
        """
        if time.monotonic() >= self._next_scan:
            self._scan()
        changed, self._early = self._early, set()
        wait = 0.0 if changed else min(timeout, max(self._next_scan - time.monotonic(), 0.0))
        try:
            ready = self._poll.poll(wait)
        except InterruptedError:
            ready = []
        for fd, _ in ready:
            if fd == self._bell.fileno():
                changed.update(self._listen())
            elif fd in self._attempts:
                attempt, _ = self._attempts[fd]
                self._forget(fd)
                changed.add(attempt)
        if self._take_note():
            self._scan()
            changed |= self._early
            self._early = set()
        return sorted(changed)

    def __iter__(self) -> Iterator[int]:
        """Every change, for ever."""
        while True:
            yield from self.events(RESCAN_S)

    def _take_note(self) -> bool:
        """Whether a shim found the bell too busy: then something was missed."""
        try:
            os.unlink(f"{self._run}/bell.missed")
            return True
        except FileNotFoundError:
            return False

    def _bind(self) -> socket.socket:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        path = f"{self._run}/bell.sock"
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        folder = os.open(self._run, os.O_PATH | os.O_CLOEXEC)        # a socket's address holds only 107 bytes
        try:
            bell.bind(path if len(path) <= 100 else f"/proc/self/fd/{folder}/bell.sock")
        finally:
            os.close(folder)
        os.chmod(path, 0o600)
        return bell

    def _listen(self) -> Iterator[int]:
        while True:
            try:
                words = self._bell.recv(1024).split()
            except (BlockingIOError, InterruptedError):
                return
            try:
                attempt, event = int(words[0]), words[1]
                process = (int(words[4]), int(words[5]))
            except (IndexError, ValueError):
                continue
            if event == b"armed":
                if not self._follow(attempt, process[0], process[1]):
                    yield attempt
                continue
            if event == b"ended" and process in self._followed:
                self._forget(self._followed[process])
            yield attempt

    def _scan(self) -> None:
        """Follow every live shim not followed yet. Attempts with a dead one are reported once."""
        first, self._next_scan = self._next_scan == 0.0, time.monotonic() + RESCAN_S
        with os.scandir(self._jobs) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        for name in names:
            folder = Folder(self._jobs, name)
            try:
                spec = read_json(folder.at("spec.json"))
                if spec is None or spec["node"] != self._node:
                    continue
                for rank in range(len(spec["ranks"])):
                    identity = Identity.parse(read_json(folder.rank(rank, "identity.json")))
                    if identity is None or (identity.pid, identity.start_time) in self._followed:
                        continue
                    if not self._follow(spec["attempt_id"], identity.pid, identity.start_time, identity) or not first:
                        self._early.add(spec["attempt_id"])
            except (OSError, ValueError, KeyError):
                continue

    def _follow(self, attempt: int, pid: int, start: int, identity: Identity | None = None) -> bool:
        """False when the process is gone already."""
        if (pid, start) in self._followed:
            return True
        identity = identity or Identity(pid, start, boot_id(), self._node, pid_namespace(), "")
        try:
            fd = identity.open()
        except OSError:
            return True              # out of descriptors: the sweep will look at it
        if fd is None:
            return False
        self._poll.register(fd, select.EPOLLIN)
        self._attempts[fd] = (attempt, (pid, start))
        self._followed[(pid, start)] = fd
        return True

    def _forget(self, fd: int) -> None:
        _, process = self._attempts.pop(fd)
        self._followed.pop(process, None)
        self._poll.unregister(fd)
        os.close(fd)


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
