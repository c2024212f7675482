"""The bell on Redis: rings workers through Celery, wakes event streams by publishing. It never raises."""

from __future__ import annotations

import time
from collections.abc import Mapping

import redis
import structlog
from celery import Celery

from myapp.persistence.unit_of_work import Topic

log = structlog.get_logger(__name__)
ANSWER_S = 2.0  # a Redis that is frozen costs whoever rings that long, and no more
SILENT_S = 1.0  # after a failure nothing is tried for this long: nobody waits for a Redis that is away


def channel(run_id: int) -> str:
    return f"cube:run:{run_id}"


class RedisBell:
    def __init__(self, app: Celery, redis_url: str) -> None:
        self._app = app
        self._redis = redis.Redis.from_url(redis_url, socket_timeout=ANSWER_S, socket_connect_timeout=1)
        self._silent_until = 0.0

    def ring(self, topic: Topic, key: str) -> None:
        if time.monotonic() < self._silent_until:
            return
        try:
            self._app.send_task(f"cube.{topic}", args=(key,), retry=False, ignore_result=True)
        except Exception as error:  # whatever Redis or kombu raise: the outbox and the sweep are the net
            self._fail(error)

    def moved(self, runs: Mapping[int, int]) -> None:
        if time.monotonic() < self._silent_until:
            return
        try:
            if len(runs) == 1:
                for run_id, seq in runs.items():
                    self._redis.publish(channel(run_id), seq)
                return
            with self._redis.pipeline(transaction=False) as pipe:
                for run_id, seq in runs.items():
                    pipe.publish(channel(run_id), seq)
                pipe.execute()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._silent_until = time.monotonic() + SILENT_S
        log.warning("the bell is silent", error=str(error))
