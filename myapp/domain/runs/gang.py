"""What a job is doing, from what its ranks are doing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from myapp.domain.ports import Cause, Observation, ObservedState, RankState

S = ObservedState
ENDED = frozenset({S.SUCCEEDED, S.FAILED})
LIVE = frozenset({S.INERT, S.PENDING, S.RUNNING, S.ENDING})
STOPPED_BY_US = frozenset({Cause.CANCELLED, Cause.INTERRUPTED, Cause.TIMEOUT, Cause.PEER_FAILED})


def summarise(ranks: Sequence[RankState], success_roles: Sequence[str]) -> Observation:
    """One observation of the whole gang.

    `broken`: a rank failed or vanished while others still live, so the rest must be stopped (never set together with
    `complete`). `complete`: every rank of a success role exited 0 while others (parameter servers) still live.
    When all have ended, a vanished rank counts as failed with cause LOST; only a gang vanished as a whole is ABSENT.
    """
    ordered = tuple(sorted(ranks, key=lambda r: r.rank))
    states = {r.state for r in ordered}
    if not ordered or S.UNKNOWN in states:
        message = next((r.message for r in ordered if r.state is S.UNKNOWN), "")
        return Observation(S.UNKNOWN, message=message)
    if states == {S.ABSENT}:
        return Observation(S.ABSENT)
    deciding = [r for r in ordered if r.role in success_roles] or list(ordered)
    succeeded = all(r.state is S.SUCCEEDED for r in deciding)
    if states & LIVE:
        broken = not succeeded and bool(states & {S.FAILED, S.ABSENT})
        bad = first_bad(ordered) if broken else None
        message = describe(bad, len(ordered)) if bad else _waiting_message(ordered)
        return Observation(_live_state(states), ordered, message, broken=broken, complete=succeeded)
    final = tuple(_lost(r) if r.state is S.ABSENT else r for r in ordered)
    if succeeded:
        return Observation(S.SUCCEEDED, final)
    bad = first_bad(final)
    return Observation(S.FAILED, final, describe(bad, len(final)) if bad else "")


def first_bad(ranks: Sequence[RankState]) -> RankState | None:
    """The rank to blame: the earliest to end badly, before those we stopped ourselves and those that left no trace."""
    bad = [r for r in ranks if r.state in (S.FAILED, S.ABSENT)]
    return min(
        bad,
        key=lambda r: (r.cause in STOPPED_BY_US, math.inf if r.finished_at is None else r.finished_at, r.rank),
        default=None,
    )


def describe(rank: RankState, world_size: int) -> str:
    """`worker-1: exit code 3`; without the rank's name when there is only one."""
    if rank.message:
        text = rank.message
    elif rank.state is S.ABSENT or rank.cause is Cause.LOST:
        text = "vanished without leaving a result"
    elif rank.exit_code is not None:
        text = f"exit code {rank.exit_code}"
    else:
        text = str(rank.cause or "failed")
    return text if world_size == 1 else f"{rank.role}-{rank.index}: {text}"


def _live_state(states: set[ObservedState]) -> ObservedState:
    for state in (S.RUNNING, S.ENDING, S.PENDING):
        if state in states:
            return state
    # Only inert ranks live. If one has already succeeded, the release has begun and is on its way to the others.
    return S.PENDING if S.SUCCEEDED in states else S.INERT


def _waiting_message(ranks: Sequence[RankState]) -> str:
    return next((r.message for r in ranks if r.state in LIVE and r.message), "")


def _lost(rank: RankState) -> RankState:
    message = rank.message or "vanished without leaving a result"
    return replace(rank, state=S.FAILED, cause=Cause.LOST, message=message)
