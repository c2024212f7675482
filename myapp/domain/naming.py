"""Names: what may be called what, and deterministic names for the objects a backend creates.

Three alphabets: a project's *slug* (also a namespace and a folder), a document's *name*, a task's *key* (also a path
segment and part of a template expression). None of them can hold a slash, a dot-dot or a control character.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterable
from itertools import islice

from myapp.domain.errors import Problem

SLUG = re.compile(r"\A[a-z][a-z0-9-]{0,30}[a-z0-9]\Z")
NAME = re.compile(r"\A[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?\Z")
KEY = re.compile(r"\A[a-z](?:[a-z0-9_-]{0,61}[a-z0-9])?\Z")
IDENTIFIER = re.compile(r"\A[A-Za-z][A-Za-z0-9_]{0,62}\Z")
ENV_NAME = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")

_MAX_OBJECT_NAME = 63
_HASH = 8
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_MAX_CANDIDATES = 2000

_RULES: dict[str, tuple[re.Pattern[str], str]] = {
    "slug": (SLUG, "2 to 32 characters: a-z, 0-9 and '-', starting with a letter, ending with a letter or digit"),
    "name": (NAME, "1 to 63 characters: a-z, 0-9, '.', '_' and '-', starting and ending with a letter or digit"),
    "key": (KEY, "1 to 63 characters: a-z, 0-9, '_' and '-', starting with a letter, ending with a letter or digit"),
    "identifier": (IDENTIFIER, "1 to 63 characters: letters, digits and '_', starting with a letter"),
    "env": (ENV_NAME, "1 to 128 characters: letters, digits and '_', not starting with a digit"),
}


def _check(kind: str, value: object, field: str | None, node: str | None) -> Problem | None:
    pattern, rule = _RULES[kind]
    if isinstance(value, str) and pattern.match(value) and not (kind == "name" and ".." in value):
        return None
    return Problem(
        code="bad_name", message=f"{shown(value)} is not a valid name", field=field, node=node, resolution=f"use {rule}"
    )


def check_slug(value: object, field: str | None = None, node: str | None = None) -> Problem | None:
    """A project's slug; None when it is good."""
    return _check("slug", value, field, node)


def check_name(value: object, field: str | None = None, node: str | None = None) -> Problem | None:
    """A document's `metadata.name`; None when it is good."""
    return _check("name", value, field, node)


def check_key(value: object, field: str | None = None, node: str | None = None) -> Problem | None:
    """A task's name within its pipeline; None when it is good."""
    return _check("key", value, field, node)


def check_identifier(value: object, field: str | None = None, node: str | None = None) -> Problem | None:
    """The name of a parameter, an argument or an output; None when it is good."""
    return _check("identifier", value, field, node)


def check_env_name(value: object, field: str | None = None, node: str | None = None) -> Problem | None:
    """The name of an environment variable; None when it is good."""
    return _check("env", value, field, node)


def shown(value: object, limit: int = 80) -> str:
    """A value as it may stand in a message: quoted, one line, no control characters, at most `limit` characters."""
    if isinstance(value, str):
        head = value[: limit + 1]
        text = f"'{head}'" if head.isprintable() else ascii(head)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = "null"
    elif isinstance(value, int | float):
        text = format(value, ".17g") if isinstance(value, float) else hex(value) if abs(value) >= 2**64 else str(value)
    else:
        text = {"list": "a list", "dict": "a mapping"}.get(type(value).__name__, f"a {type(value).__name__}")
    return text if len(text) <= limit + 2 else text[:limit] + "..."


def slugify(text: str) -> str:
    """A valid slug made of any text; the same text gives the same slug.

    Text with nothing usable in it (another script, say) becomes `p-` and a hash of it.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = _NOT_SLUG.sub("-", plain).strip("-")
    if not slug:
        return "p-" + _digest(text)
    if not slug[0].isalpha():
        slug = "p-" + slug
    slug = slug[:32].rstrip("-")
    return slug if len(slug) >= 2 else f"{slug}-{_digest(text)}"


def path_part(name: object) -> str:
    """A key of a stranger's mapping as part of a field's path: printable and short."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 80 else shown(name, 60).strip("'")


def object_name(project: str, task: str, attempt_id: int) -> str:
    """The name of one attempt's object on a backend: `<project>-<task>-<attempt id>-<hash>`.

    Deterministic; at most 63 characters of [a-z0-9-], starting with a letter; two attempts never share one because
    the last two segments are the attempt's id and a hash of all three parts. It stays below 57 characters so that
    `-<role>` still fits a DNS label.
    """
    if attempt_id < 0:
        raise ValueError("attempt_id must not be negative")
    head = f"{slugify(project)[:12].rstrip('-')}-{slugify(task)[:14].rstrip('-')}"
    return f"{head}-{attempt_id}-{_digest(project, task, str(attempt_id))}"[-_MAX_OBJECT_NAME:]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    if len(word) > 200:
        return None
    lowered = word.lower()
    folded: dict[str, str] = {}
    for candidate in islice((k for k in known if abs(len(k) - len(word)) <= max(3, len(word) // 2)), _MAX_CANDIDATES):
        folded.setdefault(candidate.lower(), candidate)
    if lowered in folded:
        return folded[lowered]
    close = difflib.get_close_matches(lowered, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], *, limit: int = 12) -> str | None:
    """A resolution for an unknown word: the nearest known one, else the list of the known when that is short."""
    names = sorted(known)
    close = nearest(word, names)
    if close is not None:
        return f"did you mean {shown(close)}?"
    if names and len(names) <= limit:
        return "known: " + ", ".join(names)
    return None


def _digest(*parts: str) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_HASH]
