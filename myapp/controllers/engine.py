"""What every controller step works with, and the crash points of the crash tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from myapp.domain.ports import ExecutionBackend
from myapp.domain.runs.retry import RetryPolicy
from myapp.services.context import Context


@dataclass(frozen=True)
class Engine:
    """`backends` by kind. `crash(point)` is passed at each step a crash test may die at."""

    context: Context
    backends: Mapping[str, ExecutionBackend]
    retry_defaults: RetryPolicy = field(default_factory=RetryPolicy)
    crash: Callable[[str], None] = lambda point: None


def crash_points(wanted: str) -> Callable[[str], None]:
    """`name` or `name:n`: SIGKILL this process when it passes that point (for the n-th time). Empty: never."""
    if not wanted:
        return lambda point: None
    name, _, nth = wanted.partition(":")
    left = [int(nth or 1)]

    def pass_point(point: str) -> None:
        if point == name:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return pass_point
