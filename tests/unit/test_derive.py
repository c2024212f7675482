"""The phase of a run follows from its tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.runs.derive import run_phase
from myapp.domain.runs.phases import RUN_TERMINAL, TASK_TERMINAL, RunPhase, TaskPhase
from myapp.domain.runs.trigger import Trigger, judge

T = TaskPhase
tasks = st.lists(st.tuples(st.sampled_from(list(T)), st.booleans()), max_size=8)


@pytest.mark.parametrize(
    ("phases", "timed_out", "expected"),
    [
        ([(T.SUCCEEDED, False)], False, RunPhase.SUCCEEDED),
        ([(T.SUCCEEDED, False), (T.SKIPPED, False)], False, RunPhase.SUCCEEDED),
        ([(T.SKIPPED, False)], False, RunPhase.SUCCEEDED),
        ([(T.FAILED, False), (T.SUCCEEDED, False)], False, RunPhase.FAILED),
        ([(T.FAILED, True), (T.SUCCEEDED, False)], False, RunPhase.SUCCEEDED),
        ([(T.FAILED, False), (T.STOPPED, False)], False, RunPhase.FAILED),
        ([(T.FAILED, True), (T.STOPPED, False)], False, RunPhase.STOPPED),
        ([(T.STOPPED, False), (T.SUCCEEDED, False)], False, RunPhase.STOPPED),
        ([(T.STOPPED, False)], True, RunPhase.FAILED),
        ([(T.SUCCEEDED, False)], True, RunPhase.FAILED),
        ([(T.SUCCEEDED, False), (T.ACTIVE, False)], False, None),
        ([(T.FAILED, False), (T.BLOCKED, False)], True, None),
    ],
)
def test_the_table(phases: list[tuple[TaskPhase, bool]], timed_out: bool, expected: RunPhase | None) -> None:
    assert run_phase(phases, timed_out=timed_out) == expected


@given(tasks, st.booleans(), st.randoms())
def test_it_ends_exactly_when_all_tasks_have_and_the_order_does_not_matter(
    phases: list[tuple[TaskPhase, bool]], timed_out: bool, random: object
) -> None:
    found = run_phase(phases, timed_out=timed_out)
    assert (found is None) is any(phase not in TASK_TERMINAL for phase, _ in phases)
    assert found is None or found in RUN_TERMINAL
    random.shuffle(phases)  # type: ignore[attr-defined]
    assert run_phase(phases, timed_out=timed_out) == found


ended = st.lists(st.sampled_from(sorted(TASK_TERMINAL)), max_size=6)


@given(ended)
def test_trigger_rules_agree_with_their_names(upstream: list[TaskPhase]) -> None:
    def runs(trigger: Trigger) -> bool:
        return judge(trigger, upstream) == "run"

    if not upstream:
        assert all(runs(trigger) for trigger in Trigger)
        return
    assert runs(Trigger.ALL_DONE)
    assert runs(Trigger.ALL_SUCCEEDED) is all(p is T.SUCCEEDED for p in upstream)
    assert runs(Trigger.ALL_FAILED) is all(p is T.FAILED for p in upstream)
    assert runs(Trigger.ANY_SUCCEEDED) is (T.SUCCEEDED in upstream)
    assert runs(Trigger.ANY_FAILED) is (T.FAILED in upstream)
    assert runs(Trigger.NONE_FAILED) is not bool({T.FAILED, T.STOPPED} & set(upstream))
    if runs(Trigger.ALL_SUCCEEDED):
        assert runs(Trigger.ANY_SUCCEEDED)
        assert runs(Trigger.NONE_FAILED)


def test_an_unknown_trigger_is_an_error() -> None:
    with pytest.raises(ValueError, match="sometimes"):
        judge("sometimes", [T.SUCCEEDED])
