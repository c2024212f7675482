"""A limit on failed sign-ins, counted in Redis for all processes together.

A try is counted before the password is looked at and given back when it was right, so that guesses made at once do
not slip through. Without Redis each process counts for itself: the limit loosens, sign-in goes on working.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import RedisError

from myapp.domain.errors import Limited

log = logging.getLogger(__name__)

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_RATE = re.compile(r"\A\s*(\d{1,6})\s*(?:per|/)\s*(\d{1,4})?\s*(second|minute|hour|day)s?\s*\Z")
_MAX_LOCAL = 10_000
_GIVE_BACK = "if redis.call('exists', KEYS[1]) == 1 then return redis.call('decr', KEYS[1]) end return 0"


@dataclass(frozen=True)
class Rate:
    """At most `count` in any window of `seconds`."""

    count: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """`10 per minute`, `5/20 second`. Raises ValueError for anything else."""
        match = _RATE.match(text)
        if match is None or int(match[1]) < 1 or (match[2] and int(match[2]) < 1):
            raise ValueError(f"CUBE_LOGIN_RATE {text!r} is not a rate such as '10 per minute'")
        return cls(int(match[1]), int(match[2] or 1) * _UNITS[match[3]])


class Redis(Protocol):
    def pipeline(self, transaction: bool = True) -> Any: ...

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any: ...


class LoginThrottle:
    """Counts by user name and address and, ten times as generous, by address alone (a guess at each of many names)."""

    def __init__(self, redis: Redis | None, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._local: dict[str, tuple[int, float]] = {}

    def enter(self, username: str, address: str) -> Attempt:
        """Count a try. Raises Limited, with the seconds to wait, when there were too many."""
        keys = {
            _key("user", username.casefold(), address): self._rate.count,
            _key("address", address): self._rate.count * 10,
        }
        taken: list[str] = []
        for key, limit in keys.items():
            count, wait = self._count(key)
            taken.append(key)
            if count > limit:
                self._give_back(taken[:-1])
                raise Limited(
                    "too many sign-in attempts",
                    retry_after=max(1, math.ceil(wait)),
                    resolution=f"Wait {max(1, math.ceil(wait))} s, then try again.",
                )
        return Attempt(self, taken)

    def _count(self, key: str) -> tuple[int, float]:
        if self._redis is not None:
            try:
                pipe = self._redis.pipeline(transaction=True)
                pipe.set(key, 0, ex=self._rate.seconds, nx=True)
                pipe.incr(key)
                pipe.ttl(key)
                _, count, ttl = pipe.execute()
                return int(count), float(ttl if ttl and ttl > 0 else self._rate.seconds)
            except (RedisError, OSError) as error:
                log.warning(
                    "sign-in attempts are counted per process: Redis does not answer (%s)", type(error).__name__
                )
        return self._count_here(key)

    def _count_here(self, key: str) -> tuple[int, float]:
        now = self._clock()
        with self._lock:
            if len(self._local) > _MAX_LOCAL:
                self._local = {k: v for k, v in self._local.items() if v[1] > now}
            count, until = self._local.get(key, (0, 0.0))
            if until <= now:
                count, until = 0, now + self._rate.seconds
            self._local[key] = (count + 1, until)
            return count + 1, until - now

    def _give_back(self, keys: list[str]) -> None:
        for key in keys:
            with self._lock:
                if key in self._local:
                    count, until = self._local[key]
                    self._local[key] = (max(0, count - 1), until)
            if self._redis is not None:
                try:
                    self._redis.eval(_GIVE_BACK, 1, key)
                except (RedisError, OSError):
                    pass


class Attempt:
    """One counted try at signing in."""

    def __init__(self, throttle: LoginThrottle, keys: list[str]) -> None:
        self._throttle = throttle
        self._keys = keys

    def succeeded(self) -> None:
        self._throttle._give_back(self._keys)


def _key(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"cube:login:{parts[0]}:{digest}"
