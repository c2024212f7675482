"""The watch: turns events of the backends into rung bells, and every second rings what is due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from myapp.controllers import sweep
from myapp.controllers.engine import Engine
from myapp.controllers.heard import Heard
from myapp.persistence.unit_of_work import Topic

log = structlog.get_logger(__name__)
TICK_S = 1.0
ORPHANS_EVERY_S = 60.0


class Watcher(Protocol):
    """What a backend offers to be told of changes: attempt ids, waiting at most `timeout` seconds."""

    def events(self, timeout: float) -> Iterable[int]: ...

    def close(self) -> None: ...


def run(engine: Engine, watcher: Watcher, stop: threading.Event, *, report: Callable[[], None] = lambda: None) -> None:
    """Loop until `stop` is set. `report` is called about once a minute (to write down what the backends have).

    What may take long (deleting what ended, looking for orphans) is done beside it, so that no event waits for it.
    """
    keeper = threading.Thread(target=_keep_house, args=(engine, stop, report), name="housekeeping", daemon=True)
    keeper.start()
    rung, heard = sweep.Rung(), Heard()
    due_at = time.monotonic()
    all_seen = False  # nobody knows what was missed before a start, or while the database was away
    while not stop.is_set():
        now = time.monotonic()
        for attempt_id in watcher.events(max(0.0, min(TICK_S, due_at - now))):
            engine.context.database.bell.ring(Topic.ATTEMPT, str(attempt_id))
            heard.rung(attempt_id, now)
        now = time.monotonic()
        if now >= due_at:
            due_at = now + TICK_S
            all_seen = all_seen or _quietly("live", lambda: sweep.live(engine))
            all_seen = _quietly("due", lambda: sweep.due(engine, rung)) and all_seen
            _quietly("heard", lambda: heard.again(engine, time.monotonic()))
    keeper.join(timeout=5.0)
    watcher.close()


def _keep_house(engine: Engine, stop: threading.Event, report: Callable[[], None]) -> None:
    """Delete what ended; once a minute report what there is and look for orphans."""
    orphans_at = time.monotonic()
    while True:
        _quietly("reap", lambda: _reap_all(engine, stop))
        if time.monotonic() >= orphans_at:
            orphans_at = time.monotonic() + ORPHANS_EVERY_S
            _quietly("report", report)
            for kind in engine.backends:
                _quietly("orphans", lambda kind=kind: sweep.orphans(engine, kind))  # type: ignore[misc]
        if stop.wait(TICK_S):
            return


def _reap_all(engine: Engine, stop: threading.Event) -> None:
    while not stop.is_set() and sweep.reap(engine) >= sweep.REAP_BATCH:
        pass


def _quietly(what: str, step: Callable[[], object]) -> bool:
    """Whether it could be done. The database or a backend may be away for a while: say so and go on."""
    try:
        step()
        return True
    except Exception as error:
        log.warning("watch step failed, will be tried again", step=what, error=str(error)[:500])
        return False
