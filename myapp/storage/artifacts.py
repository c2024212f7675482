"""What tasks publish: files and folders, written once, read by downstream tasks and by people.

A job wrote the source, so nothing about it is trusted: no link is followed, no device opened, no name used unchecked.
"""

from __future__ import annotations

import json
import mimetypes
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from myapp.domain.errors import Invalid, NotFound, TooLarge
from myapp.domain.naming import shown
from myapp.storage.paths import MAX_PATH, attempt_prefix, bad_segment, check_name, check_relative
from myapp.storage.remote import RemoteStore

FOLDER = "application/x-directory"
MAX_ENTRIES = 100_000
MAX_DEPTH = 64
_BLOCK = 256 * 1024


@dataclass(frozen=True)
class Stored:
    """A row of `output`: `path` relative to the store, `size` in bytes (a folder's: of all its files)."""

    path: str
    size: int
    media_type: str


@dataclass(frozen=True)
class Entry:
    """One file of a folder: `path` relative to the folder."""

    path: str
    size: int


class ArtifactStore:
    """A local folder, or, with `url`, an object store reached by fsspec."""

    def __init__(self, root: str | Path, url: str = "") -> None:
        self.root = Path(root).absolute()
        self._remote = RemoteStore(url, "artifacts") if url else None

    def put(self, project: str, run_id: int, task: str, attempt_no: int, name: str, source_path: str) -> Stored:
        """Keep a file or folder under `<project>/<run>/<task>/<attempt>/<name>`; whole or not at all; safe to repeat.

        On one filesystem a file that has no other name is linked, not copied. Raises Invalid for a bad name or a source
        that is neither, TooLarge for a folder of too many files, OSError when there is no room.
        """
        path = f"{attempt_prefix(project, run_id, task, attempt_no)}/{check_name(name)}"
        if len(path.encode()) > MAX_PATH:
            raise Invalid(f"the artifact's name {shown(name)} is too long", code="bad_artifact_name")
        if self._remote is not None:
            return self._put_remote(path, source_path, name)
        target = self.root / path
        if not os.path.lexists(target):
            self._put_local(target, source_path, name)
        return _describe(target, path)

    def local_path(self, path: str) -> str | None:
        """The absolute path of an artifact on this machine's disk, for jobs to read; None when it is elsewhere."""
        if self._remote is not None:
            return None
        target = self.root / check_relative(path)
        return str(target) if _is_inside(target, self.root) else None

    def fetch(self, path: str, target: str) -> None:
        """Copy an artifact to a path on this machine. Raises NotFound."""
        entries = self.entries(path)
        if entries is None:
            with self.open(path) as reader, open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer, _BLOCK)
            return
        for entry in entries:
            place = Path(target) / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with self.open(path, entry.path) as reader, open(place, "wb") as writer:
                shutil.copyfileobj(reader, writer, _BLOCK)
        Path(target).mkdir(parents=True, exist_ok=True)

    def open(self, path: str, inner: str = "") -> BinaryIO:
        """An artifact, or the file `inner` of a folder, for reading. Raises NotFound for anything but a plain file."""
        whole = check_relative(f"{path}/{inner}" if inner else path)
        if self._remote is not None:
            try:
                return self._remote.filesystem.open(self._remote.key(whole), "rb")  # type: ignore[no-any-return]
            except (FileNotFoundError, IsADirectoryError) as error:
                raise NotFound(f"there is no artifact {shown(whole)}") from error
        target = self.root / whole
        try:
            if not _is_inside(target, self.root):
                raise FileNotFoundError
            descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise FileNotFoundError
        except OSError as error:
            raise NotFound(f"there is no artifact {shown(whole)}") from error
        return os.fdopen(descriptor, "rb")

    def iterate(self, path: str, inner: str = "") -> Iterator[bytes]:
        """The bytes of one file in blocks. Raises NotFound before the first block."""
        file = self.open(path, inner)

        def blocks() -> Iterator[bytes]:
            with file:
                while block := file.read(_BLOCK):
                    yield block

        return blocks()

    def size(self, path: str, inner: str = "") -> int:
        """Bytes of one file. Raises NotFound."""
        with self.open(path, inner) as file:
            return file.seek(0, os.SEEK_END)

    def entries(self, path: str) -> list[Entry] | None:
        """The files of a folder in the order of their paths; None when the artifact is a file. Raises NotFound."""
        check_relative(path)
        if self._remote is not None:
            manifest = self._remote.read(f"{path}{_MANIFEST}")
            if manifest is not None:
                return [Entry(str(e[0]), int(e[1])) for e in json.loads(manifest)]
            if self._remote.size(path) is None:
                raise NotFound(f"there is no artifact {shown(path)}")
            return None
        target = self.root / path
        if not os.path.lexists(target) or not _is_inside(target, self.root):
            raise NotFound(f"there is no artifact {shown(path)}")
        if not target.is_dir():
            return None
        return sorted((Entry(inner, size) for inner, size, _ in _walk(target)), key=lambda e: e.path)

    def delete_run(self, project: str, run_id: int) -> None:
        """Delete the artifacts of a run that is being deleted."""
        prefix = attempt_prefix(project, run_id, "x", 0).rsplit("/", 2)[0]
        shutil.rmtree(self.root / prefix, ignore_errors=True)
        if self._remote is not None:
            self._remote.delete(prefix)

    def _put_local(self, target: Path, source: str, name: str) -> None:
        kind = _kind(source, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.parent / f".{uuid.uuid4().hex}.part"
        try:
            if kind == "file":
                _keep(source, part)
            else:
                part.mkdir()
                for inner, _, absolute in _walk(Path(source)):
                    place = part / inner
                    place.parent.mkdir(parents=True, exist_ok=True)
                    _keep(absolute, place)
            try:
                part.rename(target)
            except OSError:
                if not os.path.lexists(target):  # else somebody else was first, with the same
                    raise
        finally:
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)

    def _put_remote(self, path: str, source: str, name: str) -> Stored:
        assert self._remote is not None
        if _kind(source, name) == "file":
            self._remote.put_file(source, path)
            return Stored(path, Path(source).stat(follow_symlinks=False).st_size, _media_type(path))
        listing: list[tuple[str, int]] = []
        for inner, size, absolute in list(_walk(Path(source))):
            self._remote.put_file(absolute, f"{path}/{inner}")
            listing.append((inner, size))
        self._remote.put_bytes(json.dumps(sorted(listing)).encode(), f"{path}{_MANIFEST}")
        return Stored(path, sum(size for _, size in listing), FOLDER)


_MANIFEST = "\x7ffiles.json"  # beside the folder, under a name that no artifact can have


def _kind(source: str, name: str) -> str:
    try:
        mode = os.lstat(source).st_mode
    except FileNotFoundError as error:
        raise NotFound(f"the artifact {shown(name)} was not written") from error
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    raise Invalid(
        f"the artifact {shown(name)} is a link or a special file",
        code="bad_artifact",
        resolution="write a plain file or a folder into $CUBE_OUTPUT_DIR/artifacts",
    )


def _walk(folder: Path) -> Iterator[tuple[str, int, str]]:
    """(relative path, size, absolute path) of every plain file below a folder; links and special files are skipped."""
    stack: list[tuple[str, str, int]] = [(str(folder), "", 0)]
    count = 0
    while stack:
        absolute, relative, depth = stack.pop()
        with os.scandir(absolute) as entries:
            for entry in entries:
                count += 1
                if count > MAX_ENTRIES:
                    raise TooLarge(
                        f"the folder has more than {MAX_ENTRIES} entries",
                        code="too_many_files",
                        resolution="pack it into an archive and publish that",
                    )
                inner = f"{relative}{entry.name}"
                if bad_segment(entry.name) not in (None, "starts with a dot"):
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield inner, entry.stat(follow_symlinks=False).st_size, entry.path
                elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                    stack.append((entry.path, f"{inner}/", depth + 1))


def _keep(source: str, target: Path) -> None:
    """Link a file, or copy it when it is on another filesystem or the job may still hold it by another name."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as reader:
        found = os.fstat(reader.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Invalid(f"{shown(source)} is not a plain file", code="bad_artifact")
        if found.st_nlink == 1:
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError:
                pass
            else:
                target.chmod(0o644)
                return
        with open(target, "xb") as writer:
            shutil.copyfileobj(reader, writer, 1024 * 1024)


def _describe(target: Path, path: str) -> Stored:
    if not target.is_dir():
        return Stored(path, target.stat(follow_symlinks=False).st_size, _media_type(path))
    return Stored(path, sum(size for _, size, _ in _walk(target)), FOLDER)


def _media_type(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _is_inside(target: Path, root: Path) -> bool:
    """Whether no link on the way leads elsewhere."""
    return Path(os.path.realpath(target)) == Path(os.path.realpath(root)) / target.relative_to(root)


def zipped(store: ArtifactStore, path: str) -> Iterator[bytes]:
    """A folder as a zip archive, made while it is read: nothing is kept in memory or on disk."""
    entries = store.entries(path) or []
    return _zip_blocks(store, path, entries)


def _zip_blocks(store: ArtifactStore, path: str, entries: list[Entry]) -> Iterator[bytes]:
    import zipfile

    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=1) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.path)
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                for block in store.iterate(path, entry.path):
                    member.write(block)
                    yield from sink.taken()
    yield from sink.taken()


class _Sink:
    """A file that can only be written to, so that zipfile streams."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        block = bytes(data)
        self._parts.append(block)
        self._at += len(block)
        return len(block)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        return None

    def close(self) -> None:
        return None

    def taken(self) -> Iterator[bytes]:
        parts, self._parts = self._parts, []
        yield from (part for part in parts if part)
