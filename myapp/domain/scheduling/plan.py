"""Which queued tasks start now: a pure function of the queue's head, what is free, and the clock.

Strict order first; a task that does not fit lets smaller ones pass, until it has waited `patience_s`: from then on
nothing passes it, so a big job is not starved by a stream of small ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Candidate:
    """`request` maps resource to amount (cpu millicores, memory bytes, gpu count), over all ranks."""

    task_run_id: int
    request: Mapping[str, int]
    queued_at: float


def fits(request: Mapping[str, int], free: Mapping[str, int]) -> bool:
    return all(amount <= free.get(resource, 0) for resource, amount in request.items() if amount > 0)


def plan(
    candidates: Sequence[Candidate], free: Mapping[str, int], now: float, *, patience_s: float = PATIENCE_S
) -> list[int]:
    """Ids of the tasks to admit, in order. Never more than `free` in any resource; deterministic."""
    left = dict(free)
    admitted: list[int] = []
    for candidate in candidates:
        if fits(candidate.request, left):
            for resource, amount in candidate.request.items():
                left[resource] = left.get(resource, 0) - amount
            admitted.append(candidate.task_run_id)
        elif now - candidate.queued_at >= patience_s:
            break
    return admitted
