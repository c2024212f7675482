"""Following a run by its server-sent events, and a task's log by its offsets."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from myapp.client.errors import ClientError
from myapp.client.http import Api, segment
from myapp.client.show import log_text, safe

TERMINAL = ("succeeded", "failed", "stopped")
TASK_TERMINAL = (*TERMINAL, "skipped")
_POLL_S = 1.0
_PATIENCE_S = 60.0
_LOG_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
_LOG_BLOCK = 256 * 1024

Event = dict[str, Any]


def read_run(api: Api, run_id: int) -> dict[str, Any]:
    result = api.get(f"/run/{segment(run_id)}")["result"]
    return dict(result)


def await_run(api: Api, run_id: int, seen: Callable[[Event], None] = lambda event: None) -> dict[str, Any]:
    """The run once it has ended. `seen` is called with each of its events, once and in order.

    A stream that breaks is taken up after its last event; where there is none to be had, the run is looked at every
    second. A server that is being restarted is waited for.
    """
    cursor = ""
    while True:
        began = time.monotonic()
        try:
            for seen_id, _kind, data in api.events(f"/run/{segment(run_id)}/events", after=cursor):
                cursor = seen_id
                event = _event(data)
                if event:
                    seen(event)
                if event.get("final"):
                    break
        except ClientError as error:
            if 0 < error.status < 500 and error.status != 429:
                raise
        run: dict[str, Any] = _patiently(lambda: read_run(api, run_id))
        if run.get("phase") in TERMINAL:
            return run
        time.sleep(max(0.0, _POLL_S - (time.monotonic() - began)))


def _event(data: str) -> Event:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _patiently(look: Callable[[], Any]) -> Any:
    """A server that does not answer or answers 5xx is asked again for a minute."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return look()
        except ClientError as error:
            if 0 < error.status < 500 or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


class Progress:
    """Prints a line for each task that starts, ends, or is to be tried again, to stderr. `failed`: those it told."""

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def __call__(self, event: Event) -> None:
        phase, key, why = str(event.get("to")), str(event.get("task")), safe(str(event.get("reason") or ""))
        again = phase == "ready" and event.get("from") in ("admitted", "active")
        if event.get("entity") != "task" or not (again or phase in ("active", *TASK_TERMINAL)):
            return
        if phase == "failed":
            self.failed.add(key)
        if phase in ("active", "succeeded"):
            why = ""
        parts = (f"  {safe(key)}", "attempt failed" if again else phase, why)
        print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)


def follow_log(api: Api, run_id: int, task: str, *, attempt: int | None, rank: int, follow: bool, raw: bool) -> bool:
    """Print a task's log; whether there was anything in it.

    With `follow`: until it has ended, going on with the next attempt where there is one.
    """
    wrote = False
    path = f"/run/{segment(run_id)}/task/{segment(task)}/log"
    offset, quiet, current = 0, 0, attempt
    while True:
        piece = _patiently(lambda: _piece(api, path, current, rank, offset))  # noqa: B023 - called at once
        if current is None and piece.get("attempt") is not None:
            current = int(piece["attempt"])
        if piece["text"]:
            sys.stdout.write(log_text(piece["text"], raw=raw))
            sys.stdout.flush()
            wrote = True
        more = piece["next_offset"] > offset
        offset = piece["next_offset"]
        if piece["eof"] or (not follow and not more):
            if not follow or attempt is not None or current is None:
                return wrote
            if not _has_next_attempt(api, run_id, task, current):
                return wrote
            current, offset, quiet = current + 1, 0, 0
        elif more:
            quiet = 0
        else:
            time.sleep(_LOG_PAUSES_S[min(quiet, len(_LOG_PAUSES_S) - 1)])
            quiet += 1


def _piece(api: Api, path: str, attempt: int | None, rank: int, offset: int) -> dict[str, Any]:
    reply = api.get(path, attempt=attempt, rank=rank, offset=offset, limit=_LOG_BLOCK)
    return dict(reply.get("result", reply))


def _has_next_attempt(api: Api, run_id: int, task: str, current: int) -> bool:
    """Whether another attempt follows; waits for the answer while the task is not over."""
    while True:
        run = _patiently(lambda: read_run(api, run_id))
        row = next((row for row in run["tasks"] if row["key"] == task), None)
        if row is not None and any(made["no"] > current for made in row["attempts"]):
            return True
        if row is None or row["phase"] in TASK_TERMINAL or run["phase"] in TERMINAL:
            return False
        time.sleep(_POLL_S)
