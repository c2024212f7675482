"""Errors that carry what a person needs: what is wrong, where, and what to do about it.

One handler in `myapp.views` turns these into `{code, message, detail, resolution}` with the HTTP status of the kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class ErrorKind(StrEnum):
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"


HTTP_STATUS: dict[ErrorKind, int] = {
    ErrorKind.INVALID: 422,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.CONFLICT: 409,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.LIMITED: 429,
    ErrorKind.UNAVAILABLE: 503,
}


class Problem(BaseModel):
    """One thing wrong with a document.

    `field` is a dotted path from the document's root (`spec.tasks[2].args.script`); `node` is the task's name when the
    problem belongs to one; `line` is 1-based and known only for YAML input.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    field: str | None = None
    node: str | None = None
    resolution: str | None = None
    line: int | None = None
    severity: str = "error"


def errors_in(problems: Iterable[Problem]) -> list[Problem]:
    """Those that forbid something; warnings (severity `warning`) only say something."""
    return [problem for problem in problems if problem.severity == "error"]


class CubeError(Exception):
    """The base of every error meant for a person. `code` is a closed, low-cardinality label."""

    kind = ErrorKind.INVALID
    code = "invalid"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: Any = None,
        resolution: str | None = None,
        problems: list[Problem] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.detail = detail
        self.resolution = resolution
        self.problems = problems or []
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return HTTP_STATUS[self.kind]

    def body(self) -> dict[str, Any]:
        """The JSON body of an API reply."""
        detail = self.detail
        if detail is None and self.problems:
            detail = [p.model_dump(exclude_none=True) for p in self.problems]
        return {"code": self.code, "message": self.message, "detail": detail, "resolution": self.resolution}


class Invalid(CubeError):
    kind, code = ErrorKind.INVALID, "invalid"


class Unauthenticated(CubeError):
    kind, code = ErrorKind.UNAUTHENTICATED, "unauthenticated"


class Forbidden(CubeError):
    kind, code = ErrorKind.FORBIDDEN, "forbidden"


class NotFound(CubeError):
    kind, code = ErrorKind.NOT_FOUND, "not_found"


class Conflict(CubeError):
    kind, code = ErrorKind.CONFLICT, "conflict"


class TooLarge(CubeError):
    kind, code = ErrorKind.TOO_LARGE, "too_large"


class Limited(CubeError):
    kind, code = ErrorKind.LIMITED, "rate_limited"


class Unavailable(CubeError):
    kind, code = ErrorKind.UNAVAILABLE, "unavailable"


def invalid_document(what: str, problems: list[Problem]) -> Invalid:
    """An `Invalid` that names the first problem in its message and carries all of them."""
    first = problems[0]
    where = f"{first.field}: " if first.field else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{what}: {where}{first.message}{more}"
    return Invalid(message, code=first.code, problems=problems, resolution=first.resolution)
