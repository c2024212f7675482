"""The logs of attempts: one file per rank, growing on this machine while the attempt lives, sealed when it has ended.

Readers use byte offsets and never notice the difference. Bodies are never in SQL.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from myapp.domain.ports import LogSlice
from myapp.storage.paths import attempt_prefix
from myapp.storage.remote import RemoteStore

MAX_READ = 1024 * 1024
_SEAL = "sealed.json"
_MAX_RANK = 1_000_000


@dataclass(frozen=True)
class LogObject:
    """A sealed log of one rank: a row of `log_chunk`. Bytes `byte_start` to `byte_end` of it are in `object_key`."""

    rank: int
    seq: int
    byte_start: int
    byte_end: int
    object_key: str


class LogStore:
    """`root`: folder of the growing logs, and without `url` of the sealed ones; `url`: fsspec URL for sealed logs."""

    def __init__(self, root: str | Path, url: str = "") -> None:
        self.root = Path(root).absolute()
        self._remote = RemoteStore(url, "logs") if url else None

    def live_dir(self, project: str, run_id: int, task: str, attempt_no: int) -> str:
        """The folder in which the attempt's ranks write `rank-<n>.log`; made if need be."""
        folder = self._folder(project, run_id, task, attempt_no)
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def seal(
        self, project: str, run_id: int, task: str, attempt_no: int, logs: Mapping[int, str] | None = None
    ) -> list[LogObject]:
        """Keep the logs for good: nothing more will be written. Safe to repeat; the same call answers the same.

        `logs`: rank -> path of its whole log, when a backend kept them elsewhere; default: those in `live_dir`.
        Raises OSError when there is no room: call it again later.
        """
        folder = self._folder(project, run_id, task, attempt_no)
        for rank, source in sorted((logs or {}).items()):
            self._adopt(source, folder, rank)
        sizes = _live_sizes(folder)
        prefix = attempt_prefix(project, run_id, task, attempt_no)
        if self._remote is not None:
            sizes = self._upload(folder, prefix, sizes)
        elif sizes:
            _mark(folder / _SEAL, sizes)
        return [LogObject(rank, 0, 0, size, f"{prefix}/{_file(rank)}") for rank, size in sorted(sizes.items())]

    def read(
        self, project: str, run_id: int, task: str, attempt_no: int, rank: int, offset: int, limit: int
    ) -> LogSlice:
        """Up to `limit` bytes from `offset`. An offset beyond the end is answered from the end.

        `eof` is True only when the log is sealed and read to its end; one that does not exist yet is empty, not ended.
        """
        if not 0 <= rank <= _MAX_RANK:
            return LogSlice(b"", 0, 0, True)
        limit = max(0, min(limit, MAX_READ))
        folder = self._folder(project, run_id, task, attempt_no)
        sealed = _sealed(_read_file(folder / _SEAL))
        local = _slice(folder / _file(rank), max(0, offset), limit, sealed=sealed is not None)
        if local is not None:
            return local
        if sealed is None and self._remote is not None:
            prefix = attempt_prefix(project, run_id, task, attempt_no)
            sealed = _sealed(self._remote.read(f"{prefix}/{_SEAL}"))
            if sealed is not None and rank in sealed:
                return self._remote_slice(prefix, rank, sealed[rank], max(0, offset), limit)
        return LogSlice(b"", 0, 0, sealed is not None)

    def size(self, project: str, run_id: int, task: str, attempt_no: int, rank: int) -> int:
        """Bytes of the log so far; 0 when there is none."""
        folder = self._folder(project, run_id, task, attempt_no)
        try:
            return (folder / _file(rank)).stat(follow_symlinks=False).st_size
        except OSError:
            pass
        if self._remote is None:
            return 0
        prefix = attempt_prefix(project, run_id, task, attempt_no)
        return (_sealed(self._remote.read(f"{prefix}/{_SEAL}")) or {}).get(rank, 0)

    def ranks(self, project: str, run_id: int, task: str, attempt_no: int) -> list[int]:
        """The ranks that have a log."""
        found = _live_sizes(self._folder(project, run_id, task, attempt_no))
        if not found and self._remote is not None:
            prefix = attempt_prefix(project, run_id, task, attempt_no)
            found = _sealed(self._remote.read(f"{prefix}/{_SEAL}")) or {}
        return sorted(found)

    def delete_run(self, project: str, run_id: int) -> None:
        """Delete the logs of a run that is being deleted."""
        prefix = attempt_prefix(project, run_id, "x", 0).rsplit("/", 2)[0]
        shutil.rmtree(self.root / prefix, ignore_errors=True)
        if self._remote is not None:
            self._remote.delete(prefix)

    def _folder(self, project: str, run_id: int, task: str, attempt_no: int) -> Path:
        return self.root / attempt_prefix(project, run_id, task, attempt_no)

    def _adopt(self, source: str, folder: Path, rank: int) -> None:
        """Bring a log that a backend kept elsewhere into the folder, whole or not at all."""
        target = folder / _file(rank)
        if Path(source).absolute() == target or target.exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{target.name}.part"
        try:
            with _open_plain(source) as reader, open(part, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1024 * 1024)
        except FileNotFoundError:
            return
        part.replace(target)

    def _upload(self, folder: Path, prefix: str, sizes: dict[int, int]) -> dict[int, int]:
        """Logs first, then the list of them, then the local ones go: a crash in between is repaired by repeating it."""
        assert self._remote is not None
        done = _sealed(self._remote.read(f"{prefix}/{_SEAL}"))
        if done is None:
            for rank in sizes:
                self._remote.put_file(str(folder / _file(rank)), f"{prefix}/{_file(rank)}")
            if sizes:
                self._remote.put_bytes(json.dumps(sizes).encode(), f"{prefix}/{_SEAL}")
            done = sizes
        shutil.rmtree(folder, ignore_errors=True)
        return done

    def _remote_slice(self, prefix: str, rank: int, size: int, offset: int, limit: int) -> LogSlice:
        assert self._remote is not None
        start = min(offset, size)
        end = min(start + limit, size)
        data = (self._remote.read(f"{prefix}/{_file(rank)}", start, end) or b"") if end > start else b""
        return LogSlice(data, start, start + len(data), start + len(data) >= size)


def _file(rank: int) -> str:
    return f"rank-{int(rank)}.log"


def _live_sizes(folder: Path) -> dict[int, int]:
    sizes: dict[int, int] = {}
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return sizes
    for entry in entries:
        number = entry.name.removeprefix("rank-").removesuffix(".log")
        if entry.name == f"rank-{number}.log" and number.isdecimal() and entry.is_file(follow_symlinks=False):
            sizes[int(number)] = entry.stat(follow_symlinks=False).st_size
    return sizes


def _mark(path: Path, sizes: dict[int, int]) -> None:
    """Written only so that readers know the end without asking the database: no room for it is no failure."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps(sizes))
        part.replace(path)
    except OSError:
        return


def _sealed(data: bytes | None) -> dict[int, int] | None:
    if data is None:
        return None
    try:
        return {int(rank): int(size) for rank, size in json.loads(data).items()}
    except (ValueError, AttributeError):
        return None


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _open_plain(path: str | Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    return os.fdopen(descriptor, "rb")


def _slice(path: Path, offset: int, limit: int, *, sealed: bool) -> LogSlice | None:
    """None when there is no such file (or it is not a plain one)."""
    try:
        with _open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = min(offset, size)
            file.seek(start)
            data = file.read(limit)
    except OSError:
        return None
    return LogSlice(data, start, start + len(data), sealed and start + len(data) >= size)
