"""What to do next about one attempt: a pure function of its row, one observation and the clock.

Level-triggered: asked again with the same facts it answers the same. `tests/unit/test_launch_model.py` drives it
through every interleaving with crashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from myapp.domain.ports import Observation, ObservedState
from myapp.domain.runs.phases import ATTEMPT_TERMINAL, AttemptPhase, Desired

ABSENT_DEBOUNCE_S = 2.0
STOP_AGAIN_S = 5.0


class StopReason(StrEnum):
    CANCEL = "cancel"  # the run is to stop
    TIMEOUT = "timeout"  # the task's own time is over
    PEER = "peer"  # a rank died: the gang ends
    COMPLETE = "complete"  # every rank that counts has succeeded
    NOT_READY = "not_ready"  # not all ranks ready in time


class Do(StrEnum):
    NOTHING = "nothing"  # look again at `Decision.again_at`
    ARM = "arm"  # create inert (or adopt), then record the handle: planned -> armed
    CLOSE_UNARMED = "close"  # planned -> stopped: nothing was recorded, so nothing can ever be fired
    RELEASE = "release"  # armed -> released, then fire
    FIRE = "fire"  # released but still inert: fire again
    STOP = "stop"  # record the reason (first time), then tell the backend
    MARK_ABSENT = "mark_absent"  # first sight of absence: note it, look again
    FINALIZE = "finalize"  # -> finalizing with `outcome`
    SEAL = "seal"  # finalizing: seal logs, collect results, then close with the recorded outcome


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True)
class AttemptSnapshot:
    phase: AttemptPhase
    desired: Desired  # of the run
    stop_reason: StopReason | None = None
    stop_asked_at: float | None = None
    absent_since: float | None = None
    run_deadline_at: float | None = None
    ready_deadline_at: float | None = None
    grace_s: float = 30.0


@dataclass(frozen=True)
class Decision:
    do: Do
    outcome: Outcome | None = None
    stop_reason: StopReason | None = None
    again_at: float | None = None
    clear_absent: bool = False


def _ended(s: AttemptSnapshot, o: Observation) -> Outcome:
    """A finished job counts as what it was; one that we ended counts as why we ended it."""
    if o.state is ObservedState.SUCCEEDED:
        return Outcome.SUCCEEDED
    if s.stop_reason is StopReason.CANCEL:
        return Outcome.STOPPED
    return Outcome.FAILED


def _stop(s: AttemptSnapshot, reason: StopReason, now: float) -> Decision:
    """One that was told to end but does not look like it is told again: who was to tell it may have died first."""
    patience = min(s.grace_s, STOP_AGAIN_S)
    if s.stop_reason is None or s.stop_asked_at is None or now >= s.stop_asked_at + patience:
        return Decision(Do.STOP, stop_reason=s.stop_reason or reason, again_at=now + patience)
    return Decision(Do.NOTHING, again_at=s.stop_asked_at + patience)


def decide(s: AttemptSnapshot, o: Observation | None, now: float, *, debounce_s: float = ABSENT_DEBOUNCE_S) -> Decision:
    """`o` is None only for phases in which nothing has been recorded to look at (planned, finalizing, terminal)."""
    if s.phase in ATTEMPT_TERMINAL:
        return Decision(Do.NOTHING)
    if s.phase is AttemptPhase.PLANNED:
        return Decision(Do.CLOSE_UNARMED if s.desired is Desired.STOP else Do.ARM)
    if s.phase is AttemptPhase.FINALIZING:
        return Decision(Do.SEAL)
    if o is None or o.state is ObservedState.UNKNOWN:
        return Decision(Do.NOTHING, again_at=now + 5.0)
    if o.state is ObservedState.ABSENT:
        return _absent(s, now, debounce_s)
    if o.ended:
        return Decision(Do.FINALIZE, outcome=_ended(s, o))
    if o.state is ObservedState.ENDING:
        return _keep(s, Decision(Do.NOTHING, again_at=now + max(1.0, s.grace_s / 4)))
    if s.stop_reason is not None or s.desired is Desired.STOP:
        return _keep(s, _stop(s, s.stop_reason or StopReason.CANCEL, now))
    if o.state is ObservedState.INERT:
        return _keep(s, Decision(Do.RELEASE if s.phase is AttemptPhase.ARMED else Do.FIRE))
    return _keep(s, _running(s, o, now))


def _running(s: AttemptSnapshot, o: Observation, now: float) -> Decision:
    if o.broken:
        return _stop(s, StopReason.PEER, now)
    if o.complete:
        return _stop(s, StopReason.COMPLETE, now)
    if s.run_deadline_at is not None and now >= s.run_deadline_at:
        return _stop(s, StopReason.TIMEOUT, now)
    if o.state is ObservedState.PENDING and s.ready_deadline_at is not None and now >= s.ready_deadline_at:
        return _stop(s, StopReason.NOT_READY, now)
    times = [
        t
        for t in (s.run_deadline_at, s.ready_deadline_at if o.state is ObservedState.PENDING else None)
        if t is not None
    ]
    return Decision(Do.NOTHING, again_at=min([now + 30.0, *times]))


def _absent(s: AttemptSnapshot, now: float, debounce_s: float) -> Decision:
    if s.absent_since is None:
        return Decision(Do.MARK_ABSENT, again_at=now + debounce_s)
    if now < s.absent_since + debounce_s:
        return Decision(Do.NOTHING, again_at=s.absent_since + debounce_s)
    return Decision(Do.FINALIZE, outcome=_gone(s))


def _gone(s: AttemptSnapshot) -> Outcome:
    """Stopping may delete the object, evidence and all: then the recorded reason tells what its absence means."""
    if s.stop_reason is StopReason.COMPLETE:
        return Outcome.SUCCEEDED
    if s.stop_reason in (StopReason.TIMEOUT, StopReason.PEER, StopReason.NOT_READY):
        return Outcome.FAILED
    if s.stop_reason is StopReason.CANCEL or s.desired is Desired.STOP:
        return Outcome.STOPPED
    return Outcome.LOST


def _keep(s: AttemptSnapshot, d: Decision) -> Decision:
    """The object is there after all: an earlier absence was an error of sight."""
    if s.absent_since is None:
        return d
    return Decision(d.do, d.outcome, d.stop_reason, d.again_at, clear_absent=True)
