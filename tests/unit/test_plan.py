"""Which queued tasks start: order, free resources, patience."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.scheduling.plan import PATIENCE_S, Candidate, fits, plan

NOW = 1000.0


def task(number: int, waited: float = 0.0, **request: int) -> Candidate:
    return Candidate(number, request, NOW - waited)


@pytest.mark.parametrize(
    ("candidates", "free", "chosen"),
    [
        ([], {"cpu": 4}, []),
        ([task(1, cpu=1), task(2, cpu=2)], {"cpu": 4}, [1, 2]),
        ([task(2, cpu=3), task(1, cpu=2), task(3, cpu=1)], {"cpu": 4}, [2, 3]),
        ([task(1, cpu=5), task(2, cpu=1)], {"cpu": 4}, [2]),
        ([task(1, PATIENCE_S, cpu=5), task(2, cpu=1)], {"cpu": 4}, []),
        ([task(1, PATIENCE_S - 1, cpu=5), task(2, cpu=1)], {"cpu": 4}, [2]),
        ([task(1, cpu=1, gpu=1), task(2, cpu=1)], {"cpu": 4}, [2]),
        ([task(1, cpu=1, gpu=0)], {"cpu": 4}, [1]),
        ([task(1, cpu=1, memory=10), task(2, cpu=1, memory=10)], {"cpu": 4, "memory": 15}, [1]),
        ([task(1)], {}, [1]),
        ([task(1, cpu=1)], {"cpu": -3}, []),
        ([task(1, cpu=2), task(2, PATIENCE_S, cpu=3), task(3, cpu=1)], {"cpu": 4}, [1]),
    ],
)
def test_the_table(candidates: list[Candidate], free: dict[str, int], chosen: list[int]) -> None:
    assert plan(candidates, free, NOW) == chosen


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 10), max_size=3)
queues = st.lists(st.tuples(amounts, st.sampled_from([0.0, 59.0, 60.0, 500.0])), max_size=12).map(
    lambda rows: [Candidate(n, request, NOW - waited) for n, (request, waited) in enumerate(rows)]
)


@given(queues, amounts)
def test_never_more_than_is_free_and_always_in_order(queue: list[Candidate], free: dict[str, int]) -> None:
    chosen = plan(queue, free, NOW)
    assert chosen == plan(list(queue), dict(free), NOW)
    assert chosen == sorted(set(chosen))
    for resource in ("cpu", "memory", "gpu"):
        assert sum(queue[i].request.get(resource, 0) for i in chosen) <= free.get(resource, 0)


@given(queues, amounts)
def test_nothing_passes_a_task_whose_patience_is_over_and_nothing_that_fits_is_left(
    queue: list[Candidate], free: dict[str, int]
) -> None:
    chosen = set(plan(queue, free, NOW))
    left = dict(free)
    closed = False
    for candidate in queue:
        if closed:
            assert candidate.task_run_id not in chosen
        elif candidate.task_run_id in chosen:
            for resource, amount in candidate.request.items():
                left[resource] = left.get(resource, 0) - amount
        else:
            assert not fits(candidate.request, left)
            closed = NOW - candidate.queued_at >= PATIENCE_S


@given(queues, amounts)
def test_the_first_that_fits_at_all_is_never_passed_over(queue: list[Candidate], free: dict[str, int]) -> None:
    if queue and fits(queue[0].request, free):
        assert plan(queue, free, NOW)[0] == 0


@given(queues, amounts, amounts)
def test_more_room_never_starts_fewer_from_the_head(
    queue: list[Candidate], free: dict[str, int], more: dict[str, int]
) -> None:
    """The longest run of tasks started from the head grows with what is free."""

    def head(chosen: list[int]) -> int:
        return next((n for n, i in enumerate(chosen) if n != i), len(chosen))

    wider = {k: free.get(k, 0) + more.get(k, 0) for k in {*free, *more}}
    assert head(plan(queue, wider, NOW)) >= head(plan(queue, free, NOW))
