"""The wall clock, in one place."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> float:
    """Unix seconds, UTC."""
    return time.time()


def iso(moment: float | None) -> str | None:
    """ISO 8601 in UTC with milliseconds, e.g. `2026-11-30T22:45:01.123Z`; None stays None."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
