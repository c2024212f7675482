from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.ports import Cause, ObservedState, RankState
from myapp.domain.runs.gang import ENDED, LIVE, describe, first_bad, summarise

S = ObservedState
LETTERS = {
    "I": S.INERT, "P": S.PENDING, "R": S.RUNNING, "E": S.ENDING, "s": S.SUCCEEDED, "f": S.FAILED, "A": S.ABSENT,
    "?": S.UNKNOWN,
}


def ranks(text: str) -> list[RankState]:
    """`R` a worker; `pR` a parameter server."""
    result: list[RankState] = []
    role = "worker"
    for letter in text.replace(" ", ""):
        if letter == "p":
            role = "ps"
            continue
        number = len(result)
        result.append(RankState(role, sum(r.role == role for r in result), number, LETTERS[letter], exit_code=3))
        role = "worker"
    return result


@pytest.mark.parametrize(
    ("text", "state", "broken", "complete"),
    [
        ("I", S.INERT, False, False),
        ("II", S.INERT, False, False),
        ("IR", S.RUNNING, False, False),
        ("IP", S.PENDING, False, False),
        ("Is", S.PENDING, False, False),
        ("IA", S.INERT, True, False),
        ("P", S.PENDING, False, False),
        ("PR", S.RUNNING, False, False),
        ("RR", S.RUNNING, False, False),
        ("Rs", S.RUNNING, False, False),
        ("RE", S.RUNNING, False, False),
        ("EE", S.ENDING, False, False),
        ("Es", S.ENDING, False, False),
        ("Ef", S.ENDING, True, False),
        ("Rf", S.RUNNING, True, False),
        ("RA", S.RUNNING, True, False),
        ("s pR", S.RUNNING, False, True),
        ("ss pR pf", S.RUNNING, False, True),
        ("sR pR", S.RUNNING, False, False),
        ("sR pf", S.RUNNING, True, False),
        ("s pE", S.ENDING, False, True),
        ("s", S.SUCCEEDED, False, False),
        ("ss pf", S.SUCCEEDED, False, False),
        ("ss pA", S.SUCCEEDED, False, False),
        ("sf", S.FAILED, False, False),
        ("sA", S.FAILED, False, False),
        ("fA", S.FAILED, False, False),
        ("A", S.ABSENT, False, False),
        ("AA pA", S.ABSENT, False, False),
        ("?", S.UNKNOWN, False, False),
        ("sf?", S.UNKNOWN, False, False),
        ("", S.UNKNOWN, False, False),
        ("ps", S.SUCCEEDED, False, False),
        ("ps pf", S.FAILED, False, False),
    ],
)
def test_table(text: str, state: ObservedState, broken: bool, complete: bool) -> None:
    seen = summarise(ranks(text), ("worker",))
    assert (seen.state, seen.broken, seen.complete) == (state, broken, complete)


def test_a_vanished_rank_is_a_lost_one() -> None:
    seen = summarise(ranks("sA"), ("worker",))
    assert [(r.state, r.cause) for r in seen.ranks] == [(S.SUCCEEDED, None), (S.FAILED, Cause.LOST)]
    assert seen.message == "worker-1: vanished without leaving a result"


@pytest.mark.parametrize(
    ("states", "blamed"),
    [
        ([(Cause.EXIT_NONZERO, 2.0), (Cause.EXIT_NONZERO, 1.0)], 1),
        ([(Cause.CANCELLED, 1.0), (Cause.OOM, 2.0)], 1),
        ([(Cause.CANCELLED, 2.0), (Cause.CANCELLED, 1.0)], 1),
        ([(Cause.LOST, None), (Cause.EXIT_NONZERO, 5.0)], 1),
        ([(Cause.CANCELLED, 1.0), (Cause.LOST, None)], 1),
        ([(Cause.EXIT_NONZERO, 1.0), (Cause.EXIT_NONZERO, 1.0)], 0),
    ],
)
def test_who_is_to_blame(states: list[tuple[Cause, float | None]], blamed: int) -> None:
    gang = [RankState("worker", i, i, S.FAILED, 1, cause, finished_at=at) for i, (cause, at) in enumerate(states)]
    found = first_bad(gang)
    assert found is not None
    assert found.rank == blamed


@pytest.mark.parametrize(
    ("rank", "world", "text"),
    [
        (RankState("worker", 1, 1, S.FAILED, 3), 2, "worker-1: exit code 3"),
        (RankState("worker", 0, 0, S.FAILED, 3, message="exit code 3: boom"), 1, "exit code 3: boom"),
        (RankState("ps", 0, 0, S.FAILED, cause=Cause.CANCELLED), 2, "ps-0: cancelled"),
        (RankState("ps", 0, 0, S.ABSENT), 1, "vanished without leaving a result"),
    ],
)
def test_describe(rank: RankState, world: int, text: str) -> None:
    assert describe(rank, world) == text


gangs = st.lists(
    st.tuples(st.sampled_from(list(S)), st.sampled_from(["worker", "ps"]), st.floats(0, 100)), min_size=1, max_size=8
).map(lambda rows: [RankState(role, i, i, state, finished_at=at) for i, (state, role, at) in enumerate(rows)])


@given(gangs)
def test_properties(gang: list[RankState]) -> None:
    seen = summarise(gang, ("worker",))
    states = {r.state for r in gang}
    assert not (seen.broken and seen.complete)
    if S.UNKNOWN in states:
        assert seen.state is S.UNKNOWN
        return
    assert seen.ended == (not states & LIVE and states != {S.ABSENT}), "it has ended exactly when nothing lives"
    if seen.broken or seen.complete:
        assert states & LIVE
    if seen.state is S.SUCCEEDED:
        deciding = [r for r in gang if r.role == "worker"] or gang
        assert all(r.state is S.SUCCEEDED for r in deciding)
    if seen.state is S.FAILED:
        assert seen.message
    if seen.state is not S.ABSENT:
        assert [r.rank for r in seen.ranks] == [r.rank for r in gang]
    if seen.ended:
        assert {r.state for r in seen.ranks} <= ENDED
    assert summarise(list(reversed(gang)), ("worker",)) == seen
