"""YAML and JSON documents from strangers: bounded, without surprises, with line numbers.

The YAML read here is the plain part of YAML 1.2: `true`/`false`/`null`, decimal and `0x` numbers, text. So `yes`, `no`,
`on`, `off`, dates, `12:30`, `1_000` and `010` are text, as written. Keys are always text (`on:` is "on", `137:` is
"137"). Anchors, aliases, tags, merge keys, duplicate keys, control characters, `.inf` and `.nan` are refused. JSON has
the same limits. Nothing here recurses, so depth cannot exhaust the stack.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from myapp.domain.errors import Invalid, Problem, TooLarge
from myapp.utils.yamlhint import explain

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_BYTES = 5 * 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 1_000_000
MAX_DOCUMENTS = 1000
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_NUMERIC_START = frozenset("+-.0123456789")
_STEP = re.compile(r"\[(\d{1,9})\]|([^.\[\]]+)")


@dataclass(frozen=True)
class LoadedDocument:
    """One document. `line(path)` finds the 1-based line of a dotted path such as `spec.tasks[2].args.script`."""

    value: dict[str, Any]
    start: int = 1
    _children: Mapping[int, Any] = field(default_factory=dict, repr=False)   # id(container) -> lines of its items

    @property
    def lines(self) -> Mapping[str, int]:
        """Every path's line; built when asked for, so prefer `line` for a few."""
        return dict(self._walk())

    def line(self, path: str | None) -> int | None:
        """The line of a path, else of the nearest part above it; None for JSON."""
        if not self._children:
            return None
        here: Any = self.value
        line = self.start
        for index, name in _STEP.findall(path or ""):
            table = self._children.get(id(here))
            key: Any = int(index) if index else name
            if table is None or isinstance(here, dict) == bool(index):
                break
            if isinstance(key, int):
                if key >= len(here):
                    break
            elif key not in here:
                break
            line, here = table[key], here[key]
        return line

    def annotate(self, problems: list[Problem]) -> list[Problem]:
        """The problems with their lines, where they have none and the document knows."""
        return [
            p if p.line is not None or (line := self.line(p.field)) is None else p.model_copy(update={"line": line})
            for p in problems
        ]

    def _walk(self) -> Iterator[tuple[str, int]]:
        stack: list[tuple[Any, str]] = [(self.value, "")]
        while stack:
            item, path = stack.pop()
            table = self._children.get(id(item))
            if table is None:
                continue
            for key, child in item.items() if isinstance(item, dict) else enumerate(item):
                where = f"{path}[{key}]" if isinstance(item, list) else f"{path}.{key}" if path else str(key)
                yield where, table[key]
                if isinstance(child, dict | list):
                    stack.append((child, where))


def load_documents(
    text: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_nodes: int = MAX_NODES
) -> list[LoadedDocument]:
    """Every document of a YAML text (JSON is YAML too), empty ones left out.

    Raises TooLarge (bytes, nodes, documents) or Invalid; both carry a Problem with its line.
    """
    source = _decode(text, max_bytes)
    loader = Loader(source)
    try:
        return _Reader(loader, max_depth, max_nodes).documents()
    except yaml.MarkedYAMLError as error:
        said = explain(error, source)
        if said is None:
            _refuse("bad_yaml", f"not valid YAML: {str(error)[:200]}", None)
        _refuse("bad_yaml", f"not valid YAML: {said.message} ({said.place}){said.at}", said.line, said.remedy)
    except yaml.YAMLError as error:
        _refuse("bad_yaml", f"not valid YAML: {str(error)[:200]}", None)
    finally:
        loader.dispose()


def load_document(text: bytes | str, *, max_bytes: int = MAX_BYTES) -> LoadedDocument:
    """The text's only document. Raises TooLarge or Invalid, also for more than one."""
    found = load_documents(text, max_bytes=max_bytes)
    if len(found) > 1:
        _refuse("too_many_documents", f"{len(found)} documents where one is expected", found[1].start,
                "send them one by one")
    return found[0]


def load_one(text: bytes | str) -> dict[str, Any]:
    """The text's only document as plain data; see `load_document`."""
    return load_document(text).value


def load_json(
    text: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_nodes: int = MAX_NODES
) -> LoadedDocument:
    """One JSON object under the same limits. Raises TooLarge or Invalid."""
    source = _decode(text, max_bytes)
    if not source.strip():
        _refuse("empty_document", "the document is empty", 1)
    try:
        value = json.loads(source, object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_json_int,
                           parse_float=_json_float)
    except json.JSONDecodeError as error:
        _refuse("bad_json", f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})", error.lineno)
    except RecursionError:
        _refuse("too_deep", f"nested deeper than {max_depth} levels", None)
    _check_json(value, max_depth, max_nodes)
    if not isinstance(value, dict):
        _refuse("wrong_type", "the document must be a mapping", 1, "begin with apiVersion, kind, metadata and spec")
    return LoadedDocument(value)


class _Reader:
    """Builds values from parser events with an explicit stack."""

    def __init__(self, loader: Any, max_depth: int, max_nodes: int) -> None:
        self.next = loader.get_event
        self.max_depth, self.max_nodes, self.nodes = max_depth, max_nodes, 0

    def documents(self) -> list[LoadedDocument]:
        found: list[LoadedDocument] = []
        while True:
            event = self.next()
            kind = type(event)
            if kind is yaml.StreamEndEvent:
                break
            if kind is not yaml.DocumentStartEvent:
                continue
            lines: dict[int, Any] = {}
            value, start = self._value(lines)
            if value is None:
                continue
            if not isinstance(value, dict):
                _refuse("wrong_type", "a document must be a mapping", start,
                        "begin with apiVersion, kind, metadata and spec")
            found.append(LoadedDocument(value, start, lines))
            if len(found) > MAX_DOCUMENTS:
                _too_large(f"more than {MAX_DOCUMENTS} documents", start)
        if not found:
            _refuse("empty_document", "there is no document in it", 1)
        return found

    def _value(self, lines: dict[int, Any]) -> tuple[Any, int]:
        """One document's root value and its line."""
        stack: list[tuple[Any, Any]] = []
        container: Any = None        # the open mapping or list, None at the root
        table: Any = None
        key: str | None = None       # the key that waits for its value
        while True:
            event = self.next()
            kind = type(event)
            line = event.start_mark.line + 1
            if kind is yaml.ScalarEvent:
                self._plain(event, line)
                text = event.value
                if container is None:
                    return (_scalar(text, line) if event.implicit[0] else _quoted(text, line)), line
                if type(container) is dict and key is None:
                    if text in container or not text or text == "<<":
                        _bad_key(text, line)
                    key = _quoted(text, line)
                    continue
                value = _scalar(text, line) if event.implicit[0] else _quoted(text, line)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._plain(event, line)
                if type(container) is dict and key is None:
                    _refuse("bad_key", "a key must be text, not a list or a mapping", line,
                            "put quotes around a value that begins with '{{'")
                if len(stack) >= self.max_depth:
                    _refuse("too_deep", f"nested deeper than {self.max_depth} levels", line)
                fresh: Any = {} if kind is yaml.MappingStartEvent else []
                fresh_table: Any = {} if kind is yaml.MappingStartEvent else []
                lines[id(fresh)] = fresh_table
                if container is not None:
                    _put(container, table, key, fresh, line)
                stack.append((container, table))
                container, table, key = fresh, fresh_table, None
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = container
                container, table = stack.pop()
                key = None
                if container is None:
                    return done, _start(lines, done, line)
                continue
            elif kind is yaml.AliasEvent:
                _refuse("alias", "aliases (*name) are not allowed", line, "write the value out")
            else:
                continue
            _put(container, table, key, value, line)
            key = None

    def _plain(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            _refuse("alias", "anchors (&name) are not allowed", line, "write the value out where it is needed")
        if event.tag is not None:
            _refuse("tag", f"tags are not allowed: {str(event.tag)[:60]!a}", line, "leave the tag out")
        self.nodes += 1
        if self.nodes > self.max_nodes:
            _too_large(f"more than {self.max_nodes} values", line)


def _start(lines: Mapping[int, Any], value: Any, fallback: int) -> int:
    """The line on which a root container's first item stands."""
    table = lines.get(id(value))
    if not table:
        return fallback
    first = next(iter(table.values())) if isinstance(table, dict) else table[0]
    return int(first)


def _put(container: Any, table: Any, key: str | None, value: Any, line: int) -> None:
    if key is None:
        container.append(value)
        table.append(line)
    else:
        container[key] = value
        table[key] = line


def _scalar(text: str, line: int) -> Any:
    """A plain scalar by the rules of the module's docstring."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if _INT.match(text):
        return _integer(text, 10, line)
    if _FLOAT.match(text):
        value = float(text)
        if not math.isfinite(value):
            _refuse("out_of_range", f"the number {text[:40]} is too large", line)
        return value
    if _HEX.match(text):
        return _integer(text, 16, line)
    if _NOT_FINITE.match(text):
        _refuse("not_finite", f"{text} is not a finite number", line)
    return text


def _integer(text: str, base: int, line: int) -> int:
    value = int(text, base) if len(text) <= 24 else INT_MAX + 1
    if not INT_MIN <= value <= INT_MAX:
        _refuse("out_of_range", f"the number {text[:40]} does not fit 64 bits", line, "put it in quotes if it is text")
    return value


def _quoted(text: str, line: int) -> str:
    if found := _CONTROL.search(text):
        _refuse("control_character", f"the control character {found[0]!a} is not allowed", line)
    return text


def _bad_key(text: str, line: int) -> NoReturn:
    if text == "<<":
        _refuse("merge_key", "merge keys (<<) are not allowed", line, "write the fields out")
    if not text:
        _refuse("bad_key", "a key is empty", line)
    _refuse("duplicate_key", f"the key {text[:60]!a} stands twice in one mapping", line, "keep one of them")


def _decode(text: bytes | str, max_bytes: int) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        _too_large(f"the document has {size} bytes; the most is {max_bytes}", None)
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            _refuse("bad_encoding", f"not valid UTF-8 (byte {error.start})", line, "save the file as UTF-8")
    text = text.removeprefix("\ufeff")
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        _refuse("control_character", f"the control character {found[0]!a} is not allowed", line, "remove it")
    return text


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                _refuse("duplicate_key", f"the key {key[:60]!a} stands twice in one object", None, "keep one of them")
            seen.add(key)
    return value


def _constant(text: str) -> NoReturn:
    _refuse("not_finite", f"{text} is not a finite number", None)


def _json_int(text: str) -> int:
    value = int(text) if len(text) <= 24 else INT_MAX + 1
    if not INT_MIN <= value <= INT_MAX:
        _refuse("out_of_range", f"the number {text[:40]} does not fit 64 bits", None)
    return value


def _json_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("out_of_range", f"the number {text[:40]} is too large", None)
    return value


def _check_json(value: Any, max_depth: int, max_nodes: int) -> None:
    stack: list[tuple[Any, int]] = [(value, 0)]
    count = 0
    while stack:
        item, depth = stack.pop()
        count += 1
        if count > max_nodes:
            _too_large(f"more than {max_nodes} values", None)
        if isinstance(item, str):
            _quoted(item, 1)
        elif isinstance(item, dict | list):
            if depth >= max_depth:
                _refuse("too_deep", f"nested deeper than {max_depth} levels", None)
            if isinstance(item, dict):
                for key in item:
                    _quoted(key, 1)
                stack.extend((child, depth + 1) for child in item.values())
            else:
                stack.extend((child, depth + 1) for child in item)


def _refuse(code: str, message: str, line: int | None, resolution: str | None = None) -> NoReturn:
    problem = Problem(code=code, message=message, line=line, resolution=resolution)
    raise Invalid(_with_line(message, line), code=code, problems=[problem], resolution=resolution)


def _too_large(message: str, line: int | None) -> NoReturn:
    remedy = "split the document"
    raise TooLarge(_with_line(message, line), problems=[Problem(code="too_large", message=message, line=line)],
                   resolution=remedy)


def _with_line(message: str, line: int | None) -> str:
    return message if line is None or "(line " in message else f"{message} (line {line})"
