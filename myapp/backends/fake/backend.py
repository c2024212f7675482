"""A backend in memory that misbehaves on request: for tests of everything above it.

It keeps the contract of `ExecutionBackend`; the scripts decide when its jobs end and which of its verbs fail.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from myapp.domain.ports import (
    Addresses,
    AttemptKey,
    BackendError,
    Capacity,
    Cause,
    Collected,
    Handle,
    IdentityConflict,
    LaunchSpec,
    LogSlice,
    Observation,
    ObservedState,
    OwnedObject,
    RankState,
)
from myapp.domain.runs.gang import summarise

VERBS = frozenset(
    {"addresses", "arm", "fire", "observe", "stop", "reap", "list_owned", "destroy", "read_log", "collect"}
)


@dataclass(frozen=True)
class Script:
    """How one rank behaves. Times in seconds after the release; `run_s` None: it never ends by itself."""

    run_s: float | None = 0.0
    pending_s: float = 0.0
    exit_code: int = 0
    cause: Cause | None = None
    message: str = ""
    ignores_stop: bool = False             # ends only when its grace is over
    log: bytes = b""
    collected: Collected = field(default_factory=Collected)


@dataclass
class _Object:
    key: AttemptKey
    spec: LaunchSpec
    uid: str
    created_at: float
    fired_at: float | None = None
    starts: int = 0
    stop_at: float | None = None
    kill_at: float | None = None
    gone: bool = False                     # killed from outside: nothing lives, nothing was reported


Planner = Callable[[LaunchSpec, AttemptKey, int], Script]


class FakeBackend:
    """Every job succeeds at once, unless `plan(spec, key, rank)` says otherwise.

    `clock` gives unix seconds. Thread-safe.
    """

    kind = "fake"

    def __init__(
        self, plan: Planner | Script | None = None, clock: Callable[[], float] = time.time,
        capacity: list[Capacity] | None = None,
    ) -> None:
        script = plan if isinstance(plan, Script) else Script()
        self._plan: Planner = plan if callable(plan) else lambda spec, key, rank: script
        self._clock = clock
        self._capacity = capacity or [
            Capacity("local", "cpu", 4000), Capacity("local", "memory", 8 << 30), Capacity("local", "gpu", 0)
        ]
        self._objects: dict[str, _Object] = {}
        self._lock = threading.RLock()
        self._failures: dict[str, list[BackendError]] = {}
        self.calls: list[tuple[str, str]] = []

    # -- scripting --------------------------------------------------------------------------------------------------

    def fail(self, verb: str, *errors: BackendError) -> None:
        """The next calls of `verb` raise these, one each. For `observe` it answers UNKNOWN instead."""
        if verb not in VERBS:
            raise ValueError(f"no verb '{verb}'")
        with self._lock:
            self._failures.setdefault(verb, []).extend(errors)

    def vanish(self, object_name: str) -> None:
        """Its processes are gone without a word; the identity is provably absent."""
        with self._lock:
            self._objects[object_name].gone = True

    def starts(self, object_name: str) -> int:
        """How many times its command was started (must never exceed 1)."""
        with self._lock:
            found = self._objects.get(object_name)
            return found.starts if found else 0

    def _enter(self, verb: str, object_name: str = "") -> None:
        self.calls.append((verb, object_name))
        errors = self._failures.get(verb)
        if errors:
            raise errors.pop(0)

    # -- the contract -----------------------------------------------------------------------------------------------

    def addresses(self, spec_name: str, key: AttemptKey, roles: dict[str, int], ports: tuple[str, ...]) -> Addresses:
        with self._lock:
            self._enter("addresses", key.object_name)
            base = 20000 + key.attempt_id % 1000 * 10
            hosts = {role: ["127.0.0.1"] * count for role, count in roles.items()}
            return Addresses(hosts, {name: base + i for i, name in enumerate(ports)})

    def arm(self, spec: LaunchSpec, key: AttemptKey) -> Handle:
        with self._lock:
            self._enter("arm", key.object_name)
            known = self._objects.get(key.object_name)
            if known is None:
                known = _Object(key, spec, str(uuid.uuid4()), self._clock())
                self._objects[key.object_name] = known
            elif known.key.attempt_id != key.attempt_id or known.spec.sha256 != spec.sha256:
                raise IdentityConflict(f"{key.object_name} belongs to attempt {known.key.attempt_id}")
            return Handle(known.uid)

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        with self._lock:
            self._enter("fire", key.object_name)
            found = self._find(key, handle)
            if found and found.fired_at is None and found.stop_at is None and not found.gone:
                found.fired_at = self._clock()
                found.starts += 1

    def observe(self, key: AttemptKey, handle: Handle) -> Observation:
        with self._lock:
            try:
                self._enter("observe", key.object_name)
            except BackendError as error:
                return Observation(ObservedState.UNKNOWN, message=str(error))
            found = self._find(key, handle)
            if found is None:
                return Observation(ObservedState.ABSENT)
            ranks = [self._rank(found, index) for index in range(len(found.spec.ranks))]
            return summarise(ranks, found.spec.success_roles)

    def stop(self, key: AttemptKey, handle: Handle, grace_s: int) -> None:
        with self._lock:
            self._enter("stop", key.object_name)
            found = self._find(key, handle)
            if found:
                now = self._clock()
                found.stop_at = now if found.stop_at is None else found.stop_at
                kill_at = now + grace_s
                found.kill_at = kill_at if found.kill_at is None else min(found.kill_at, kill_at)

    def reap(self, key: AttemptKey, handle: Handle) -> None:
        with self._lock:
            self._enter("reap", key.object_name)
            if self._find(key, handle):
                del self._objects[key.object_name]

    def list_owned(self) -> Iterator[OwnedObject]:
        with self._lock:
            self._enter("list_owned")
            found = [OwnedObject(n, o.uid, o.key.attempt_id, o.created_at) for n, o in sorted(self._objects.items())]
        yield from found

    def destroy(self, owned: OwnedObject) -> None:
        with self._lock:
            self._enter("destroy", owned.object_name)
            found = self._objects.get(owned.object_name)
            if found and found.uid == owned.uid:
                del self._objects[owned.object_name]

    def read_log(self, key: AttemptKey, handle: Handle, rank: int, offset: int, limit: int) -> LogSlice:
        with self._lock:
            self._enter("read_log", key.object_name)
            found = self._find(key, handle)
            if found is None or not 0 <= rank < len(found.spec.ranks):
                return LogSlice(b"", offset, offset, True)
            started = found.fired_at is not None
            log = self._plan(found.spec, found.key, rank).log if started else b""
            data = log[offset:offset + limit]
            ended = self._rank(found, rank).state in (ObservedState.SUCCEEDED, ObservedState.FAILED)
            return LogSlice(data, offset, offset + len(data), ended and offset + len(data) >= len(log))

    def collect(self, key: AttemptKey, handle: Handle) -> Collected:
        with self._lock:
            self._enter("collect", key.object_name)
            found = self._find(key, handle)
            if found is None:
                return Collected(problems=["the object is gone: its outputs are lost"])
            return self._plan(found.spec, found.key, 0).collected

    def capacity(self) -> list[Capacity]:
        return list(self._capacity)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _find(self, key: AttemptKey, handle: Handle) -> _Object | None:
        found = self._objects.get(key.object_name)
        return found if found and found.uid == handle.uid else None

    def _rank(self, found: _Object, index: int) -> RankState:
        rank = found.spec.ranks[index]
        base = RankState(rank.role, rank.index, rank.rank, ObservedState.INERT)
        if found.gone:
            return replace(base, state=ObservedState.ABSENT)
        now, script = self._clock(), self._plan(found.spec, found.key, rank.rank)
        if found.fired_at is None:
            if found.stop_at is None:
                return base
            return replace(
                base, state=ObservedState.FAILED, cause=Cause.CANCELLED, message="never started",
                finished_at=found.stop_at,
            )
        started = found.fired_at + script.pending_s
        natural = None if script.run_s is None else started + script.run_s
        stopped = found.kill_at if script.ignores_stop else found.stop_at
        if natural is not None and natural <= now and (stopped is None or natural <= stopped):
            return self._ended(base, script, started, natural)
        if stopped is not None and stopped <= now:
            code = 137 if script.ignores_stop else 143
            return replace(
                base, state=ObservedState.FAILED, exit_code=code, cause=Cause.CANCELLED, message="stopped (cancelled)",
                started_at=started, finished_at=stopped,
            )
        if found.stop_at is not None:
            return replace(base, state=ObservedState.ENDING)
        if now < started:
            return replace(base, state=ObservedState.PENDING, message=script.message)
        return replace(base, state=ObservedState.RUNNING, started_at=started)

    @staticmethod
    def _ended(base: RankState, script: Script, started: float, at: float) -> RankState:
        if script.exit_code == 0 and script.cause is None:
            return replace(base, state=ObservedState.SUCCEEDED, exit_code=0, started_at=started, finished_at=at)
        return replace(
            base, state=ObservedState.FAILED, exit_code=script.exit_code, cause=script.cause or Cause.EXIT_NONZERO,
            message=script.message or f"exit code {script.exit_code}", started_at=started, finished_at=at,
        )
