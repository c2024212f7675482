"""Why a trigger rule skipped a task, in words that name the tasks."""

from __future__ import annotations

import pytest

from myapp.domain.runs.phases import TaskPhase
from myapp.domain.runs.trigger import why_not

S, F, X, K = TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.STOPPED, TaskPhase.SKIPPED


@pytest.mark.parametrize(
    ("trigger", "phases", "said"),
    [
        ("all_succeeded", [S, F], "b failed"),
        ("all_succeeded", [X, K], "a was stopped and b was skipped"),
        ("all_succeeded", [F, F, F], "a failed, b failed and c failed"),
        ("all_succeeded", [F, F, F, F, K], "a failed, b failed, c failed and 2 more"),
        ("none_failed", [S, K, F], "c failed"),
        ("any_failed", [S, K], "a succeeded and b was skipped"),
        ("any_succeeded", [F], "a failed"),
        ("all_failed", [F, S], "b succeeded"),
    ],
)
def test_the_tasks_are_named(trigger: str, phases: list[TaskPhase], said: str) -> None:
    assert why_not(trigger, dict(zip("abcde", phases, strict=False))) == f"because {said} (trigger {trigger})"
