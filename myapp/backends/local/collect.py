"""Reads what an ended job left in its output folder. The job wrote it: nothing in it is trusted."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from typing import Any

from myapp.domain.ports import Collected

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
MAX_VALUES = 200
MAX_VALUE_BYTES = 64 * 1024
MAX_METRICS = 10_000
MAX_METRICS_BYTES = 8 * 1024 * 1024
MAX_ARTIFACTS = 1000
MAX_ENTRIES = 200_000
MAX_DEPTH = 64
MAX_PROBLEMS = 50


def collect(out: str, logs: dict[int, str]) -> Collected:
    """Values, artifacts and metrics under `out`; what cannot be taken is named in `problems`."""
    found = Collected(logs={rank: path for rank, path in logs.items() if os.path.isfile(path)})
    _values(os.path.join(out, "values"), found)
    _artifacts(os.path.join(out, "artifacts"), found)
    _metrics(out, found)
    del found.problems[MAX_PROBLEMS:]
    return found


def _names(folder: str, what: str, limit: int, found: Collected) -> list[str]:
    """Names in a real folder (not a link to one), sorted, valid, at most `limit`."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            found.problems.append(f"{what}: the folder has been replaced by something else")
            return []
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        found.problems.append(f"{what}: {error.strerror}")
        return []
    valid = []
    for name in names:
        if NAME.fullmatch(name):
            valid.append(name)
        else:
            found.problems.append(f"{what}: {name[:100]!r} is not a valid name (letters, digits, '_', '-', '.')")
    if len(valid) > limit:
        found.problems.append(f"{what}: {len(valid)} of them, only the first {limit} are kept")
    return valid[:limit]


def _read(path: str, limit: int) -> bytes:
    """Up to limit + 1 bytes of a regular file. Raises OSError; never follows a link or waits for a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        with open(fd, "rb", closefd=False) as f:
            return f.read(limit + 1)
    finally:
        os.close(fd)


def _values(folder: str, found: Collected) -> None:
    for name in _names(folder, "values", MAX_VALUES, found):
        try:
            data = _read(os.path.join(folder, name), MAX_VALUE_BYTES)
        except OSError as error:
            found.problems.append(f"values/{name}: {error.strerror}")
            continue
        if len(data) > MAX_VALUE_BYTES:
            found.problems.append(f"values/{name}: larger than {MAX_VALUE_BYTES >> 10} KiB; make it an artifact")
            continue
        try:
            text = data.decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
        except UnicodeDecodeError:
            found.problems.append(f"values/{name}: not UTF-8 text; make it an artifact")
            continue
        found.values[name] = _parse(text)


def _parse(text: str) -> Any:
    """JSON where it is JSON (without NaN and infinity, which JSON has not), else the text without its last newline."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, allow_nan=False)
        return _clean(value)
    except (ValueError, RecursionError):
        return text.rstrip("\n")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _artifacts(folder: str, found: Collected) -> None:
    budget = MAX_ENTRIES
    for name in _names(folder, "artifacts", MAX_ARTIFACTS, found):
        path = os.path.join(folder, name)
        problem, budget = _inspect(path, budget)
        if problem:
            found.problems.append(f"artifacts/{name}: {problem}")
        else:
            found.artifacts[name] = path


def _inspect(path: str, budget: int) -> tuple[str | None, int]:
    """Why an artifact cannot be taken, or None; and what is left of the budget of entries."""
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode):
        return None, budget - 1
    if not stat.S_ISDIR(mode):
        return "neither a file nor a folder" if not stat.S_ISLNK(mode) else "a symbolic link; copy the file", budget
    root = os.path.realpath(path)
    folders = [(path, 1)]
    while folders:
        folder, depth = folders.pop()
        if depth > MAX_DEPTH:
            return f"folders in it lie deeper than {MAX_DEPTH} levels; pack them into one file", budget
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    budget -= 1
                    if budget < 0:
                        return f"more than {MAX_ENTRIES} files; pack them into one", 0
                    if entry.is_symlink():
                        target = os.path.realpath(entry.path)
                        if target != root and not target.startswith(root + "/"):
                            return f"{os.path.relpath(entry.path, path)} links to something outside of it", budget
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, depth + 1))
                    elif not entry.is_file(follow_symlinks=False):
                        return f"{os.path.relpath(entry.path, path)} is neither a file nor a folder", budget
        except OSError as error:
            return f"{os.path.relpath(folder, path)}: {error.strerror}", budget
    return None, budget


def _metrics(out: str, found: Collected) -> None:
    path = os.path.join(out, "metrics.jsonl")
    try:
        data = _read(path, MAX_METRICS_BYTES)
        changed = os.lstat(path).st_mtime
    except FileNotFoundError:
        return
    except OSError as error:
        found.problems.append(f"metrics.jsonl: {error.strerror}")
        return
    if len(data) > MAX_METRICS_BYTES:
        found.problems.append(f"metrics.jsonl: only the first {MAX_METRICS_BYTES >> 20} MiB were read")
        data = data[: data.rfind(b"\n", 0, MAX_METRICS_BYTES) + 1]
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        if len(found.metrics) >= MAX_METRICS:
            found.problems.append(f"metrics.jsonl: only the first {MAX_METRICS} rows were kept")
            return
        row = _metric(line, changed)
        if row is not None:
            found.metrics.append(row)
        elif len(found.problems) < MAX_PROBLEMS:
            found.problems.append(f"metrics.jsonl line {number}: not an object with name, value and perhaps step, at")


def _metric(line: bytes, default_at: float) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
        name, value, step, at = row["name"], row["value"], row.get("step"), row.get("at")
        if not isinstance(name, str) or not NAME.fullmatch(name.replace("/", "_")) or isinstance(value, bool):
            return None
        value = float(value)
        if not math.isfinite(value) or not isinstance(step, int | None):
            return None
        when = float(at) if isinstance(at, int | float) else default_at
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    result: dict[str, Any] = {"name": name, "value": value, "at": when if math.isfinite(when) else default_at}
    if step is not None:
        result["step"] = step
    return result
