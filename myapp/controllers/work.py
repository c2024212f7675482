"""What a rung bell leads to: look, do what can be done, and go on with what that made possible.

Each function is short and idempotent, raises nothing that a later look would not mend, and may run twice at once.
"""

from __future__ import annotations

from collections import deque

import structlog
from sqlalchemy.exc import DBAPIError

from myapp.controllers import admission as admit
from myapp.controllers import advance, reconcile, schedule
from myapp.controllers import sweep as net
from myapp.controllers.engine import Engine
from myapp.persistence.unit_of_work import Topic

log = structlog.get_logger(__name__)
INLINE = 2  # launches done here; more are rung, so that other workers share them
_rung = net.Rung()


def run(engine: Engine, key: str) -> None:
    """Look at a run: start it, wake its tasks, stop or end it."""
    advance.step(engine, int(key))
    for kind in engine.backends:
        _admit_and_launch(engine, kind)


def attempt(engine: Engine, key: str) -> None:
    """Look at an attempt; when it ended, give what it held to the next."""
    if reconcile.step(engine, int(key)) is not None:
        for kind in engine.backends:
            _admit_and_launch(engine, kind)


def admission(engine: Engine, key: str) -> None:
    if key in engine.backends:
        _admit_and_launch(engine, key)


def _admit_and_launch(engine: Engine, kind: str) -> None:
    todo = deque(admit.step(engine, kind))
    for _ in range(min(INLINE, len(todo))):
        _launch(engine, kind, todo.popleft())
    for attempt_id in todo:
        engine.context.database.bell.ring(Topic.ATTEMPT, str(attempt_id))


def _launch(engine: Engine, kind: str, attempt_id: int) -> None:
    if reconcile.step(engine, attempt_id) is not None:  # refused at once: what it held is free again
        engine.context.database.bell.ring(Topic.ADMISSION, kind)


def sweep(engine: Engine) -> None:
    net.due(engine, _rung)


def schedules(engine: Engine) -> None:
    schedule.step(engine)


def started(engine: Engine) -> None:
    """A worker has come up: whatever was missed while none was there is looked at now."""
    try:
        net.live(engine)
        net.due(engine, _rung)
    except DBAPIError as error:
        log.warning("the database is away; the sweep will find what is due", error=str(error))
