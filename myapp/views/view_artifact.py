"""Artifacts: files that jobs wrote, so nothing in them is trusted, not even what they say they are."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flask import Response, request
from pydantic import Field
from werkzeug.exceptions import HTTPException

from myapp.domain.errors import NotFound
from myapp.domain.permissions import Permission
from myapp.services.read_artifact import Artifact, read_artifact
from myapp.views.blueprints import api
from myapp.views.http import Call, Raw, route
from myapp.views.query import Query

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain", "application/json", "text/csv"})
_ACTIVE = ("html", "xml", "svg", "script", "pdf", "wasm", "flash", "x-shockwave")
# Browsers show a picture or a text in a document of their own, with inline styles that `default-src` would block.
_CSP_SHOWN = "sandbox; script-src 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'"
_CSP = "sandbox; default-src 'none'; frame-ancestors 'none'"
_BINARY = "application/octet-stream"


class ArtifactQuery(Query):
    list: bool = Field(False, description="For a folder: its files as JSON, instead of all of them as a zip archive.")


@route(
    api,
    "/run/<id:run_id>/artifact/<word:key>/<path:path>",
    permission=Permission.ARTIFACT_READ,
    tag="run",
    query=ArtifactQuery,
    replies={200: Raw("*/*", "The file; a folder as a zip archive."), 206: Raw("*/*", "A part of the file.")},
    errors=(404, 416),
    headers=("Range",),
)
def get_artifact(call: Call, run_id: int, key: str, path: str) -> Any:
    """Download an artifact of a task, or one file of an artifact that is a folder"""
    name, _, inner = path.partition("/")
    if not path.isprintable():
        raise NotFound("there is no such artifact", code="artifact_not_found")
    found = read_artifact(call.context, call.actor, run_id, key, name, inner=inner)
    if call.query.list:
        return {"result": {"kind": found.kind, "size": found.size, "entries": found.entries()}}
    return _download(found)


def _download(found: Artifact) -> Response:
    kind, shown = safe_type(found.media_type)
    if found.kind == "folder":
        kind, shown = "application/zip", False
    headers = {
        "Content-Disposition": disposition(found.filename, inline=shown),
        "Content-Security-Policy": _CSP_SHOWN if shown else _CSP,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=300",
    }
    if found.kind == "folder":
        body = () if request.method == "HEAD" else found.blocks()
        return Response(body, mimetype=kind, headers=headers)
    file = found.open()
    response = Response(_blocks(file), mimetype=kind, headers=headers)
    response.content_length = found.size
    response.call_on_close(file.close)
    if request.method == "HEAD":
        file.close()
        return response
    if "Range" in request.headers and file.seekable():
        response.response = _Seekable(file)
        try:
            response.make_conditional(request.environ, accept_ranges=True, complete_length=found.size)
        except HTTPException:
            file.close()
            raise
    else:
        response.headers["Accept-Ranges"] = "bytes"
    return response


class _Seekable:
    """A file as werkzeug's range wrapper wants it: an iterator of blocks that can be sought."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seekable = file.seekable
        self.seek = file.seek
        self.tell = file.tell
        self.close = file.close

    def __iter__(self) -> _Seekable:
        return self

    def __next__(self) -> bytes:
        block: bytes = self._file.read(64 * 1024)
        if not block:
            raise StopIteration
        return block


def _blocks(file: Any) -> Any:
    while block := file.read(256 * 1024):
        yield block


def safe_type(media_type: str) -> tuple[str, bool]:
    """The type to send it as, and whether a browser may show it in place."""
    kind = media_type.split(";")[0].strip().lower()
    if kind in _SHOWN:
        return kind, True
    if (
        not kind.isascii()
        or "/" not in kind
        or any(word in kind for word in _ACTIVE)
        or any(c in kind for c in ' \r\n"')
    ):
        return _BINARY, False
    return kind, False


def disposition(filename: str, *, inline: bool) -> str:
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in filename) or "artifact"
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
