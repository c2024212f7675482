"""What to do about an attempt: the table, and what holds over every combination of facts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from myapp.domain.ports import Observation, ObservedState
from myapp.domain.runs.decide import (
    ABSENT_DEBOUNCE_S,
    STOP_AGAIN_S,
    AttemptSnapshot,
    Decision,
    Do,
    Outcome,
    StopReason,
    decide,
)
from myapp.domain.runs.phases import ATTEMPT_TERMINAL, EDGES, AttemptPhase, Desired, Entity

NOW, GRACE = 1000.0, 30.0
P, S, R = AttemptPhase, ObservedState, StopReason


def snapshot(phase: AttemptPhase = P.RELEASED, desired: Desired = Desired.RUN, **facts: Any) -> AttemptSnapshot:
    return AttemptSnapshot(phase, desired, grace_s=GRACE, **facts)


def seen(state: ObservedState, **facts: Any) -> Observation:
    return Observation(state, **facts)


STOP = Desired.STOP
RELEASED, ARMED = snapshot(), snapshot(P.ARMED)
# (name, snapshot, observation, what to do, outcome or reason, when to look again)
TABLE: list[tuple[str, AttemptSnapshot, Observation | None, Do, Outcome | StopReason | None, float | None]] = [
    ("planned", snapshot(P.PLANNED), None, Do.ARM, None, None),
    ("planned, to stop", snapshot(P.PLANNED, STOP), None, Do.CLOSE_UNARMED, None, None),
    ("armed and inert", ARMED, seen(S.INERT), Do.RELEASE, None, None),
    ("armed, to stop", snapshot(P.ARMED, STOP), seen(S.INERT), Do.STOP, R.CANCEL, NOW + STOP_AGAIN_S),
    ("released but inert", RELEASED, seen(S.INERT), Do.FIRE, None, None),
    ("released, inert, to stop", snapshot(desired=STOP), seen(S.INERT), Do.STOP, R.CANCEL, NOW + STOP_AGAIN_S),
    ("finalizing", snapshot(P.FINALIZING), None, Do.SEAL, None, None),
    ("finalizing, to stop", snapshot(P.FINALIZING, STOP), None, Do.SEAL, None, None),
    ("running", RELEASED, seen(S.RUNNING), Do.NOTHING, None, NOW + 30),
    ("running, deadline to come", snapshot(run_deadline_at=NOW + 7), seen(S.RUNNING), Do.NOTHING, None, NOW + 7),
    (
        "running, deadline passed",
        snapshot(run_deadline_at=NOW),
        seen(S.RUNNING),
        Do.STOP,
        R.TIMEOUT,
        NOW + STOP_AGAIN_S,
    ),
    (
        "pending, deadline passed",
        snapshot(run_deadline_at=NOW),
        seen(S.PENDING),
        Do.STOP,
        R.TIMEOUT,
        NOW + STOP_AGAIN_S,
    ),
    ("pending, not ready", snapshot(ready_deadline_at=NOW), seen(S.PENDING), Do.STOP, R.NOT_READY, NOW + STOP_AGAIN_S),
    ("running, ready in time", snapshot(ready_deadline_at=NOW), seen(S.RUNNING), Do.NOTHING, None, NOW + 30),
    ("broken gang", RELEASED, seen(S.RUNNING, broken=True), Do.STOP, R.PEER, NOW + STOP_AGAIN_S),
    ("complete gang", RELEASED, seen(S.RUNNING, complete=True), Do.STOP, R.COMPLETE, NOW + STOP_AGAIN_S),
    ("cancelled", snapshot(desired=STOP), seen(S.RUNNING), Do.STOP, R.CANCEL, NOW + STOP_AGAIN_S),
    (
        "told to stop just now",
        snapshot(desired=STOP, stop_reason=R.CANCEL, stop_asked_at=NOW - 1),
        seen(S.RUNNING),
        Do.NOTHING,
        None,
        NOW - 1 + STOP_AGAIN_S,
    ),
    (
        "told to stop in vain",
        snapshot(desired=STOP, stop_reason=R.CANCEL, stop_asked_at=NOW - 5),
        seen(S.RUNNING),
        Do.STOP,
        R.CANCEL,
        NOW + STOP_AGAIN_S,
    ),
    (
        "the telling failed",
        snapshot(desired=STOP, stop_reason=R.CANCEL),
        seen(S.RUNNING),
        Do.STOP,
        R.CANCEL,
        NOW + STOP_AGAIN_S,
    ),
    (
        "the first reason stands",
        snapshot(desired=STOP, stop_reason=R.TIMEOUT, stop_asked_at=0.0),
        seen(S.RUNNING),
        Do.STOP,
        R.TIMEOUT,
        NOW + STOP_AGAIN_S,
    ),
    ("ending", snapshot(stop_reason=R.CANCEL, stop_asked_at=0.0), seen(S.ENDING), Do.NOTHING, None, NOW + GRACE / 4),
    ("succeeded", RELEASED, seen(S.SUCCEEDED), Do.FINALIZE, Outcome.SUCCEEDED, None),
    ("failed", RELEASED, seen(S.FAILED), Do.FINALIZE, Outcome.FAILED, None),
    (
        "succeeded though cancelled",
        snapshot(desired=STOP, stop_reason=R.CANCEL, stop_asked_at=0.0),
        seen(S.SUCCEEDED),
        Do.FINALIZE,
        Outcome.SUCCEEDED,
        None,
    ),
    (
        "failed by itself before the cancel reached it",
        snapshot(desired=STOP),
        seen(S.FAILED),
        Do.FINALIZE,
        Outcome.FAILED,
        None,
    ),
    ("stopped", snapshot(desired=STOP, stop_reason=R.CANCEL), seen(S.FAILED), Do.FINALIZE, Outcome.STOPPED, None),
    ("stopped by its timeout", snapshot(stop_reason=R.TIMEOUT), seen(S.FAILED), Do.FINALIZE, Outcome.FAILED, None),
    ("unknown", RELEASED, seen(S.UNKNOWN), Do.NOTHING, None, NOW + 5),
    ("not asked", RELEASED, None, Do.NOTHING, None, NOW + 5),
    ("absent for the first time", RELEASED, seen(S.ABSENT), Do.MARK_ABSENT, None, NOW + ABSENT_DEBOUNCE_S),
    (
        "absent a moment ago too",
        snapshot(absent_since=NOW - 1),
        seen(S.ABSENT),
        Do.NOTHING,
        None,
        NOW - 1 + ABSENT_DEBOUNCE_S,
    ),
    ("absent", snapshot(absent_since=NOW - 2), seen(S.ABSENT), Do.FINALIZE, Outcome.LOST, None),
    ("armed and absent", snapshot(P.ARMED, absent_since=NOW - 2), seen(S.ABSENT), Do.FINALIZE, Outcome.LOST, None),
    (
        "absent after a cancel",
        snapshot(desired=STOP, absent_since=0.0),
        seen(S.ABSENT),
        Do.FINALIZE,
        Outcome.STOPPED,
        None,
    ),
    (
        "absent after a timeout",
        snapshot(stop_reason=R.TIMEOUT, absent_since=0.0),
        seen(S.ABSENT),
        Do.FINALIZE,
        Outcome.FAILED,
        None,
    ),
    (
        "absent after completion",
        snapshot(stop_reason=R.COMPLETE, absent_since=0.0),
        seen(S.ABSENT),
        Do.FINALIZE,
        Outcome.SUCCEEDED,
        None,
    ),
]


@pytest.mark.parametrize(
    ("facts", "observation", "do", "what", "again_at"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_table(
    facts: AttemptSnapshot,
    observation: Observation | None,
    do: Do,
    what: Outcome | StopReason | None,
    again_at: float | None,
) -> None:
    decision = decide(facts, observation, NOW)
    assert (decision.do, decision.outcome or decision.stop_reason, decision.again_at) == (do, what, again_at)


Case = tuple[AttemptSnapshot, Observation | None, Decision]


def everything() -> Iterator[Case]:
    times = (None, NOW - 100.0, NOW - 1.0)
    deadlines = (None, NOW - 1.0, NOW + 1.0)
    observations: list[Observation | None] = [None]
    for state in S:
        observations.append(Observation(state))
        if state in (S.RUNNING, S.PENDING, S.INERT, S.ENDING):
            observations += [Observation(state, broken=True), Observation(state, complete=True)]
    for phase, desired, reason, asked, absent, run_by, ready_by, observation in itertools.product(
        P, Desired, (None, *R), times, times, deadlines, deadlines, observations
    ):
        facts = AttemptSnapshot(phase, desired, reason, asked, absent, run_by, ready_by, GRACE)
        yield facts, observation, decide(facts, observation, NOW)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    found = list(everything())
    assert len(found) > 100_000
    return found


def test_it_is_a_function(cases: list[Case]) -> None:
    assert all(decide(facts, observation, NOW) == decision for facts, observation, decision in cases[::37])


def test_unknown_ends_nothing(cases: list[Case]) -> None:
    for facts, observation, decision in cases:
        if observation is not None and observation.state is S.UNKNOWN and facts.phase in (P.ARMED, P.RELEASED):
            assert decision == Decision(Do.NOTHING, again_at=NOW + 5.0)


def test_one_sight_of_absence_ends_nothing(cases: list[Case]) -> None:
    for facts, observation, decision in cases:
        if observation is not None and observation.state is S.ABSENT and decision.do is Do.FINALIZE:
            assert facts.absent_since is not None
            assert facts.absent_since + ABSENT_DEBOUNCE_S <= NOW


def test_only_absence_is_lost_and_only_an_end_is_an_outcome(cases: list[Case]) -> None:
    for _, observation, decision in cases:
        if decision.do is Do.FINALIZE:
            assert observation is not None
            assert observation.ended or observation.state is S.ABSENT
            assert decision.outcome is not None
            if decision.outcome is Outcome.LOST:
                assert observation.state is S.ABSENT
        else:
            assert decision.outcome is None


def test_what_succeeded_has_succeeded_whatever_was_asked(cases: list[Case]) -> None:
    for facts, observation, decision in cases:
        if observation is not None and observation.state is S.SUCCEEDED and facts.phase in (P.ARMED, P.RELEASED):
            assert decision == Decision(Do.FINALIZE, Outcome.SUCCEEDED)


def test_nothing_is_fired_unless_released_nor_when_it_is_to_stop(cases: list[Case]) -> None:
    for facts, observation, decision in cases:
        if decision.do in (Do.FIRE, Do.RELEASE):
            assert observation is not None
            assert observation.state is S.INERT
            assert facts.phase is (P.RELEASED if decision.do is Do.FIRE else P.ARMED)
            assert facts.desired is Desired.RUN
            assert facts.stop_reason is None


def test_every_decision_keeps_to_the_edges(cases: list[Case]) -> None:
    leads_to = {Do.ARM: P.ARMED, Do.CLOSE_UNARMED: P.STOPPED, Do.RELEASE: P.RELEASED, Do.FINALIZE: P.FINALIZING}
    for facts, _, decision in cases:
        if decision.do in leads_to:
            assert (facts.phase, leads_to[decision.do]) in EDGES[Entity.ATTEMPT]
        if facts.phase in ATTEMPT_TERMINAL:
            assert decision == Decision(Do.NOTHING)
        if decision.do is Do.SEAL:
            assert facts.phase is P.FINALIZING


def test_whoever_waits_says_until_when(cases: list[Case]) -> None:
    for facts, _, decision in cases:
        if facts.phase in (P.ARMED, P.RELEASED) and decision.do in (Do.NOTHING, Do.STOP, Do.MARK_ABSENT):
            assert decision.again_at is not None
            assert NOW < decision.again_at <= NOW + 30.0


def test_a_reason_once_written_stands(cases: list[Case]) -> None:
    for facts, _, decision in cases:
        if decision.do is Do.STOP:
            assert decision.stop_reason is not None
            if facts.stop_reason is not None:
                assert decision.stop_reason is facts.stop_reason
            elif facts.desired is Desired.STOP:
                assert decision.stop_reason is StopReason.CANCEL


def test_an_absence_is_forgotten_exactly_when_the_object_is_seen(cases: list[Case]) -> None:
    there = {S.INERT, S.PENDING, S.RUNNING, S.ENDING}
    for facts, observation, decision in cases:
        if facts.phase in (P.ARMED, P.RELEASED):
            seen_again = observation is not None and observation.state in there and facts.absent_since is not None
            assert decision.clear_absent is seen_again


def test_a_later_look_never_takes_back_an_end(cases: list[Case]) -> None:
    """What is finalized now is finalized, with the same outcome, at any later look with the same facts."""
    for facts, observation, decision in cases[::11]:
        later = decide(facts, observation, NOW + 1000)
        if decision.do is Do.FINALIZE:
            assert later == decision


def test_a_stop_that_nobody_carried_out_is_told_again_until_it_shows() -> None:
    facts, now, told = snapshot(desired=STOP), NOW, 0
    for _ in range(10):
        decision = decide(facts, seen(S.RUNNING), now)
        if decision.do is Do.STOP:
            told += 1
            facts = replace(facts, stop_reason=decision.stop_reason, stop_asked_at=now)
        assert decision.again_at is not None
        now = decision.again_at
    assert told == 10
