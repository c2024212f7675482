"""The guard of every change of phase: pure, so that the model check drives the same rule as the database."""

from __future__ import annotations

from enum import StrEnum

from myapp.domain.runs.phases import TERMINAL, Entity, allowed, sources


class StaleRow(Exception):
    """Somebody else changed the row first. Never an error: read again and decide again."""


class IllegalTransition(Exception):
    """No such edge: a bug in the caller."""


def check_edge(entity: Entity, source: StrEnum, target: StrEnum) -> None:
    if not allowed(entity, source, target):
        raise IllegalTransition(f"{entity}: {source} -> {target}")


def next_version(entity: Entity, phase: StrEnum, version: int, *, target: StrEnum, expect_version: int) -> int:
    """The version after moving a row now at (`phase`, `version`) to `target`.

    This is the meaning of the guarded UPDATE `WHERE version = :expect AND phase IN (sources of target)`: raises
    StaleRow when it would match no row.
    """
    if version != expect_version or phase not in sources(entity, target):
        raise StaleRow(f"{entity}: at {phase} v{version}, expected v{expect_version} for {target}")
    return version + 1


def is_terminal(entity: Entity, phase: StrEnum | str) -> bool:
    return phase in TERMINAL[entity]
