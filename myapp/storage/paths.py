"""Where an attempt's things lie in a store: `<project>/<run>/<task>/<attempt>`, made of checked parts only."""

from __future__ import annotations

import unicodedata

from myapp.domain.errors import Invalid, NotFound
from myapp.domain.naming import KEY, SLUG, shown

MAX_PATH = 480  # bytes: what the database keeps of a path
_MAX_SEGMENT = 255  # bytes: what filesystems keep of a name


def attempt_prefix(project: str, run_id: int, task: str, attempt_no: int) -> str:
    """The store-relative folder of one attempt. Raises Invalid when a part is not what it is called."""
    if not SLUG.match(project) or not KEY.match(task) or run_id < 0 or attempt_no < 0:
        raise Invalid(f"{shown(f'{project}/{run_id}/{task}/{attempt_no}')} is not an attempt")
    return f"{project}/{int(run_id)}/{task}/{int(attempt_no)}"


def bad_segment(name: str) -> str | None:
    """Why text may not be one segment of a path; None when it may."""
    if name in ("", ".", ".."):
        return "is empty or a dot"
    if "/" in name or "\\" in name:
        return "holds a slash"
    if any(unicodedata.category(c).startswith("C") for c in name):
        return "holds control characters"
    if name.startswith("."):
        return "starts with a dot"
    if len(name.encode("utf-8", "surrogatepass")) > _MAX_SEGMENT:
        return f"is longer than {_MAX_SEGMENT} bytes"
    return None


def check_name(name: str) -> str:
    """The name of an artifact: one path segment. Raises Invalid."""
    if why := bad_segment(name):
        raise Invalid(
            f"{shown(name)} cannot be the name of an artifact: it {why}",
            code="bad_artifact_name",
            resolution="use letters, digits, '.', '_' and '-'",
        )
    return name


def check_relative(path: str, *, what: str = "artifact") -> str:
    """A path below a store's root, as kept in the database or asked for by a client. Raises NotFound for any other."""
    parts = path.split("/")
    if any(p in ("", ".", "..") or "\0" in p or "\\" in p for p in parts):
        raise NotFound(f"there is no {what} {shown(path)}")
    return path
