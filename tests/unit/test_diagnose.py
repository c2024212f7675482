"""The cause in words and what to do, for every way an attempt can end."""

from __future__ import annotations

import pytest

from myapp.domain.ports import Cause, Observation, ObservedState, RankState
from myapp.domain.runs.decide import Outcome, StopReason
from myapp.domain.runs.diagnose import diagnose, first_bad_rank, resolution, with_log

S = ObservedState


def rank(
    number: int = 0,
    code: int | None = None,
    cause: Cause | None = None,
    at: float | None = None,
    message: str = "",
    role: str = "worker",
) -> RankState:
    state = S.SUCCEEDED if code == 0 and cause is None else S.FAILED
    return RankState(role, number, number, state, exit_code=code, cause=cause, message=message, finished_at=at)


def ended(*ranks: RankState) -> Observation:
    return Observation(S.FAILED, ranks)


def test_a_success_has_no_diagnosis() -> None:
    assert diagnose(Outcome.SUCCEEDED, None, ended(rank(code=0))) is None
    assert diagnose(Outcome.SUCCEEDED, StopReason.CANCEL, None) is None


@pytest.mark.parametrize(
    ("outcome", "reason", "observation", "cause", "words"),
    [
        (Outcome.FAILED, None, ended(rank(code=3)), Cause.EXIT_NONZERO, "ended with exit code 3"),
        (Outcome.FAILED, None, ended(rank(code=137, cause=Cause.SIGNAL)), Cause.SIGNAL, "was killed by signal 9"),
        (Outcome.FAILED, None, ended(rank(code=137, cause=Cause.OOM)), Cause.OOM, "more memory than it asked for"),
        (
            Outcome.FAILED,
            None,
            ended(rank(code=127, cause=Cause.COMMAND_NOT_FOUND, message="no such file: x")),
            Cause.COMMAND_NOT_FOUND,
            "no such file: x",
        ),
        (
            Outcome.FAILED,
            None,
            ended(rank(code=127, cause=Cause.COMMAND_NOT_FOUND)),
            Cause.COMMAND_NOT_FOUND,
            "command not found",
        ),
        (
            Outcome.FAILED,
            None,
            ended(rank(code=1, cause=Cause.ENVIRONMENT, message="No matching distribution")),
            Cause.ENVIRONMENT,
            "environment could not be built",
        ),
        (
            Outcome.FAILED,
            None,
            ended(rank(code=1, cause=Cause.ENVIRONMENT_TRANSIENT)),
            Cause.ENVIRONMENT_TRANSIENT,
            "environment could not be built",
        ),
        (Outcome.FAILED, None, ended(rank(code=143, cause=Cause.INTERRUPTED)), Cause.INTERRUPTED, "interrupted"),
        (Outcome.FAILED, None, ended(rank(code=1, cause=Cause.EVICTED)), Cause.EVICTED, "evicted"),
        (
            Outcome.FAILED,
            StopReason.TIMEOUT,
            ended(rank(code=143, cause=Cause.CANCELLED)),
            Cause.TIMEOUT,
            "timeout passed",
        ),
        (Outcome.FAILED, StopReason.NOT_READY, None, Cause.NOT_READY, "not all ranks were ready"),
        (Outcome.STOPPED, StopReason.CANCEL, ended(rank(code=143)), Cause.CANCELLED, "cancelled"),
        (Outcome.LOST, None, None, Cause.LOST, "gone"),
        (Outcome.LOST, None, Observation(S.ABSENT), Cause.LOST, "gone"),
        (Outcome.FAILED, StopReason.PEER, None, Cause.LOST, "gone"),
        (Outcome.FAILED, None, Observation(S.FAILED, message="odd"), Cause.EXIT_NONZERO, "odd"),
        (
            Outcome.FAILED,
            StopReason.PEER,
            ended(rank(0, 143, Cause.CANCELLED, 9.0), rank(1, 4, at=8.0, role="ps")),
            Cause.EXIT_NONZERO,
            "rank 1 (ps 1) ended with exit code 4",
        ),
    ],
)
def test_the_table(
    outcome: Outcome, reason: StopReason | None, observation: Observation | None, cause: Cause, words: str
) -> None:
    found = diagnose(outcome, reason, observation)
    assert found is not None
    assert found.cause is cause
    assert words in found.summary
    assert "\n" not in found.summary
    assert found.resolution == resolution(cause)
    assert found.to_json()["cause"] == cause.value


@pytest.mark.parametrize("cause", [c for c in Cause if c is not Cause.CANCELLED])
def test_every_cause_has_a_remedy(cause: Cause) -> None:
    assert resolution(cause)


def test_no_cause_no_remedy() -> None:
    assert resolution(None) == ""


@pytest.mark.parametrize(
    ("ranks", "guilty"),
    [
        ((rank(0, 0, at=1.0), rank(1, 0, at=2.0)), None),
        ((rank(0, 1, at=5.0), rank(1, 1, at=4.0)), 1),
        ((rank(0, 143, Cause.PEER_FAILED, 4.0), rank(1, 1, at=5.0)), 1),
        ((rank(0, 143, Cause.CANCELLED, 4.0), rank(1, 143, Cause.CANCELLED, 5.0)), 0),
        ((rank(0, None, Cause.LOST), rank(1, 1, at=5.0)), 1),
        ((rank(0, None, Cause.LOST), rank(1, 143, Cause.PEER_FAILED, at=5.0)), 0),
        ((rank(0, 1, at=5.0), rank(1, 1, at=5.0)), 0),
        ((), None),
    ],
)
def test_the_rank_to_blame(ranks: tuple[RankState, ...], guilty: int | None) -> None:
    found = first_bad_rank(ranks)
    assert (found.rank if found else None) == guilty


TRACE = "Traceback (most recent call last):\n  File \"x.py\", line 1\nModuleNotFoundError: No module named '{}'\n"


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (TRACE.format("pandas"), "add 'pandas' to environment.requirements"),
        (TRACE.format("sklearn.svm"), "'sklearn' is missing: add 'scikit-learn'"),
        (TRACE.format("a") + "bye\n", "add 'a'"),
        (TRACE.format("a") + "went on\n" * 9, None),
        (TRACE.format("a b; rm"), None),
        ("the log said: No module named 'x'\n", None),
        ("", None),
    ],
)
def test_a_missing_module_is_named(tail: str, said: str | None) -> None:
    found = diagnose(Outcome.FAILED, None, ended(rank(code=1)))
    assert found is not None
    told = with_log(found, tail)
    assert (told.cause, told.summary) == (Cause.EXIT_NONZERO, found.summary)
    assert (told == found) if said is None else (said in told.resolution)


def test_only_an_exit_code_is_explained_by_the_log() -> None:
    found = diagnose(Outcome.FAILED, None, ended(rank(code=137, cause=Cause.OOM)))
    assert found is not None
    assert with_log(found, TRACE.format("pandas")) is found
