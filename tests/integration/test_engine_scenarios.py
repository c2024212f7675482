"""Whole runs, from submit to end, on the real local backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.engine_harness import House, shell, tasks_of


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    made = House.build(fresh_url("sqlite"), tmp_path / "home")
    yield made
    made.close()


def test_a_chain_runs_in_order(house: House) -> None:
    keys = [f"t{i}" for i in range(6)]
    run = house.end(house.submit([
        {"name": key, "dependsOn": keys[max(0, i - 1):i], **shell(f"echo {key} >> order")} for i, key in enumerate(keys)
    ]))
    assert (run.phase, run.reason) == ("succeeded", "")
    assert house.lines("order") == keys
    house.check()
