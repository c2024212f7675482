"""The usual ways in which a backend lets one down, each as a backend of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from myapp.backends.fake.backend import FakeBackend, Script
from myapp.domain.ports import AttemptKey, Handle, LaunchSpec, Observation, ObservedState, Transient


class SlowBackend(FakeBackend):
    """Every job is pending for a while and runs for a while."""

    def __init__(self, pending_s: float = 1.0, run_s: float = 1.0, clock: Callable[[], float] = time.time) -> None:
        super().__init__(Script(pending_s=pending_s, run_s=run_s), clock)


class NeverBackend(FakeBackend):
    """No job ends by itself, and none before its grace is over when told to stop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(Script(run_s=None, ignores_stop=True), clock)


class FlakyBackend(FakeBackend):
    """Every verb fails with Transient in `rate` of its calls, half of the times after its work was done.

    `observe` answers UNKNOWN instead.
    """

    def __init__(self, rate: float = 0.5, seed: int = 0, plan: Script | None = None) -> None:
        super().__init__(plan)
        self._rate = rate
        self._random = random.Random(seed)

    def _trouble(self) -> tuple[bool, bool]:
        """(fail before, fail after)"""
        with self._lock:
            if self._random.random() >= self._rate:
                return False, False
            before = self._random.random() < 0.5
            return before, not before

    def arm(self, spec: LaunchSpec, key: AttemptKey) -> Handle:
        before, after = self._trouble()
        if before:
            raise Transient("the backend is busy", retry_after=0)
        handle = super().arm(spec, key)
        if after:
            raise Transient("the answer was lost", retry_after=0)
        return handle

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        self._around(lambda: super(FlakyBackend, self).fire(key, handle))

    def stop(self, key: AttemptKey, handle: Handle, grace_s: int) -> None:
        self._around(lambda: super(FlakyBackend, self).stop(key, handle, grace_s))

    def reap(self, key: AttemptKey, handle: Handle) -> None:
        self._around(lambda: super(FlakyBackend, self).reap(key, handle))

    def observe(self, key: AttemptKey, handle: Handle) -> Observation:
        if any(self._trouble()):
            return Observation(ObservedState.UNKNOWN, message="the backend is busy")
        return super().observe(key, handle)

    def _around(self, work: Callable[[], None]) -> None:
        before, after = self._trouble()
        if before:
            raise Transient("the backend is busy", retry_after=0)
        work()
        if after:
            raise Transient("the answer was lost", retry_after=0)


class AmnesiacBackend(FakeBackend):
    """Forgets an object once it has been fired: it was deleted behind our back."""

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        super().fire(key, handle)
        with self._lock:
            if key.object_name in self._objects:
                self._objects[key.object_name].gone = True


class LyingBackend(FakeBackend):
    """Answers UNKNOWN for the first `storm` observations of each object, whatever is true."""

    def __init__(self, storm: int = 20, plan: Script | None = None) -> None:
        super().__init__(plan)
        self._storm = storm
        self._asked: dict[str, int] = {}

    def observe(self, key: AttemptKey, handle: Handle) -> Observation:
        with self._lock:
            asked = self._asked[key.object_name] = self._asked.get(key.object_name, 0) + 1
        if asked <= self._storm:
            return Observation(ObservedState.UNKNOWN, message="the server is not available")
        return super().observe(key, handle)
