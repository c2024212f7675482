"""One page of a list, and the bounds of what may be asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from myapp.domain.errors import Invalid

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 25
MAX_OFFSET = 100_000


@dataclass(frozen=True)
class Page:
    """`count` is exact unless `count_exact` is False: then there are at least that many.

    `next_before_id` is the cursor of the next page of a list that has one; None when this is the last.
    """

    count: int
    result: list[dict[str, Any]] = field(default_factory=list)
    count_exact: bool = True
    next_before_id: int | None = None


def bounds(page: int, page_size: int | None) -> tuple[int, int]:
    """(limit, offset) of a page counted from 0; larger pages than allowed are cut. Raises Invalid for nonsense."""
    size = DEFAULT_PAGE_SIZE if page_size is None or page_size == -1 else page_size
    if size < 1 or page < 0:
        raise Invalid(f"page {page} of size {size} does not exist", code="bad_page", resolution="count pages from 0")
    size = min(size, MAX_PAGE_SIZE)
    if page * size > MAX_OFFSET:
        raise Invalid(
            f"page {page} is too far",
            code="bad_page",
            resolution="filter the list, or follow `next_before_id` instead of pages",
        )
    return size, page * size
