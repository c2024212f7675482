"""Trigger rules: whether a task runs once all its upstream tasks have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

from myapp.domain.runs.phases import TaskPhase

Verdict = Literal["run", "skip"]


class Trigger(StrEnum):
    ALL_SUCCEEDED = "all_succeeded"
    ALL_DONE = "all_done"
    ANY_FAILED = "any_failed"
    ANY_SUCCEEDED = "any_succeeded"
    ALL_FAILED = "all_failed"
    NONE_FAILED = "none_failed"


_SAID = {
    TaskPhase.SUCCEEDED: "succeeded",
    TaskPhase.FAILED: "failed",
    TaskPhase.STOPPED: "was stopped",
    TaskPhase.SKIPPED: "was skipped",
}
_MOST_NAMED = 3


def why_not(trigger: Trigger | str, upstream: Mapping[str, TaskPhase]) -> str:
    """Why it is skipped, from its upstream's phases: `because count failed (trigger all_succeeded)`."""
    accepted = {
        Trigger.ALL_SUCCEEDED: (TaskPhase.SUCCEEDED,),
        Trigger.ALL_FAILED: (TaskPhase.FAILED,),
        Trigger.NONE_FAILED: (TaskPhase.SUCCEEDED, TaskPhase.SKIPPED),
    }.get(Trigger(trigger), ())
    against = [f"{key} {_SAID.get(phase, phase)}" for key, phase in upstream.items() if phase not in accepted]
    named, more = against[:_MOST_NAMED], len(against) - _MOST_NAMED
    if more > 0:
        named.append(f"{more} more")
    said = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"because {said} (trigger {Trigger(trigger)})"


def judge(trigger: Trigger | str, upstream: Sequence[TaskPhase]) -> Verdict:
    """Run or skip, from the terminal phases of the direct upstream tasks.

    A task without upstream always runs. A stopped task counts as neither succeeded nor failed, except that
    `none_failed` does not accept it: its work is missing. A skipped one is accepted by `none_failed` and `all_done`.
    Raises ValueError for an unknown trigger.
    """
    rule = Trigger(trigger)
    if not upstream:
        return "run"
    succeeded = sum(phase is TaskPhase.SUCCEEDED for phase in upstream)
    failed = sum(phase is TaskPhase.FAILED for phase in upstream)
    stopped = sum(phase is TaskPhase.STOPPED for phase in upstream)
    holds = {
        Trigger.ALL_SUCCEEDED: succeeded == len(upstream),
        Trigger.ALL_DONE: True,
        Trigger.ANY_FAILED: failed > 0,
        Trigger.ANY_SUCCEEDED: succeeded > 0,
        Trigger.ALL_FAILED: failed == len(upstream),
        Trigger.NONE_FAILED: failed == 0 and stopped == 0,
    }[rule]
    return "run" if holds else "skip"
