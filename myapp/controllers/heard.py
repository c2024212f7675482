"""What the watch has heard of attempts and rung for: rung again while nobody has answered.

A ring may get lost on its way (Redis was restarted, the database did not answer the worker). The row's own
`next_check_at` would be looked at half a minute later; this is the quicker net.
"""

from __future__ import annotations

from collections.abc import Iterable

from myapp.controllers.engine import Engine
from myapp.persistence import due_store
from myapp.persistence.unit_of_work import Topic

FIRST_S = 3.0
MOST_S = 12.0
FORGET_S = 180.0


class Heard:
    """Times in seconds on a monotonic clock that the caller passes."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[float, float, float]] = {}  # attempt -> heard at, due at, wait

    def rung(self, attempt_id: int, now: float) -> None:
        self._waiting[attempt_id] = (now, now + FIRST_S, FIRST_S)

    def again(self, engine: Engine, now: float) -> int:
        """Ring once more for attempts that still stand where they did. How many. Raises what the database raises."""
        due = [attempt_id for attempt_id, (_, at, _) in self._waiting.items() if now >= at]
        if not due:
            return 0
        with engine.context.database.read() as connection:
            open_ids = due_store.still_open(connection, due)
        self._forget(set(due) - open_ids)
        for attempt_id in sorted(open_ids):
            heard_at, _, wait = self._waiting[attempt_id]
            wait = min(wait * 2, MOST_S)
            self._waiting[attempt_id] = (heard_at, now + wait, wait)
            engine.context.database.bell.ring(Topic.ATTEMPT, str(attempt_id))
        self._forget([i for i in open_ids if now > self._waiting[i][0] + FORGET_S])
        return len(open_ids)

    def _forget(self, attempt_ids: Iterable[int]) -> None:
        for attempt_id in attempt_ids:
            del self._waiting[attempt_id]
