"""Files of the catalogue: bounded reading, YAML with line numbers, hashes, and problems that name file and line."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from myapp.catalog.yamldoc import LoadedDocument, load_document
from myapp.domain.errors import CubeError, Problem

MAX_FILE = 1024 * 1024
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class CatalogProblem:
    """`file` is relative to the catalogue's folder; the line, where known, is the problem's."""

    file: str
    problem: Problem

    def __str__(self) -> str:
        p = self.problem
        where = self.file if p.line is None else f"{self.file}:{p.line}"
        field = f" {p.field}:" if p.field else ""
        return f"{where}:{field} {p.message}" + (f" ({p.resolution})" if p.resolution else "")


class Unreadable(Exception):
    """A file that cannot be part of the catalogue. `problem` says why."""

    def __init__(self, message: str, *, line: int | None = None, resolution: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(code="unreadable", message=message, line=line, resolution=resolution)


def read_text(path: Path, within: Path) -> str:
    """A regular UTF-8 file of at most 1 MiB that lies, links followed, within a folder. Raises Unreadable."""
    if not path.resolve().is_relative_to(within.resolve()):
        raise Unreadable("lies outside the catalogue")
    try:
        if not path.is_file():
            raise Unreadable("is missing" if not path.exists() else "is not a regular file")
        if path.stat().st_size > MAX_FILE:
            raise Unreadable(f"is larger than {MAX_FILE // 1024} KiB")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 text (byte {error.start})", resolution="save it as UTF-8") from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None


def parse_yaml(text: str) -> LoadedDocument:
    """The text's one document, with its lines. Raises Unreadable with the line."""
    try:
        return load_document(text)
    except CubeError as error:
        line = error.problems[0].line if error.problems else None
        raise Unreadable(error.message, line=line, resolution=error.resolution) from None


def check_python(text: str) -> None:
    """Raises Unreadable with the line of a syntax error."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise Unreadable(f"is not valid Python: {getattr(error, 'msg', error)}", line=line) from None


def digest(files: Mapping[str, str]) -> str:
    """SHA-256 over names and contents, each with its length, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name].encode()):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return total.hexdigest()


def signature(paths: Iterable[Path]) -> Signature:
    """What changes when any of the files does: names, times, sizes and inodes; a missing file counts as zeros."""
    rows = []
    for path in paths:
        try:
            found = path.stat()
            rows.append((str(path), found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            rows.append((str(path), 0, 0, 0))
    return tuple(rows)
