"""Whether a request can ever fit: the largest rank and the whole gang against what a backend has in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from myapp.domain.errors import Problem
from myapp.domain.ports import Capacity, Resources
from myapp.domain.quantities import format_cpu, format_memory

_KINDS = ("cpu", "memory", "gpu", "rdma")


@dataclass(frozen=True)
class CapacityView:
    """What there is. `flavors` maps a flavor (a kind of machine) to its amounts: cpu in millicores, memory in bytes,
    gpu and rdma by count; `total` is their sum. `where` reads well after "needs 4 gpu, "."""

    flavors: dict[str, dict[str, int]] = field(default_factory=dict)
    where: str = "this machine"

    @classmethod
    def of(cls, capacities: Iterable[Capacity], where: str = "this machine") -> CapacityView:
        flavors: dict[str, dict[str, int]] = {}
        for item in capacities:
            amounts = flavors.setdefault(item.flavor, {})
            amounts[item.resource] = amounts.get(item.resource, 0) + item.amount
        return cls(flavors, where)

    def total(self, kind: str) -> int:
        return sum(amounts.get(kind, 0) for amounts in self.flavors.values())

    def largest(self, kind: str) -> int:
        return max((amounts.get(kind, 0) for amounts in self.flavors.values()), default=0)


def check_fit(
    ranks: Sequence[Resources], capacity: CapacityView, *, field: str, node: str | None = None
) -> list[Problem]:
    """A Problem for each resource of which one rank or all together need more than there is."""
    problems: list[Problem] = []
    for kind in _KINDS:
        wanted = [_amount(rank, kind) for rank in ranks]
        most, gang = max(wanted, default=0), sum(wanted)
        if most > capacity.largest(kind):
            has = _text(kind, capacity.largest(kind), bare=True)
            message = f"needs {_text(kind, most)}, {capacity.where} has {has}"
        elif gang > capacity.total(kind):
            message = (
                f"its {len(ranks)} ranks need {_text(kind, gang)} together, "
                f"{capacity.where} has {_text(kind, capacity.total(kind), bare=True)}"
            )
        else:
            continue
        problems.append(Problem(code="never_fits", message=message, field=f"{field}.{kind}", node=node,
                                resolution=f"ask for less {kind} or fewer workers"))
    return problems


def _amount(rank: Resources, kind: str) -> int:
    return rank.cpu_milli if kind == "cpu" else int(getattr(rank, kind))


def _text(kind: str, amount: int, *, bare: bool = False) -> str:
    if kind == "cpu":
        text = format_cpu(amount)
    elif kind == "memory":
        text = format_memory(amount) if amount % 2**20 == 0 else f"{amount / 2**30:.1f}Gi"
    else:
        text = str(amount)
    return text if bare else f"{text} {kind}"
