"""Why a queued task waits, in words."""

from __future__ import annotations

import pytest

from myapp.domain.scheduling.resources import Request, describe_shortage, fits, waiting_reason

GIB = 2**30
THERE = {"cpu": 8000, "memory": 16 * GIB, "gpu": 4}


@pytest.mark.parametrize(
    ("request_", "free", "text"),
    [
        (Request(gpu=4), {"gpu": 2}, "needs 4 gpu, 2 free of 4 (2 held by other runs)"),
        (Request(cpu_milli=2500), {"cpu": 500}, "needs 2500m cpu, 500m free of 8 (7500m held by other runs)"),
        (Request(memory=8 * GIB), {"memory": GIB}, "needs 8Gi memory, 1Gi free of 16Gi (15Gi held by other runs)"),
        (
            Request(gpu=1, cpu_milli=1000),
            {"gpu": 0, "cpu": 0},
            "needs 1 gpu, 0 free of 4 (4 held by other runs); needs 1 cpu, 0 free of 8 (8 held by other runs)",
        ),
        (Request(gpu=5), {"gpu": 4}, "needs 5 gpu, there is 4 in all"),
        (Request(gpu=1), {"gpu": -1}, "needs 1 gpu, 0 free of 4 (4 held by other runs)"),
        (Request(cpu_milli=1000), {"cpu": 1000}, ""),
        (Request(), {}, ""),
    ],
)
def test_what_is_short(request_: Request, free: dict[str, int], text: str) -> None:
    assert describe_shortage(request_, free, THERE) == text
    assert fits(request_, free) is (text == "")


@pytest.mark.parametrize(
    ("free", "there", "ahead", "text"),
    [
        ({}, {}, 3, "waits for a machine: none has reported what it has"),
        (THERE, THERE, 0, "waits for its turn"),
        (THERE, THERE, None, "waits for its turn"),
        (THERE, THERE, 1, "waits for its turn: 1 queued task goes first"),
        (THERE, THERE, 2, "waits for its turn: 2 queued tasks go first"),
        ({"gpu": 0}, {"gpu": 1}, 2, "needs 2 gpu, there is 1 in all: it can never start here"),
    ],
)
def test_why_it_waits(free: dict[str, int], there: dict[str, int], ahead: int | None, text: str) -> None:
    assert waiting_reason(Request(gpu=2), free, there, ahead) == text
