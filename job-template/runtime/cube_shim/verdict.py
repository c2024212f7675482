"""How a rank ended, in the words of a person: the contents of status.json."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from cube_shim import limits

if TYPE_CHECKING:
    from cube_shim.shim import Shim


def judge(shim: Shim, status: int, started: float) -> dict[str, Any]:
    """Exit status -> cause and message, in the words of a person."""
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    code = 128 + number if number else code
    oom = code != 0 and limits.out_of_memory(shim.rank["cgroups"])
    last = last_line(shim.pump.tail)
    cause: str | None
    if code == 0:
        cause, message = None, ""
    elif oom:
        cause, message = "oom", f"out of memory: the limit is {shim.rank['memory'] >> 20} MiB"
    elif shim.stop:
        cause, message = shim.stop.cause, f"stopped ({shim.stop.cause})"
    elif number:
        cause, message = "signal", f"ended by signal {number} ({signal_name(number)})"
    elif code == 127:
        cause, message = "command_not_found", f"exit code 127, a command was not found: {last}"
    elif shim.rank["sandboxed"] and last.startswith("bwrap: execvp"):
        code, cause = 127, "command_not_found"
        message = f"{shim.rank['command']} cannot be executed: {last.rpartition(': ')[2]}"
    elif shim.rank["sandboxed"] and last.startswith("bwrap: "):
        cause, message = "backend", f"the sandbox could not be built: {last}"
    else:
        cause, message = "exit_nonzero", f"exit code {code}" + (f": {last}" if last else "")
    return ended(shim, started=started, code=code, number=number, cause=cause, message=message, oom=oom)


def ended(
    shim: Shim, *, stage: str = "command", started: float | None = None, code: int | None = None, number: int = 0,
    cause: str | None = None, message: str = "", oom: bool = False,
) -> dict[str, Any]:
    return {
        "exit_code": code,
        "signal": number or None,
        "cause": cause,
        "oom": oom,
        "message": message,
        "started_at": started,
        "finished_at": time.time(),
        "interrupted": shim.stop is not None,
        "stage": stage,
    }


def last_line(tail: bytes) -> str:
    """The last line with something on it, printable and short."""
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        text = "".join(c for c in line if c.isprintable()).strip()
        if text:
            return text[:300]
    return ""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
