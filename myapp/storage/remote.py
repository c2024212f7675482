"""The object store behind a `CUBE_STORAGE_URL`. fsspec is imported only when there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from myapp.domain.errors import Unavailable

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class RemoteStore:
    """One prefix of one object store. Keys are relative to it."""

    def __init__(self, url: str, prefix: str, **options: Any) -> None:
        from fsspec.core import url_to_fs

        try:
            filesystem, root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise Unavailable(
                f"the storage URL cannot be used: {error}",
                resolution="install the package it names, or correct CUBE_STORAGE_URL",
            ) from error
        self.filesystem: AbstractFileSystem = filesystem
        self.root = f"{root.rstrip('/')}/{prefix}"

    def key(self, path: str) -> str:
        return f"{self.root}/{path}"

    def put_file(self, source: str, path: str) -> None:
        """Upload one file; an object appears whole or not at all."""
        target = self.key(path)
        self.filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        self.filesystem.put_file(source, target)

    def put_bytes(self, data: bytes, path: str) -> None:
        target = self.key(path)
        self.filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        self.filesystem.pipe_file(target, data)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Bytes `start` to `end` of an object; None when there is none."""
        try:
            return bytes(self.filesystem.cat_file(self.key(path), start=start, end=end))
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            return int(self.filesystem.info(self.key(path))["size"])
        except FileNotFoundError:
            return None

    def get_file(self, path: str, target: str) -> None:
        self.filesystem.get_file(self.key(path), target)

    def delete(self, path: str) -> None:
        """Delete everything below a path; nothing there is fine."""
        try:
            self.filesystem.rm(self.key(path), recursive=True)
        except FileNotFoundError:
            return
