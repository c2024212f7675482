"""Event streams: who waits for which run, woken by Redis.

All streams of a process share one Redis connection and one thread. A wake-up is only a hint: what is sent comes from
the database, after the cursor. Without Redis the streams look into the database every two seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from myapp.domain.errors import Unavailable

log = logging.getLogger(__name__)

CHANNEL = "cube:run:"
KEEP_ALIVE_S = 8.0
POLL_S = 2.0
_LISTEN_S = 5.0
_RECONNECT_S = 1.0
_RETRY_AFTER_S = 10


class Waiter:
    """One stream's place in the waiting room."""

    def __init__(self, streams: Streams, run_id: int, user_id: int) -> None:
        self._streams = streams
        self.run_id = run_id
        self.user_id = user_id
        self.event = threading.Event()

    @property
    def closing(self) -> bool:
        return self._streams.closing

    def wait(self, seconds: float) -> None:
        """Until the run moved, the server stops, or `seconds` have passed (two at most while Redis is away)."""
        self.event.wait(seconds if self._streams.listening else min(seconds, POLL_S))
        self.event.clear()


class Streams:
    """`limit`: most streams of this process; one user may hold half of them."""

    def __init__(self, redis_url: str, limit: int) -> None:
        self._url = redis_url
        self._limit = max(1, limit)
        self._lock = threading.Lock()
        self._waiters: dict[int, set[Waiter]] = {}
        self._users: Counter[int] = Counter()
        self._pubsub: Any = None
        self._thread: threading.Thread | None = None
        self.listening = False
        self.closing = False

    def __len__(self) -> int:
        return sum(self._users.values())

    @contextmanager
    def waiting(self, waiter: Waiter) -> Iterator[Waiter]:
        """Holds what `reserve` gave until the stream ends."""
        try:
            yield waiter
        finally:
            self.release(waiter)

    def reserve(self, run_id: int, user_id: int) -> Waiter:
        """A place for one more stream. Raises Unavailable when there is none."""
        waiter = Waiter(self, run_id, user_id)
        with self._lock:
            mine = self._users[user_id]
            if self.closing or len(self) >= self._limit or (mine and mine >= max(1, self._limit // 2)):
                raise Unavailable(
                    "too many event streams are open",
                    code="too_many_streams",
                    retry_after=_RETRY_AFTER_S,
                    resolution="Close other pages that follow runs, or ask for the run's state now and then instead.",
                )
            self._users[user_id] += 1
            first = run_id not in self._waiters
            self._waiters.setdefault(run_id, set()).add(waiter)
            self._start()
            if first:
                self._command("subscribe", run_id)
        return waiter

    def release(self, waiter: Waiter) -> None:
        with self._lock:
            others = self._waiters.get(waiter.run_id)
            if others is None or waiter not in others:
                return
            others.discard(waiter)
            self._users[waiter.user_id] -= 1
            if not self._users[waiter.user_id]:
                del self._users[waiter.user_id]
            if not others:
                del self._waiters[waiter.run_id]
                self._command("unsubscribe", waiter.run_id)

    def close(self) -> None:
        """End every stream: their clients come back and go on after their cursor. Callable from a signal handler."""
        self.closing = True
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                waiter.event.set()

    def wake(self, run_id: int) -> None:
        for waiter in list(self._waiters.get(run_id, ())):
            waiter.event.set()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="run-events", daemon=True)
            self._thread.start()

    def _command(self, verb: str, run_id: int) -> None:
        if self._pubsub is None:
            return
        try:
            getattr(self._pubsub, verb)(f"{CHANNEL}{run_id}")
        except (RedisError, OSError, ValueError):
            self.listening = False  # the listener finds out by itself and subscribes anew

    def _listen(self) -> None:
        while not self.closing:
            client: Any = Redis.from_url(self._url, socket_connect_timeout=2, socket_timeout=_LISTEN_S * 2)
            pubsub = client.pubsub(ignore_subscribe_messages=True)
            try:
                client.ping()
                with self._lock:
                    runs = list(self._waiters)
                    pubsub.subscribe("cube:run", *(f"{CHANNEL}{run_id}" for run_id in runs))
                    self._pubsub, self.listening = pubsub, True
                for run_id in runs:
                    self.wake(run_id)  # what happened while nobody listened
                while not self.closing:
                    message = pubsub.get_message(timeout=_LISTEN_S)
                    if message and message.get("type") == "message":
                        self._heard(message["channel"])
            except (RedisError, OSError, ValueError) as error:
                log.info("event streams poll the database: Redis does not answer (%s)", type(error).__name__)
            finally:
                with self._lock:
                    self._pubsub, self.listening = None, False
                try:
                    pubsub.close()
                    client.close()
                except (RedisError, OSError):
                    pass
            if not self.closing:
                time.sleep(_RECONNECT_S)

    def _heard(self, channel: bytes | str) -> None:
        name = channel.decode() if isinstance(channel, bytes) else channel
        suffix = name.removeprefix(CHANNEL)
        if suffix.isdecimal():
            self.wake(int(suffix))
