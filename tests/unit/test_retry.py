"""Two budgets: the user's failures and the infrastructure's never pay for each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.ports import Cause
from myapp.domain.runs.decide import Outcome
from myapp.domain.runs.retry import INFRASTRUCTURE, NEVER, RetryPolicy, Verdict, is_infrastructure, judge

POLICY = RetryPolicy(limit=2, backoff_s=10, max_backoff_s=35, infra_limit=3, infra_backoff_s=1)


@pytest.mark.parametrize(
    ("outcome", "cause", "user", "infra", "verdict"),
    [
        (Outcome.SUCCEEDED, None, 0, 0, Verdict(False)),
        (Outcome.STOPPED, Cause.CANCELLED, 0, 0, Verdict(False)),
        (Outcome.STOPPED, None, 0, 0, Verdict(False)),
        (Outcome.FAILED, Cause.EXIT_NONZERO, 0, 0, Verdict(True, 10)),
        (Outcome.FAILED, Cause.EXIT_NONZERO, 1, 0, Verdict(True, 20)),
        (Outcome.FAILED, Cause.EXIT_NONZERO, 2, 0, Verdict(False)),
        (Outcome.FAILED, Cause.EXIT_NONZERO, 0, 99, Verdict(True, 10)),
        (Outcome.FAILED, Cause.TIMEOUT, 0, 0, Verdict(True, 10)),
        (Outcome.FAILED, Cause.OOM, 0, 0, Verdict(True, 10)),
        (Outcome.FAILED, Cause.PEER_FAILED, 1, 0, Verdict(True, 20)),
        (Outcome.FAILED, Cause.REJECTED, 0, 0, Verdict(False)),
        (Outcome.FAILED, Cause.ENVIRONMENT, 0, 0, Verdict(False)),
        (Outcome.FAILED, Cause.ENVIRONMENT_TRANSIENT, 99, 0, Verdict(True, 1, True)),
        (Outcome.FAILED, Cause.INTERRUPTED, 99, 1, Verdict(True, 2, True)),
        (Outcome.FAILED, Cause.EVICTED, 99, 2, Verdict(True, 4, True)),
        (Outcome.FAILED, Cause.NODE_LOST, 0, 3, Verdict(False, 0, True)),
        (Outcome.LOST, Cause.LOST, 99, 0, Verdict(True, 1, True)),
        (Outcome.LOST, None, 0, 0, Verdict(True, 1, True)),
        (Outcome.LOST, Cause.LOST, 0, 3, Verdict(False, 0, True)),
        (Outcome.FAILED, None, 0, 0, Verdict(True, 10)),
    ],
)
def test_the_table(outcome: Outcome, cause: Cause | None, user: int, infra: int, verdict: Verdict) -> None:
    assert judge(outcome, cause, POLICY, user_failures=user, infra_failures=infra) == verdict


def test_the_two_sets_of_causes_do_not_meet() -> None:
    assert not INFRASTRUCTURE & NEVER


failures = st.integers(0, 200)
outcomes = st.sampled_from([Outcome.FAILED, Outcome.LOST])
causes = st.sampled_from([None, *Cause])
policies = st.builds(
    RetryPolicy,
    limit=st.integers(0, 100),
    backoff_s=st.floats(0, 1e5),
    max_backoff_s=st.floats(0, 1e5),
    infra_limit=st.integers(0, 100),
    infra_backoff_s=st.floats(0, 100),
)


@given(outcomes, causes, policies, failures, failures)
def test_delays_are_bounded_and_grow(
    outcome: Outcome, cause: Cause | None, policy: RetryPolicy, user: int, infra: int
) -> None:
    first = judge(outcome, cause, policy, user_failures=user, infra_failures=infra)
    assert 0 <= first.delay_s <= policy.max_backoff_s
    assert first.again or first.delay_s == 0
    after = judge(
        outcome,
        cause,
        policy,
        user_failures=user + (not first.infrastructure),
        infra_failures=infra + first.infrastructure,
    )
    assert first.again or not after.again
    if after.again:
        assert after.delay_s >= first.delay_s


@given(outcomes, causes, policies, failures, failures, failures)
def test_a_budget_is_spent_by_its_own_failures_only(
    outcome: Outcome, cause: Cause | None, policy: RetryPolicy, user: int, infra: int, other: int
) -> None:
    first = judge(outcome, cause, policy, user_failures=user, infra_failures=infra)
    if is_infrastructure(outcome, cause):
        assert first == judge(outcome, cause, policy, user_failures=other, infra_failures=infra)
    else:
        assert first == judge(outcome, cause, policy, user_failures=user, infra_failures=other)


@pytest.mark.parametrize(("cause", "expected"), [(Cause.EXIT_NONZERO, 5), (Cause.LOST, 4), (Cause.REJECTED, 1)])
def test_how_many_attempts_a_budget_allows(cause: Cause, expected: int) -> None:
    policy = RetryPolicy(limit=4, infra_limit=3)
    attempts, user, infra = 0, 0, 0
    while True:
        attempts += 1
        verdict = judge(Outcome.FAILED, cause, policy, user_failures=user, infra_failures=infra)
        if not verdict.again:
            break
        infra, user = infra + verdict.infrastructure, user + (not verdict.infrastructure)
    assert attempts == expected
