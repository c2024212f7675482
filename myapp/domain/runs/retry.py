"""Whether a failed attempt is followed by another, and when. The user's budget and the infrastructure's are apart."""

from __future__ import annotations

from dataclasses import dataclass

from myapp.domain.ports import Cause
from myapp.domain.runs.decide import Outcome

INFRASTRUCTURE = frozenset(
    {
        Cause.INTERRUPTED,
        Cause.LOST,
        Cause.EVICTED,
        Cause.NODE_LOST,
        Cause.NOT_READY,
        Cause.BACKEND,
        Cause.ENVIRONMENT_TRANSIENT,
    }
)
NEVER = frozenset({Cause.REJECTED, Cause.ENVIRONMENT, Cause.CANCELLED})  # the same again would fail the same


@dataclass(frozen=True)
class RetryPolicy:
    """`limit`: retries after the first attempt that the user's failures may cost. Delays in seconds."""

    limit: int = 0
    backoff_s: float = 10.0
    max_backoff_s: float = 600.0
    infra_limit: int = 5
    infra_backoff_s: float = 1.0


@dataclass(frozen=True)
class Verdict:
    again: bool
    delay_s: float = 0.0
    infrastructure: bool = False


def is_infrastructure(outcome: Outcome, cause: Cause | None) -> bool:
    return outcome is Outcome.LOST or cause in INFRASTRUCTURE


def judge(
    outcome: Outcome, cause: Cause | None, policy: RetryPolicy, *, user_failures: int, infra_failures: int
) -> Verdict:
    """`*_failures` count the failures before this one. Only FAILED and LOST may be followed by another attempt."""
    if outcome not in (Outcome.FAILED, Outcome.LOST):
        return Verdict(False)
    if is_infrastructure(outcome, cause):
        again = infra_failures < policy.infra_limit
        return Verdict(
            again, min(policy.infra_backoff_s * 2**infra_failures, policy.max_backoff_s) if again else 0.0, True
        )
    if cause in NEVER or user_failures >= policy.limit:
        return Verdict(False)
    return Verdict(True, min(policy.backoff_s * 2 ** min(user_failures, 30), policy.max_backoff_s))
