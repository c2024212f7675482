"""YAML as plain JSON data, from people who may mean harm: no tags, no bombs, no surprises.

The core schema of YAML 1.2 (`yes` and `12:30` are text, `010` is text too), duplicate keys refused, and what aliases
expand to is counted. Built from the parser's events without recursion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"\A[-+]?(0|[1-9][0-9]*)\Z")
_BASED = re.compile(r"\A0(x[0-9a-fA-F]+|o[0-7]+)\Z")
_FLOAT = re.compile(r"\A[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_OCTAL_LOOKALIKE = re.compile(r"\A[-+]?0[0-9]+\Z")
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_TAGS = {f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_MAX_DIGITS = 400


class YamlError(ValueError):
    """`line` is 1-based, None when unknown."""

    def __init__(self, message: str, line: int | None = None, resolution: str | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.resolution = resolution


@dataclass(frozen=True)
class Limits:
    depth: int = 64
    nodes: int = 250_000  # aliases counted as what they stand for
    aliases: int = 10_000
    documents: int = 1000


def load_all(text: str, limits: Limits | None = None) -> list[Any]:
    """Every document in the text. Raises YamlError."""
    return [document for document, _ in _documents(text, limits or Limits(), with_lines=False)]


def load_one(text: str, limits: Limits | None = None) -> Any:
    """The text's one document. Raises YamlError when there is none or more than one."""
    documents = load_all(text, limits)
    if len(documents) != 1:
        found = "is empty" if not documents else f"holds {len(documents)} documents"
        raise YamlError(f"one document is expected, this {found}", resolution="Send one document in each request.")
    return documents[0]


def line_of(text: str, path: str) -> int | None:
    """The 1-based line of a dotted path (`spec.tasks[2].args`) in the first document, or of its nearest parent."""
    try:
        for _, lines in _documents(text, Limits(), with_lines=True):
            steps = split_path(path)
            while steps and steps not in lines:
                steps = steps[:-1]
            return lines.get(steps)
    except YamlError:
        pass
    return None


def split_path(path: str) -> tuple[str | int, ...]:
    """`spec.tasks[2].args` -> ("spec", "tasks", 2, "args")."""
    return tuple(int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)(?<!\d\])|\[(\d+)\]", path))


@dataclass
class _Open:
    """A mapping or a list being read. `size` counts the nodes below it."""

    value: Any
    anchor: str | None
    size: int = 1
    key: str | None = None
    keyed: bool = False


@dataclass
class _Builder:
    limits: Limits
    with_lines: bool
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    nodes: int = 0
    aliases: int = 0
    result: Any = None

    def open(self, value: Any, event: Any) -> None:
        if len(self.stack) >= self.limits.depth:
            raise YamlError(f"nested deeper than {self.limits.depth} levels", _line(event))
        _check_tag(event)
        if self.stack and isinstance(self.stack[-1].value, dict) and not self.stack[-1].keyed:
            raise YamlError("a key must be a plain word or text", _line(event))
        self.count(1, event)
        self.note(event)
        self.stack.append(_Open(value, event.anchor))

    def close(self) -> None:
        done = self.stack.pop()
        if done.anchor:
            self.anchors[done.anchor] = (done.value, done.size)
        self.put(done.value, done.size)

    def scalar(self, event: Any) -> None:
        value = _scalar(event)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self.take(value, 1, event)

    def alias(self, event: Any) -> None:
        self.aliases += 1
        if self.aliases > self.limits.aliases:
            raise YamlError(f"more than {self.limits.aliases} aliases", _line(event))
        if event.anchor not in self.anchors:
            raise YamlError(f"the alias *{event.anchor} stands for nothing above it", _line(event))
        value, size = self.anchors[event.anchor]
        self.take(value, size, event)

    def take(self, value: Any, size: int, event: Any) -> None:
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and not parent.keyed:
            key = value if isinstance(value, str) else getattr(event, "value", None)
            if not isinstance(key, str):
                raise YamlError("a key must be a plain word or text", _line(event))
            if key in parent.value:
                raise YamlError(f"the key {key[:80]!r} is given twice", _line(event), "Keep one of them.")
            parent.key, parent.keyed = key, True
            self.note(event)
            return
        self.count(size, event)
        self.note(event)
        self.put(value, size)

    def put(self, value: Any, size: int) -> None:
        if not self.stack:
            self.result = value
            return
        parent = self.stack[-1]
        parent.size += size
        if isinstance(parent.value, dict):
            parent.value[parent.key] = value
            parent.keyed = False
        else:
            parent.value.append(value)

    def count(self, size: int, event: Any) -> None:
        self.nodes += size
        if self.nodes > self.limits.nodes:
            raise YamlError(
                f"more than {self.limits.nodes} values once its aliases are expanded",
                _line(event),
                "Split the document, or write it without aliases of aliases.",
            )

    def note(self, event: Any) -> None:
        if self.with_lines:
            steps = tuple(o.key if isinstance(o.value, dict) else len(o.value) for o in self.stack)
            self.lines.setdefault(steps, event.start_mark.line + 1)  # type: ignore[arg-type]


def _documents(
    text: str, limits: Limits, *, with_lines: bool
) -> Iterator[tuple[Any, dict[tuple[str | int, ...], int]]]:
    count, builder = 0, _Builder(limits, with_lines)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            match event:
                case yaml.ScalarEvent():
                    builder.scalar(event)
                case yaml.MappingStartEvent():
                    builder.open({}, event)
                case yaml.SequenceStartEvent():
                    builder.open([], event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    builder.close()
                case yaml.AliasEvent():
                    builder.alias(event)
                case yaml.DocumentStartEvent():
                    count += 1
                    if count > limits.documents:
                        raise YamlError(f"more than {limits.documents} documents", _line(event))
                    builder = _Builder(limits, with_lines, nodes=builder.nodes, aliases=builder.aliases)
                case yaml.DocumentEndEvent():
                    if builder.result is not None:
                        yield builder.result, builder.lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ": ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(message or "not YAML", mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        raise YamlError(_plain(str(error))) from None
    except UnicodeError:
        raise YamlError("not valid Unicode text") from None


def _scalar(event: Any) -> Any:
    text: str = event.value
    tag = _check_tag(event)
    if "\0" in text:
        raise YamlError("text holds a NUL character", _line(event))
    if tag == "str" or (tag is None and not event.implicit[0]):
        return text
    if text in _WORDS and tag in (None, "bool", "null"):
        return _WORDS[text]
    if _INT.match(text) and tag in (None, "int"):
        return _whole(text, event)
    if _BASED.match(text) and tag in (None, "int"):
        return _in_range(int(text[:_MAX_DIGITS], 0), event)
    if _FLOAT.match(text) and not _OCTAL_LOOKALIKE.match(text) and tag in (None, "float"):
        number = float(text)
        if not math.isfinite(number):
            raise YamlError("a number too large", _line(event))
        return number
    if tag is None:
        return text
    raise YamlError(f"not a valid !!{tag}", _line(event))


def _whole(text: str, event: Any) -> int:
    if len(text) > _MAX_DIGITS:
        raise YamlError(f"a number of {len(text)} digits", _line(event), "Put it in quotes if it is text.")
    return _in_range(int(text), event)


def _in_range(number: int, event: Any) -> int:
    if not -(2**63) <= number < 2**64:
        raise YamlError("a whole number beyond 64 bits", _line(event), "Put it in quotes if it is text.")
    return number


def _check_tag(event: Any) -> str | None:
    tag = event.tag
    if tag is None:
        return None
    if tag == "!":
        return "str"
    if tag not in _TAGS:
        raise YamlError(f"the tag {tag[:60]!r} is not allowed", _line(event), "Write plain values without tags.")
    return _TAGS[tag]


def _line(event: Any) -> int | None:
    return event.start_mark.line + 1 if event.start_mark else None


def _plain(message: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:300]
