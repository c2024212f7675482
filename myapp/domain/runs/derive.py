"""The phase of a run, derived from its tasks."""

from __future__ import annotations

from collections.abc import Iterable

from myapp.domain.runs.phases import TASK_TERMINAL, RunPhase, TaskPhase


def run_phase(tasks: Iterable[tuple[TaskPhase, bool]], *, timed_out: bool = False) -> RunPhase | None:
    """`tasks`: (phase, allow_failure) of each; None while one has not ended.

    A failed task fails the run unless its failure was allowed, whatever runs after it: clean-up must not hide it.
    """
    failed = stopped = False
    for phase, allow_failure in tasks:
        if phase not in TASK_TERMINAL:
            return None
        failed = failed or (phase is TaskPhase.FAILED and not allow_failure)
        stopped = stopped or phase is TaskPhase.STOPPED
    if failed or timed_out:
        return RunPhase.FAILED
    return RunPhase.STOPPED if stopped else RunPhase.SUCCEEDED
