"""Port numbers for jobs, handed out without clashes between the jobs of one machine's CUBE_HOME.

`run/ports/<number>` (created exclusively) holds the name of its owner; `run/ports/<object_name>.json` holds all of one
job's, so that a repeated question gets the same answer.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
import zlib

from myapp.backends.local.folder import read_json
from myapp.domain.ports import Transient

ABANDONED_S = 3600.0


class PortBook:
    def __init__(self, run_dir: str, jobs: str, span: tuple[int, int]) -> None:
        self._folder = f"{run_dir}/ports"
        self._jobs = jobs
        self._first, self._last = span

    def reserve(self, owner: str, names: tuple[str, ...]) -> dict[str, int]:
        """A free port for each name; the same ones when asked again. Raises Transient when none is left."""
        if not names:
            return {}
        record = f"{self._folder}/{owner}.json"
        kept = read_json(record)
        if kept is not None and set(names) <= set(kept):
            return {name: int(kept[name]) for name in names}
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        taken: dict[str, int] = dict(kept or {})
        fresh: list[int] = []
        try:
            for name in names:
                if name not in taken:
                    taken[name] = self._take(owner)
                    fresh.append(taken[name])
            temporary = f"{record}.{uuid.uuid4().hex}"
            with open(temporary, "w") as f:
                json.dump(taken, f)
            try:
                if kept is None:
                    os.link(temporary, record)
                    os.unlink(temporary)
                else:
                    os.replace(temporary, record)
            except FileExistsError:                 # another asker was first: its answer counts
                os.unlink(temporary)
                self._give_back(fresh)
                return self.reserve(owner, names)
        except (OSError, Transient) as error:
            self._give_back(fresh)
            if isinstance(error, Transient):
                raise
            raise Transient(f"ports could not be reserved: {error}") from error
        return {name: taken[name] for name in names}

    def release(self, owner: str) -> None:
        record = f"{self._folder}/{owner}.json"
        try:
            kept = read_json(record)
            if kept is None:
                return
            self._give_back([int(port) for port in kept.values()])
            os.unlink(record)
        except (FileNotFoundError, ValueError):
            pass

    def _take(self, owner: str) -> int:
        count = self._last - self._first + 1
        start = zlib.crc32(owner.encode()) % count
        for step in range(count):
            port = self._first + (start + step) % count
            if self._claim(port, owner):
                if _free(port):
                    return port
                self._give_back([port])
        raise Transient(f"no port is free between {self._first} and {self._last}", retry_after=10)

    def _claim(self, port: int, owner: str) -> bool:
        path = f"{self._folder}/{port}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if self._abandoned(path):
                self._give_back([port])
            return False
        with open(fd, "w") as f:
            f.write(owner)
        return True

    def _abandoned(self, path: str) -> bool:
        """Held for an hour for a job that has no folder: its owner died between asking and arming."""
        try:
            if time.time() - os.stat(path).st_mtime < ABANDONED_S:
                return False
            with open(path) as f:
                return not os.path.exists(f"{self._jobs}/{f.read() or '?'}")
        except OSError:
            return False

    def _give_back(self, ports: list[int]) -> None:
        for port in ports:
            try:
                os.unlink(f"{self._folder}/{port}")
            except FileNotFoundError:
                pass


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False
