"""What a job needs to talk to Cube Studio: its arguments, its place in the gang, and where its results go.

Everything is files and environment variables, so a program in any language can do without this module:

- `$CUBE_JOB_DIR/args.json`            the arguments of the job template, one JSON object (read-only)
- `$CUBE_OUTPUT_DIR/values/<name>`     one output value a file, JSON
- `$CUBE_OUTPUT_DIR/artifacts/<name>`  one artifact, a file or a folder
- `$CUBE_OUTPUT_DIR/metrics.jsonl`     one metric a line: `{"name", "value", "step", "at"}`

Standard library only. Outside the platform (no `CUBE_*` variables) results go to `./cube-output`, so that a script can
be tried by hand.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

__version__ = "0.1.0"
__all__ = [
    "argument",
    "arguments",
    "artifact",
    "fail",
    "input_artifact",
    "is_chief",
    "job_dir",
    "metric",
    "output",
    "output_dir",
    "rank",
    "role",
    "role_index",
    "run_id",
    "save_artifact",
    "stopping",
    "task_name",
    "workspace",
    "world_size",
]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_REQUIRED: Any = object()
_stop = threading.Event()
_stop_watched = False


class RuntimeMisuse(ValueError):
    """The job asked for something that cannot be right: an unknown argument, a bad name, an output that is no JSON."""


# ---- where things are -----------------------------------------------------------------------------------------------


def job_dir() -> Path:
    """The read-only folder of the job's own files (scripts, `args.json`)."""
    return Path(os.environ.get("CUBE_JOB_DIR") or Path(sys.argv[0]).resolve().parent)


def output_dir() -> Path:
    """The folder that the platform collects after the job; created when missing."""
    return _folder(Path(os.environ.get("CUBE_OUTPUT_DIR") or "cube-output"))


def workspace() -> Path:
    """The project's shared folder, which outlives the job."""
    return Path(os.environ.get("CUBE_WORKSPACE") or Path.cwd())


def run_id() -> str:
    return os.environ.get("CUBE_RUN_ID") or "local"


def task_name() -> str:
    return os.environ.get("CUBE_TASK") or Path(sys.argv[0] or "task").stem


# ---- the job's place in its gang ------------------------------------------------------------------------------------


def rank() -> int:
    """This process's number among all of the job's processes, 0 .. world_size() - 1."""
    return _number("CUBE_RANK", 0)


def world_size() -> int:
    return _number("CUBE_WORLD_SIZE", 1)


def role() -> str:
    """`worker`, `ps`, ... as the framework names it."""
    return os.environ.get("CUBE_ROLE") or "worker"


def role_index() -> int:
    """This process's number within its role, from 0."""
    return _number("CUBE_INDEX", 0)


def is_chief() -> bool:
    """True for the one process that should write models and outputs."""
    return rank() == 0


# ---- what comes in --------------------------------------------------------------------------------------------------


def arguments() -> dict[str, Any]:
    """All arguments of the job template with defaults filled in; empty for a job without a template."""
    path = job_dir() / "args.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    values = json.loads(text)
    if not isinstance(values, dict):
        raise RuntimeMisuse(f"{path.name} must hold one JSON object, not {type(values).__name__}")
    return values


def argument(name: str, default: Any = _REQUIRED) -> Any:
    """One argument. A missing one, or an empty optional one (null), gives `default`, or RuntimeMisuse without it."""
    value = arguments().get(name)
    if value is not None:
        return value
    if default is _REQUIRED:
        known = ", ".join(sorted(arguments())) or "none"
        raise RuntimeMisuse(f"the job has no argument {name!r} (it has: {known})")
    return default


def input_artifact(name: str) -> Path:
    """The path that argument `name` holds: an artifact of an upstream task, or a file in the workspace.

    A relative path is looked up in the workspace. Raises FileNotFoundError, naming the argument, if nothing is there.
    """
    return existing_path(str(argument(name)), f"argument {name!r}")


def existing_path(value: str, what: str = "path") -> Path:
    """`value` as a path (relative ones within the workspace) that exists; FileNotFoundError names `what` otherwise."""
    path = Path(value)
    if not path.is_absolute():
        path = workspace() / path
    if not path.exists():
        raise FileNotFoundError(f"{what}: nothing at {path}; did the upstream task write this artifact?")
    return path


# ---- what goes out --------------------------------------------------------------------------------------------------


def output(name: str, value: Any) -> None:
    """Sets an output value that later tasks read as `{{ tasks.<this>.outputs.<name> }}`. JSON, finite numbers only."""
    if not _IDENTIFIER.match(name):
        raise RuntimeMisuse(f"output name {name!r}: use letters, digits and '_', at most 63, no digit first")
    try:
        text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise RuntimeMisuse(f"output {name!r} cannot be written as JSON: {error}") from error
    _write(_folder(output_dir() / "values") / name, text.encode())


def metric(name: str, value: float, step: int | None = None) -> None:
    """Records one measurement (of step `step`). A value that is not finite is reported on stderr and left out."""
    _check(name, "metric")
    number = float(_plain(value))
    if not math.isfinite(number):
        print(f"metric {name} is {number} at step {step}: not recorded", file=sys.stderr, flush=True)
        return
    row: dict[str, Any] = {"name": name, "value": number, "at": round(time.time(), 3)}
    if step is not None:
        row["step"] = int(step)
    line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
    # One O_APPEND write a line: several processes of a job may share the file.
    handle = os.open(output_dir() / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def artifact(name: str) -> Path:
    """The path at which to create artifact `name`, as a file or a folder. Its parent exists; nothing is there yet."""
    _check(name, "artifact")
    return _folder(output_dir() / "artifacts") / name


def save_artifact(name: str, content: bytes | str | Path) -> Path:
    """Writes artifact `name` in one step: bytes, text, or a copy of an existing file or folder. Returns its path."""
    target = artifact(name)
    if isinstance(content, Path):
        if content.is_dir():
            with tempfile.TemporaryDirectory(dir=output_dir(), prefix=".partial-") as partial:
                copy = Path(shutil.copytree(content, Path(partial) / "copy"))
                shutil.rmtree(target, ignore_errors=True)
                copy.replace(target)
            return target
        content = content.read_bytes()
    _write(target, content.encode() if isinstance(content, str) else content)
    return target


# ---- ending ---------------------------------------------------------------------------------------------------------


def stopping() -> bool:
    """True once the platform has asked the job to stop (SIGTERM). Call it in the training loop and leave when True.

    The first call takes over SIGTERM, so that it no longer ends the process by itself; call it from the main thread
    before starting long work. After the framework's grace period the process is killed.
    """
    global _stop_watched
    if not _stop_watched and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: _stop.set())
        _stop_watched = True
    return _stop.is_set()


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the job as failed with a message for a person and no traceback."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(code)


# ---- helpers --------------------------------------------------------------------------------------------------------


def _check(name: str, what: str) -> None:
    if not _FILE_NAME.match(name):
        rule = "use letters, digits, '_', '-' and '.', at most 128, no '-' or '.' first"
        raise RuntimeMisuse(f"{what} name {name!r}: {rule}")


def _plain(value: Any) -> Any:
    """numpy scalars and arrays as Python values."""
    if hasattr(value, "tolist") and callable(value.tolist):
        return value.tolist()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def _number(variable: str, default: int) -> int:
    return int(os.environ.get(variable) or default)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _write(target: Path, data: bytes) -> None:
    """Write by rename: a reader, or a platform that collects after a kill, sees the old file or the whole new one."""
    handle, name = tempfile.mkstemp(dir=output_dir(), prefix=".partial-")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        partial.chmod(0o644)
        partial.replace(target)
    except BaseException:
        partial.unlink()
        raise
