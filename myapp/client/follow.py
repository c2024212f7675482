"""Following a run: server-sent events say when to look, a plain GET looks. Without events it looks every second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from myapp.client.errors import ClientError
from myapp.client.http import Api, segment
from myapp.client.show import duration, log_text, pick, safe

TERMINAL = ("succeeded", "failed", "stopped")
TASK_TERMINAL = (*TERMINAL, "skipped")
_POLL_S = 1.0
_LOG_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
_LOG_BLOCK = 256 * 1024


def read_run(api: Api, run_id: int) -> dict[str, Any]:
    result = api.get(f"/run/{segment(run_id)}")["result"]
    return dict(result)


def await_run(api: Api, run_id: int, seen: Callable[[dict[str, Any]], None] = lambda run: None) -> dict[str, Any]:
    """The run once it has ended. `seen` is called with each state of it."""
    cursor = ""
    while True:
        run = _read_patiently(api, run_id)
        seen(run)
        if run.get("phase") in TERMINAL:
            return run
        began = time.monotonic()
        try:
            for seen_id, event, _data in api.events(f"/run/{segment(run_id)}/events", after=cursor):
                cursor = seen_id
                run = _read_patiently(api, run_id)
                seen(run)
                if run.get("phase") in TERMINAL or event == "end":
                    break
        except ClientError as error:
            if error.status and error.status < 500 and error.status != 429:
                raise
        if run.get("phase") in TERMINAL:
            return run
        time.sleep(max(0.0, _POLL_S - (time.monotonic() - began)))


def _read_patiently(api: Api, run_id: int, patience_s: float = 60.0) -> dict[str, Any]:
    """A server that is being restarted is waited for."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return read_run(api, run_id)
        except ClientError as error:
            if 0 < error.status < 500 or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


class Progress:
    """Prints each change of a task, once."""

    def __init__(self, out: Any = None) -> None:
        self._out = out or sys.stderr
        self._phases: dict[str, str] = {}
        self._why = ""

    def __call__(self, run: dict[str, Any]) -> None:
        for task in run.get("tasks", []):
            key, phase = str(pick(task, "key", "name", "node_key")), str(task.get("phase"))
            if phase in ("active", *TASK_TERMINAL) and self._phases.get(key) != phase:
                took = duration(pick(task, "started_at"), pick(task, "ended_at")) if phase != "active" else ""
                why = safe(str(task.get("reason") or "")) if phase in ("failed", "stopped", "skipped") else ""
                print("  ".join(part for part in (f"  {key}", phase, took, why) if part), file=self._out, flush=True)
            self._phases[key] = phase
        why = safe(str(run.get("reason") or ""))
        if why and why != self._why and run.get("phase") not in TERMINAL:
            print(f"  waiting: {why}", file=self._out, flush=True)
        self._why = why


def follow_log(
    api: Api, run_id: int, task: str, *, attempt: int | None, rank: int, follow: bool, raw: bool, out: Any = None
) -> None:
    """Print a task's log; with `follow`, until it is sealed, going on to the next attempt where there is one."""
    out = out or sys.stdout
    path = f"/run/{segment(run_id)}/task/{segment(task)}/log"
    offset, quiet, current = 0, 0, attempt
    while True:
        reply = api.get(path, attempt=current, rank=rank, offset=offset, limit=_LOG_BLOCK)
        found = reply.get("result", reply)
        text = str(pick(found, "text", "data") or "")
        if text:
            out.write(log_text(text, raw=raw))
            out.flush()
        following = int(pick(found, "next_offset", "next") or offset)
        more = following > offset
        offset = following
        if more:
            quiet = 0
            continue
        if found.get("eof") or not follow:
            if not follow or attempt is not None:
                return
            upcoming = _next_attempt(api, run_id, task, found.get("attempt"))
            if upcoming is None:
                return
            current, offset = upcoming, 0
            continue
        time.sleep(_LOG_PAUSES_S[min(quiet, len(_LOG_PAUSES_S) - 1)])
        quiet += 1


def _next_attempt(api: Api, run_id: int, task: str, current: Any) -> int | None:
    """The attempt after `current`, waited for while the task is not over; None when there is none to come."""
    while True:
        run = _read_patiently(api, run_id)
        row = next((t for t in run.get("tasks", []) if pick(t, "key", "name", "node_key") == task), None)
        if row is None:
            return None
        latest = pick(row, "attempt", "attempts_made", "attempt_no")
        if isinstance(latest, list):
            latest = len(latest)
        if isinstance(latest, int) and isinstance(current, int) and latest > current:
            return current + 1
        if row.get("phase") in TASK_TERMINAL or run.get("phase") in TERMINAL:
            return None
        time.sleep(_POLL_S)
