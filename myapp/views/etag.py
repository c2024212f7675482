"""Optimistic locking over HTTP: the ETag of a document is its `lock_version`."""

from __future__ import annotations

import re

from flask import request
from werkzeug.exceptions import PreconditionRequired

from myapp.domain.errors import Conflict, Invalid

_TAG = re.compile(r'\A(?:W/)?"?([0-9]{1,9})"?\Z')


class PreconditionFailed(Conflict):
    code = "stale_document"

    @property
    def status(self) -> int:
        return 412


def etag(lock_version: int) -> str:
    return f'"{lock_version}"'


def if_match(*, required: bool = False) -> int | None:
    """The `lock_version` in If-Match; None when there is none or it is `*`.

    Raises Invalid for anything else, 428 when it is required and missing.
    """
    header = request.headers.get("If-Match")
    if header is None:
        if required:
            raise PreconditionRequired("send the ETag you read in the header If-Match (or * to overwrite)")
        return None
    if header.strip() == "*":
        return None
    match = _TAG.match(header.strip())
    if match is None:
        raise Invalid("If-Match must be the ETag of a GET", code="bad_etag")
    return int(match[1])


def not_modified(lock_version: int) -> bool:
    header = request.headers.get("If-None-Match", "")
    return etag(lock_version) in (part.strip().removeprefix("W/") for part in header.split(","))


def as_precondition(error: Conflict) -> Conflict:
    """A stale If-Match is 412 over HTTP; every other conflict stays 409."""
    if error.code != "stale_document":
        return error
    return PreconditionFailed(error.message, detail=error.detail, resolution=error.resolution)
