"""`{{ path }}` in documents: a closed vocabulary, looked up in plain mappings; no expressions, no code.

`{{ params.seed }}` is the only form. A string that is exactly one such expression keeps the value's type; elsewhere
the value is written into the text. `{{{{` stands for a literal `{{`. `{%`, `}}` and `$` are plain text. What has been
put in is never looked at again, so a value that contains `{{` cannot reach anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from myapp.domain.errors import CubeError, Invalid, Problem, TooLarge
from myapp.domain.naming import did_you_mean, path_part, shown

OPEN, CLOSE, ESCAPED = "{{", "}}", "{{{{"
MAX_RENDERED = 1024 * 1024          # characters of one rendered string
MAX_EXPRESSION = 300
MAX_DEPTH = 100
_MAX_PROBLEMS_PER_TEXT = 20
_PATH = re.compile(
    r"\A(?:tasks\.[a-z][a-z0-9_-]*\.outputs\.[A-Za-z0-9_][A-Za-z0-9_.-]*"
    r"|[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9][A-Za-z0-9_-]*)*)\Z"
)
_REMEDY = "write {{ params.NAME }} or another known name; write {{{{ for a literal {{"

Context = Mapping[str, Any]

RUN_NAMES = frozenset({"id", "name", "project", "scheduled_at"})
DATE_NAMES = frozenset({"today", "now", "yesterday"})


@dataclass(frozen=True)
class Ref:
    """One expression: `path` is its parts (`("params", "seed")`), `field` where it stands in the document."""

    path: tuple[str, ...]
    field: str = ""

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def task(self) -> str | None:
        """The task it asks about (`tasks.<key>...`), if any."""
        return self.path[1] if self.path[0] == "tasks" and len(self.path) > 1 else None


@dataclass(frozen=True)
class Bad:
    """Something between braces that is not an expression."""

    text: str
    message: str


@dataclass(frozen=True)
class Vocabulary:
    """What may be referred to: root -> its names, or None for a root that is itself a value.

    `tasks` allows `tasks.<key>.phase` and `tasks.<key>.outputs.<name>` (a name may hold dots); which task and output
    exist is the graph's matter. A root that is absent may not be used at all.
    """

    names: Mapping[str, frozenset[str] | None]
    tasks: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)

    def problem(self, ref: Ref) -> str | None:
        """What is wrong with a reference, or None."""
        root, rest = ref.path[0], ref.path[1:]
        if root == "tasks" and self.tasks:
            if (len(rest) == 2 and rest[1] == "phase") or (len(rest) == 3 and rest[1] == "outputs"):
                return None
            return "a task offers tasks.<name>.outputs.<output> and tasks.<name>.phase"
        if root not in self.names:
            return self.hints.get(root) or f"'{root}' is not known here"
        names = self.names[root]
        if names is None:
            return None if not rest else f"'{root}' has no parts"
        if len(rest) != 1:
            return f"'{root}' is used as {root}.<name>"
        return None if rest[0] in names else f"{root} has no {shown(rest[0])}"

    def remedy(self, ref: Ref) -> str | None:
        root, rest = ref.path[0], ref.path[1:]
        names = self.names.get(root)
        if names and len(rest) == 1:
            return did_you_mean(rest[0], names)
        if root not in self.names and root != "tasks":
            return did_you_mean(root, [*self.names, *(["tasks"] if self.tasks else [])])
        return _REMEDY


def pipeline_vocabulary(params: frozenset[str]) -> Vocabulary:
    """What a pipeline's tasks may refer to."""
    names: dict[str, frozenset[str] | None] = {
        "params": params, "run": RUN_NAMES, "date": DATE_NAMES, "creator": None, "workspace": None,
    }
    return Vocabulary(names, tasks=True, hints={"args": "args.<name> exists only inside a job template"})


def template_vocabulary(args: frozenset[str]) -> Vocabulary:
    """What a job template's job may refer to."""
    names: dict[str, frozenset[str] | None] = {
        "args": args, "run": RUN_NAMES, "date": DATE_NAMES, "creator": None, "workspace": None,
    }
    hints = {
        "params": "a template cannot see the pipeline's params: declare an argument and pass it",
        "tasks": "a template cannot see other tasks: declare an argument and pass it",
    }
    return Vocabulary(names, hints=hints)


def make_context(
    *,
    params: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    creator: str | None = None,
    workspace: str | None = None,
    at: datetime | None = None,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """A context for `render`. `at` is the run's scheduled or submission time (aware); `tasks` is
    key -> `{"phase": ..., "outputs": {...}}`."""
    context: dict[str, Any] = {"params": dict(params or {}), "run": dict(run or {}), "tasks": dict(tasks or {})}
    if args is not None:
        context["args"] = dict(args)
    if creator is not None:
        context["creator"] = creator
    if workspace is not None:
        context["workspace"] = workspace
    if at is not None:
        context["date"] = {
            "today": at.date().isoformat(),
            "yesterday": (at.date() - timedelta(days=1)).isoformat(),
            "now": at.isoformat(timespec="seconds"),
        }
        context["run"].setdefault("scheduled_at", at.isoformat(timespec="seconds"))
    return context


def scan(text: str) -> list[str | Ref | Bad]:
    """The text in parts: literal strings (escapes already undone), references, and what is neither."""
    if OPEN not in text:
        return [text] if text else []
    parts: list[str | Ref | Bad] = []
    literal: list[str] = []
    at = 0
    while True:
        start = text.find(OPEN, at)
        if start < 0:
            literal.append(text[at:])
            break
        literal.append(text[at:start])
        if text.startswith(ESCAPED, start):
            literal.append(OPEN)
            at = start + len(ESCAPED)
            continue
        if joined := "".join(literal):
            parts.append(joined)
        literal = []
        end = text.find(CLOSE, start + len(OPEN))
        if end < 0:
            parts.append(Bad(text[start : start + 40], "'{{' without its '}}'"))
            at = len(text)
            break
        inner = text[start + len(OPEN) : end].strip()
        if len(inner) <= MAX_EXPRESSION and _PATH.match(inner):
            parts.append(Ref(_path(inner)))
        else:
            parts.append(Bad(inner, f"{shown('{{ ' + inner[:60] + ' }}')} is not a reference"))
        at = end + len(CLOSE)
    if joined := "".join(literal):
        parts.append(joined)
    return parts


def _path(text: str) -> tuple[str, ...]:
    """The parts of a reference. The name of an output may hold dots: it is all that follows `outputs.`."""
    parts = text.split(".")
    if parts[0] == "tasks" and len(parts) > 4 and parts[2] == "outputs":
        parts[3:] = [".".join(parts[3:])]
    return tuple(parts)


def has_template(value: Any) -> bool:
    """Whether a string holds braces that rendering would touch."""
    return isinstance(value, str) and OPEN in value


def strings(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Every string with `{{` in a nested value, with its path; keys included (as the path of their mapping)."""
    stack: list[tuple[Any, str]] = [(value, field)]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            if OPEN in item:
                yield item, path
        elif isinstance(item, Mapping):
            for key in item:
                if isinstance(key, str) and OPEN in key:
                    yield key, f"{path}.{shown(key, 40)}" if path else shown(key, 40)
            stack.extend((item[k], f"{path}.{path_part(k)}" if path else path_part(k)) for k in reversed(list(item)))
        elif isinstance(item, list | tuple):
            stack.extend((item[i], f"{path}[{i}]") for i in range(len(item) - 1, -1, -1))


def references(value: Any, field: str = "") -> list[Ref]:
    """Every well-formed reference in a nested value, in document order."""
    found: list[Ref] = []
    for text, path in strings(value, field):
        found.extend(Ref(part.path, path) for part in scan(text) if isinstance(part, Ref))
    return found


def check(value: Any, vocabulary: Vocabulary, *, field: str = "", node: str | None = None) -> list[Problem]:
    """Everything wrong with the expressions in a nested value: malformed ones and unknown names."""
    problems: list[Problem] = []
    for text, path in strings(value, field):
        count = 0
        for part in scan(text):
            if isinstance(part, str):
                continue
            if isinstance(part, Bad):
                problem = Problem(
                    code="bad_expression", message=part.message, field=path, node=node, resolution=_REMEDY
                )
            elif message := vocabulary.problem(part):
                problem = Problem(
                    code="unknown_reference", message=f"{{{{ {part} }}}}: {message}", field=path, node=node,
                    resolution=vocabulary.remedy(part),
                )
            else:
                continue
            problems.append(problem)
            count += 1
            if count >= _MAX_PROBLEMS_PER_TEXT:
                break
    return problems


def lookup(path: tuple[str, ...], context: Context, *, field: str = "") -> Any:
    """The value a reference names. Only mappings are walked, only by text keys. Raises Invalid when there is none."""
    value: Any = context
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            raise _error("unknown_reference", f"{{{{ {'.'.join(path)} }}}} has no value", field)
        value = value[part]
    return value


def render(value: Any, context: Context, *, field: str = "") -> Any:
    """A copy of a nested value with every expression replaced.

    Raises Invalid (malformed or without a value) or TooLarge (a string over 1 MiB); both name the field.
    """
    return _render(value, context, field, 0)


def _render(value: Any, context: Context, field: str, depth: int) -> Any:
    if isinstance(value, str):
        return render_text(value, context, field=field) if OPEN in value else value
    if depth >= MAX_DEPTH:
        raise _error("too_deep", f"nested deeper than {MAX_DEPTH} levels", field)
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, str) and OPEN in key:
                raise _error("bad_expression", f"the name {shown(key, 40)} may not hold an expression", field)
        prefix = f"{field}." if field else ""
        return {k: _render(v, context, prefix + path_part(k), depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_render(v, context, f"{field}[{i}]", depth + 1) for i, v in enumerate(value)]
    return value


def render_text(text: str, context: Context, *, field: str = "") -> Any:
    """One string; see `render`."""
    parts = scan(text)
    for part in parts:
        if isinstance(part, Bad):
            raise _error("bad_expression", part.message, field)
    if len(parts) == 1 and isinstance(parts[0], Ref):
        return lookup(parts[0].path, context, field=field)
    out: list[str] = []
    size = 0
    for part in parts:
        piece = part if isinstance(part, str) else as_text(lookup(part.path, context, field=field)) \
            if isinstance(part, Ref) else ""
        size += len(piece)
        if size > MAX_RENDERED:
            message = f"the rendered text is larger than {MAX_RENDERED // 1024} KiB"
            raise TooLarge(
                message, problems=[Problem(code="too_large", message=message, field=field or None)],
                resolution="pass large data as an artifact or a file in the workspace",
            )
        out.append(piece)
    return "".join(out)


def as_text(value: Any) -> str:
    """A value written into text: nothing for null, true/false, numbers plainly, lists and mappings as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _error(code: str, message: str, field: str) -> CubeError:
    problem = Problem(code=code, message=message, field=field or None, resolution=_REMEDY)
    where = f"{field}: " if field else ""
    return Invalid(f"{where}{message}", code=code, problems=[problem], resolution=_REMEDY)
