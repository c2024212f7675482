"""What a task published: looked at, listed, downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from myapp.domain.errors import NotFound
from myapp.domain.naming import shown
from myapp.domain.permissions import Actor, Permission
from myapp.persistence.repositories import results
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.read_runs import require_run
from myapp.storage.artifacts import FOLDER, ArtifactStore, zipped


@dataclass(frozen=True)
class Artifact:
    """`kind` file or folder; `inner`: the file of a folder that was asked for; `size` in bytes (a folder's: its files).

    `filename` is a plain name for a download. `media_type` is guessed from the name and must not be trusted: serve it
    with `nosniff` and as an attachment unless it is known to be harmless.
    """

    kind: str
    name: str
    filename: str
    media_type: str
    size: int
    path: str
    inner: str
    store: ArtifactStore

    def blocks(self) -> Iterator[bytes]:
        """The file's bytes; a folder's as a zip archive."""
        if self.kind == "folder":
            return zipped(self.store, self.path)
        return self.store.iterate(self.path, self.inner)

    def open(self) -> BinaryIO:
        """A file, to be read from any place. Raises NotFound for a folder."""
        return self.store.open(self.path, self.inner)

    def entries(self) -> list[dict[str, Any]]:
        """The files of a folder; empty for a file."""
        if self.kind != "folder":
            return []
        return [{"path": e.path, "size": e.size} for e in self.store.entries(self.path) or []]


def read_artifact(ctx: Context, actor: Actor, run_id: int, task_key: str, name: str, *, inner: str = "") -> Artifact:
    """The artifact `name` of a task, or the file `inner` in it when it is a folder. Raises NotFound, Forbidden."""
    with ctx.database.read() as connection:
        require_run(connection, actor, run_id, Permission.ARTIFACT_READ)
        row = results.find_output(connection, TenantScope.of(actor), run_id, task_key, name)
    if row is None or row["kind"] != "artifact":
        raise NotFound(
            f"task {shown(task_key)} of run {run_id} has no artifact {shown(name)}", code="artifact_not_found"
        )
    path, store = str(row["path"]), ctx.artifacts
    if row["media_type"] == FOLDER and inner:
        filename = inner.rsplit("/", 1)[-1]
        return Artifact("file", name, filename, media_type_of(filename), store.size(path, inner), path, inner, store)
    if inner:
        raise NotFound(f"artifact {shown(name)} is a file: it holds nothing", code="artifact_not_found")
    if row["media_type"] == FOLDER:
        return Artifact("folder", name, f"{name}.zip", FOLDER, int(row["size"] or 0), path, "", store)
    return Artifact("file", name, name, str(row["media_type"]), store.size(path), path, "", store)


def media_type_of(filename: str) -> str:
    import mimetypes

    return mimetypes.guess_type(filename)[0] or "application/octet-stream"
