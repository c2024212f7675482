"""The launch protocol, checked over every interleaving: two workers, a sweeper, crashes anywhere, stalls for ever.

The explorer drives the project's own `decide` and `next_version`; it only models the world around them: objects that
are created, fired, stopped and evicted, and workers that lose their memory or wake late. The weakened variants show
that the check can fail: each breaks one rule of the protocol and must be caught.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pytest

from myapp.domain.ports import Observation, ObservedState
from myapp.domain.runs.decide import AttemptSnapshot, Decision, Do, Outcome, StopReason, decide
from myapp.domain.runs.phases import ATTEMPT_LIVE, AttemptPhase, Desired, Entity
from myapp.domain.runs.transitions import StaleRow, next_version

MAX_ATTEMPTS, MAX_UIDS, MAX_EVICTIONS = 2, 4, 2
NOW = 1000.0
IDLE: tuple[Any, ...] = ("idle",)
SEEN = {"S": ObservedState.INERT, "R": ObservedState.RUNNING, "D": ObservedState.SUCCEEDED, "T": ObservedState.ENDING}


class Row(NamedTuple):
    number: int
    phase: AttemptPhase
    version: int
    uid: int
    stopping: bool
    absent: bool
    outcome: Outcome | None


class Obj(NamedTuple):
    attempt: int
    uid: int
    state: str  # S inert, R running, D done, T ending


class World(NamedTuple):
    row: Row
    desired: Desired
    objects: frozenset[Obj]
    next_uid: int
    evictions: int
    workers: tuple[tuple[Any, ...], tuple[Any, ...]]
    sweeper: tuple[Any, ...]


@dataclass(frozen=True)
class Variant:
    """What is weakened. The defaults are the protocol."""

    random_names: bool = False
    created_running: bool = False
    fire_by_name: bool = False
    errors_read_as_absent: bool = False
    ending_read_as_absent: bool = False


@cache
def ask(phase: AttemptPhase, desired: Desired, stopping: bool, absent: bool, seen: ObservedState | None) -> Decision:
    snapshot = AttemptSnapshot(
        phase=phase,
        desired=desired,
        stop_reason=StopReason.CANCEL if stopping else None,
        stop_asked_at=0.0 if stopping else None,
        absent_since=0.0 if absent else None,
    )
    return decide(snapshot, None if seen is None else Observation(seen), NOW)


def by_uid(objects: frozenset[Obj], uid: int) -> Obj | None:
    return next((o for o in objects if o.uid == uid), None)


def by_name(objects: frozenset[Obj], attempt: int) -> Obj | None:
    return next((o for o in objects if o.attempt == attempt), None)


def become(objects: frozenset[Obj], obj: Obj, state: str | None) -> frozenset[Obj]:
    rest = objects - {obj}
    return rest if state is None else rest | {obj._replace(state=state)}


def delete(objects: frozenset[Obj], uid: int) -> frozenset[Obj]:
    obj = by_uid(objects, uid)
    return objects if obj is None else become(objects, obj, "T" if obj.state in "RT" else None)


def move(row: Row, expect: int, *path: AttemptPhase, **changes: Any) -> Row:
    """The guarded UPDATE: raises StaleRow exactly when the real one matches no row."""
    version = expect
    for phase in path:
        version = next_version(Entity.ATTEMPT, row.phase, row.version, target=phase, expect_version=version)
        row = row._replace(phase=phase, version=version, **changes)
    return row


def close(row: Row, read: Row) -> Row:
    ended = move(row, read.version, AttemptPhase(str(read.outcome)))
    if read.outcome is Outcome.LOST and row.number < MAX_ATTEMPTS:
        return Row(row.number + 1, AttemptPhase.PLANNED, ended.version + 1, 0, False, False, None)
    return ended


def close_at_once(row: Row, read: Row, outcome: Outcome) -> Row:
    sealed = move(row, read.version, AttemptPhase.FINALIZING, outcome=outcome)
    return close(sealed, sealed)


def worker_steps(w: World, i: int, v: Variant) -> Iterator[World]:
    me, row = w.workers[i], w.row

    def then(state: tuple[Any, ...], **changes: Any) -> World:
        workers = (state, w.workers[1]) if i == 0 else (w.workers[0], state)
        return w._replace(workers=workers, **changes)

    if me != IDLE:
        yield then(IDLE)  # killed: forgets everything
    kind = me[0]
    if kind == "idle":
        if row.phase in ATTEMPT_LIVE:
            yield then(("read", row, w.desired))
    elif kind == "read":
        yield from look(w, me[1], me[2], v, then)
    elif kind == "create":
        yield from create(w, me[1], v, then)
    elif kind == "record":
        read, uid = me[1], me[2]
        wanted = w.desired is Desired.RUN  # read again under the lock of the run
        path = [AttemptPhase.ARMED] + ([AttemptPhase.RELEASED] if wanted else [])
        yield from cas(
            then,
            row,
            read,
            lambda: move(row, read.version, *path, uid=uid),
            ("fire", uid, read.number) if wanted else IDLE,
        )
    elif kind == "release":
        read = me[1]
        if w.desired is Desired.RUN:
            yield from cas(
                then, row, read, lambda: move(row, read.version, AttemptPhase.RELEASED), ("fire", read.uid, read.number)
            )
        else:
            yield then(IDLE)
    elif kind == "fire":
        obj = by_name(w.objects, me[2]) if v.fire_by_name else by_uid(w.objects, me[1])
        yield then(IDLE, objects=become(w.objects, obj, "R") if obj and obj.state == "S" else w.objects)
    elif kind in ("note_stop", "note_absent"):
        read = me[1]
        if row.version != read.version:
            yield then(IDLE)
        elif kind == "note_stop":
            yield then(("delete", read.uid), row=row._replace(stopping=True))
        else:
            yield then(IDLE, row=row._replace(absent=True))
    elif kind == "delete":
        yield then(IDLE, objects=delete(w.objects, me[1]))
    elif kind == "finalize":
        read, outcome = me[1], me[2]
        # the store was full: finalizing, and closed later; or sealed at once: both steps in one transaction
        yield from cas(then, row, read, lambda: move(row, read.version, AttemptPhase.FINALIZING, outcome=outcome), IDLE)
        yield from cas(then, row, read, lambda: close_at_once(row, read, outcome), IDLE)
    elif kind == "close":
        read = me[1]
        yield from cas(then, row, read, lambda: close(row, read), IDLE)
    elif kind == "close_unarmed":
        read = me[1]
        yield from cas(then, row, read, lambda: move(row, read.version, AttemptPhase.STOPPED), IDLE)


def cas(then: Any, row: Row, read: Row, attempt: Any, after: tuple[Any, ...]) -> Iterator[World]:
    try:
        yield then(after, row=attempt())
    except StaleRow:
        yield then(IDLE)


def look(w: World, read: Row, desired: Desired, v: Variant, then: Any) -> Iterator[World]:
    seen: list[ObservedState | None] = [None]
    if read.phase in (AttemptPhase.ARMED, AttemptPhase.RELEASED):
        obj = by_uid(w.objects, read.uid)
        if obj is not None and obj.state == "T" and v.ending_read_as_absent:
            obj = None
        seen = [ObservedState.ABSENT if obj is None else SEEN[obj.state], ObservedState.UNKNOWN]
        if v.errors_read_as_absent:
            seen.append(ObservedState.ABSENT)
    for one in seen:
        d = ask(read.phase, desired, read.stopping, read.absent, one)
        yield then(
            {
                Do.ARM: ("create", read),
                Do.CLOSE_UNARMED: ("close_unarmed", read),
                Do.RELEASE: ("release", read),
                Do.FIRE: ("fire", read.uid, read.number),
                Do.STOP: ("note_stop", read),
                Do.MARK_ABSENT: ("note_absent", read),
                Do.FINALIZE: ("finalize", read, d.outcome),
                Do.SEAL: ("close", read),
                Do.NOTHING: IDLE,
            }[d.do]
        )


def create(w: World, read: Row, v: Variant, then: Any) -> Iterator[World]:
    there = None if v.random_names else by_name(w.objects, read.number)
    if there is not None:
        yield then(("record", read, there.uid))
    elif w.next_uid <= MAX_UIDS:
        new = Obj(read.number, w.next_uid, "R" if v.created_running else "S")
        yield then(("record", read, w.next_uid), objects=w.objects | {new}, next_uid=w.next_uid + 1)


def world_steps(w: World) -> Iterator[World]:
    row = w.row
    for obj in w.objects:
        if obj.state == "R":
            yield w._replace(objects=become(w.objects, obj, "D"))
        if obj.state == "T":
            yield w._replace(objects=become(w.objects, obj, None))
        if obj.state in "SR" and w.evictions < MAX_EVICTIONS:
            yield w._replace(
                objects=become(w.objects, obj, "T" if obj.state == "R" else None), evictions=w.evictions + 1
            )
    if w.desired is Desired.RUN:
        yield w._replace(desired=Desired.STOP)
    if w.sweeper != IDLE:
        yield w._replace(objects=delete(w.objects, w.sweeper[1]), sweeper=IDLE)
        return
    for obj in w.objects:
        recorded = row.phase is not AttemptPhase.PLANNED
        if obj.attempt != row.number or row.phase not in ATTEMPT_LIVE or (recorded and obj.uid != row.uid):
            yield w._replace(sweeper=("delete", obj.uid))


def violation(w: World) -> str | None:
    busy = [o for o in w.objects if o.state in "RT"]
    if len(busy) > 1:
        return "two objects hold devices"
    for obj in busy:
        if obj.attempt != w.row.number or w.row.phase not in ATTEMPT_LIVE:
            return "devices held though the attempt has ended"
    return None


def explore(v: Variant, *, first_violation: bool = False) -> tuple[dict[World, list[World]], set[str]]:
    first = World(
        Row(1, AttemptPhase.PLANNED, 0, 0, False, False, None), Desired.RUN, frozenset(), 1, 0, (IDLE, IDLE), IDLE
    )
    graph: dict[World, list[World]] = {}
    found: set[str] = set()
    todo = deque([first])
    seen = {first}
    while todo:
        w = todo.popleft()
        bad = violation(w)
        if bad:
            found.add(bad)
            graph[w] = []
            if first_violation:
                break
            continue
        graph[w] = [*worker_steps(w, 0, v), *worker_steps(w, 1, v), *world_steps(w)]
        for after in graph[w]:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return graph, found


@pytest.fixture(scope="module")
def protocol() -> tuple[dict[World, list[World]], set[str]]:
    return explore(Variant())


def test_never_two_and_never_after_the_end(protocol: tuple[dict[World, list[World]], set[str]]) -> None:
    graph, found = protocol
    assert found == set()
    assert len(graph) > 50_000


def test_every_state_can_still_end_well(protocol: tuple[dict[World, list[World]], set[str]]) -> None:
    graph, _ = protocol
    before: dict[World, list[World]] = {}
    for w, afters in graph.items():
        for after in afters:
            before.setdefault(after, []).append(w)
    good = {w for w in graph if w.row.phase not in ATTEMPT_LIVE and not any(o.state in "RT" for o in w.objects)}
    todo = deque(good)
    while todo:
        for w in before.get(todo.popleft(), []):
            if w not in good:
                good.add(w)
                todo.append(w)
    assert len(good) == len(graph)


def test_the_check_is_not_vacuous(protocol: tuple[dict[World, list[World]], set[str]]) -> None:
    graph, _ = protocol
    ended = {(w.row.number, w.row.phase) for w in graph}
    for number in (1, 2):
        for phase in (
            AttemptPhase.ARMED,
            AttemptPhase.RELEASED,
            AttemptPhase.FINALIZING,
            AttemptPhase.SUCCEEDED,
            AttemptPhase.STOPPED,
        ):
            assert (number, phase) in ended
    assert (2, AttemptPhase.LOST) in ended
    assert any(o.attempt == 2 and o.state == "R" for w in graph for o in w.objects)
    assert any(o.attempt != w.row.number for w in graph for o in w.objects)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(Variant(random_names=True, created_running=True), id="random name, created running"),
        pytest.param(Variant(created_running=True), id="created running"),
        pytest.param(Variant(fire_by_name=True), id="fired by name"),
        pytest.param(Variant(errors_read_as_absent=True), id="an error read as absence"),
        pytest.param(Variant(ending_read_as_absent=True), id="ending read as absence"),
    ],
)
def test_each_weaker_protocol_is_caught(variant: Variant) -> None:
    _, found = explore(variant, first_violation=True)
    assert found
