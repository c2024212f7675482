"""What is said of a task that holds resources: never that it is being started once it was let go."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sqlalchemy import RowMapping

from myapp.services.task_view import Waiting


@pytest.mark.parametrize(
    ("phase", "observed", "message", "said"),
    [
        ("planned", "", "", "is being started"),
        ("planned", "", "the machine is busy", "the machine is busy"),
        ("armed", "inert", "", "is being started"),
        ("released", "", "", None),
        ("released", "inert", "", None),
        ("released", "pending", "", None),
        ("released", "pending", "installing torch", "installing torch"),
        ("released", "running", "", None),
        ("released", "unknown", "", None),
        ("released", "ending", "", "is being stopped"),
        ("finalizing", "succeeded", "", "has ended; its results are being stored"),
        ("failed", "failed", "exit code 3", None),
    ],
)
def test_the_words_for_an_attempt(phase: str, observed: str, message: str, said: str | None) -> None:
    attempt: Any = {"phase": phase, "observed": observed, "message": message}
    row = cast(RowMapping, {"phase": "active"})
    assert Waiting(now=0.0).reason(row, [attempt]) == said
    assert Waiting(now=0.0).reason(row, []) is None
