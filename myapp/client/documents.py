"""YAML files with one or more documents: split, not rewritten, so that the server can name the line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myapp.client.errors import USAGE, ClientError
from myapp.utils.yamlhint import explain

KINDS = {"Pipeline": "/pipeline/", "JobTemplate": "/job_template/", "AIJob": "/job/"}
_MOST_BYTES = 5 * 1024 * 1024
_DEEPEST = 64


@dataclass(frozen=True)
class Document:
    """`text` is the document's own part of `source`, starting at `line` (1-based)."""

    source: str
    line: int
    text: str
    kind: str
    name: str

    @property
    def label(self) -> str:
        return f"{self.kind or 'document'} {self.name or '(without a name)'}"

    @property
    def path(self) -> str:
        """Where it is posted to. Raises ClientError when its kind is not known."""
        if self.kind not in KINDS:
            said = f"kind {self.kind!r} is not known" if self.kind else "the document has no `kind`"
            raise ClientError(f"{self.source}, line {self.line}: {said}", f"Write one of: {', '.join(KINDS)}.")
        return KINDS[self.kind]

    def in_file(self, problem: Any) -> Any:
        """A problem the server found, its line counted in the file."""
        if isinstance(problem, dict) and isinstance(problem.get("line"), int):
            return {**problem, "line": problem["line"] + self.line - 1}
        return problem


def read(files: list[str]) -> list[Document]:
    """All documents of these files, in order; `-` is the standard input."""
    return [document for name in files for document in split(*_content(name))]


def split(source: str, text: str) -> list[Document]:
    """The documents of a file. Raises ClientError when it is not YAML, or is empty."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = []
    try:
        starts = _starts(source, yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise _not_yaml(source, error, text) from None
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + lines[-1:]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        part = "".join(lines[start:end])
        try:
            kind, name, empty = _head(part, loader)
        except yaml.YAMLError as error:
            raise _not_yaml(source, error, part, start) from None
        if not empty:
            found.append(Document(source, start + 1, part, kind, name))
    if not found:
        raise ClientError(f"{source} holds no document", "See the examples in myapp/example/pipeline.")
    return found


def _starts(source: str, events: Any) -> list[int]:
    """The line (from 0) on which each document starts."""
    import yaml

    starts, depth = [], 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            starts.append(event.start_mark.line if event.start_mark else 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise ClientError(f"{source}, line {line}: nested deeper than {_DEEPEST} levels", "Make it flatter.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return starts


def _head(part: str, loader: Any) -> tuple[str, str, bool]:
    """kind, metadata.name, and whether the document is empty: read from the top of the tree, nothing is built."""
    import yaml

    node = yaml.compose(part, Loader=loader)
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        return "", "", True
    kind, metadata = _scalar(_child(node, "kind")), _child(node, "metadata")
    return kind, _scalar(_child(metadata, "name")), False


def _child(node: Any, key: str) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                return value
    return None


def _scalar(node: Any) -> str:
    import yaml

    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _content(name: str) -> tuple[str, str]:
    source = "standard input" if name == "-" else name
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1) if name == "-" else _read_file(Path(name))
    except OSError as error:
        raise ClientError(
            f"{source} cannot be read: {error.strerror or error}", "Check the path.", exit_code=USAGE
        ) from None
    if len(data) > _MOST_BYTES:
        raise ClientError(
            f"{source} is larger than {_MOST_BYTES // 1024 // 1024} MiB", "Split it; data does not belong in it."
        )
    try:
        return source, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ClientError(f"{source} is not UTF-8 text (byte {error.start})", "Save it as UTF-8.") from None


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _not_yaml(source: str, error: Any, text: str, before: int = 0) -> ClientError:
    """`before`: the lines of the file that precede `text`."""
    said = explain(error, text)
    if said is None:
        return ClientError(f"{source} is not YAML: {str(error)[:200]}", "Is it a text file?")
    place = f"line {said.line + before}, column {said.column}"
    remedy = said.remedy[0].upper() + said.remedy[1:]
    return ClientError(f"{source} is not YAML: {place}: {said.message}\n{said.excerpt}", remedy)
