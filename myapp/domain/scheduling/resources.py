"""What a task asks for against what there is: whether it fits, and in words why it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from myapp.domain.quantities import format_cpu, format_memory
from myapp.domain.scheduling import plan

_GIB = 2**30


@dataclass(frozen=True)
class Request:
    """Sums over all ranks: millicores, bytes, devices."""

    cpu_milli: int = 0
    memory: int = 0
    gpu: int = 0

    def amounts(self) -> dict[str, int]:
        """By the names that allocations use; only what is asked for."""
        return {
            name: amount
            for name, amount in (("gpu", self.gpu), ("cpu", self.cpu_milli), ("memory", self.memory))
            if amount > 0
        }


def fits(request: Request, free: Mapping[str, int]) -> bool:
    """Whether all of it is free. A resource that is not listed is not there."""
    return plan.fits(request.amounts(), free)


def describe_shortage(request: Request, free: Mapping[str, int], capacity: Mapping[str, int]) -> str:
    """`needs 4 gpu, 2 free of 4 (2 held by other runs)` for each resource that is short; empty when it fits."""
    parts = []
    for name, amount in request.amounts().items():
        there, left = capacity.get(name, 0), max(0, free.get(name, 0))
        if amount <= left:
            continue
        if amount > there:
            parts.append(f"needs {amount_text(name, amount)} {name}, there is {amount_text(name, there)} in all")
        else:
            wanted, rest, held = (amount_text(name, value) for value in (amount, left, there - left))
            parts.append(
                f"needs {wanted} {name}, {rest} free of {amount_text(name, there)} ({held} held by other runs)"
            )
    return "; ".join(parts)


def waiting_reason(
    request: Request, free: Mapping[str, int], capacity: Mapping[str, int], ahead: int | None = None
) -> str:
    """Why a queued task has not started yet. `ahead`: how many queued tasks go before it, when that is known."""
    if not capacity:
        return "waits for a machine: none has reported what it has"
    if shortage := describe_shortage(request, free, capacity):
        never = any(amount > capacity.get(name, 0) for name, amount in request.amounts().items())
        return f"{shortage}: it can never start here" if never else shortage
    if ahead:
        return f"waits for its turn: {ahead} queued task{'s go' if ahead > 1 else ' goes'} first"
    return "waits for its turn"


def amount_text(name: str, amount: int) -> str:
    """An amount for a person: cores, binary units, or a count."""
    if name == "cpu":
        return format_cpu(amount)
    if name != "memory":
        return str(amount)
    return format_memory(amount) if amount % 2**20 == 0 else f"{amount / _GIB:.1f}Gi"
