"""How a worker receives a message."""

from __future__ import annotations

from celery.worker.request import Request


class Doorbell(Request):
    """Never acknowledged: its queue keeps nothing that was taken (`no_ack`), so there is nothing to say to Redis.

    Said nevertheless, it would cost a round trip, and to a Redis that has gone meanwhile it ends the worker.
    """

    def acknowledge(self) -> None:
        self.acknowledged = True
