"""What all routes that start a run share."""

from __future__ import annotations

import re

from flask import request

from myapp.domain.errors import Invalid

_KEY = re.compile(r"\A[\x21-\x7e]{1,128}\Z")


def idempotency_key() -> str | None:
    """The request's Idempotency-Key. Raises Invalid for one that could not be stored as it is."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not _KEY.match(key):
        raise Invalid(
            "the Idempotency-Key must be 1 to 128 visible ASCII characters",
            code="bad_idempotency_key",
            resolution="Use a UUID.",
        )
    return key
