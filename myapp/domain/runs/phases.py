"""Phases of runs, tasks and attempts, and the edges between them.

"Running" is an observation of an attempt, not a phase: nothing depends on noticing it.
"""

from __future__ import annotations

from enum import StrEnum


class Entity(StrEnum):
    RUN = "run"
    TASK = "task"
    ATTEMPT = "attempt"


class RunPhase(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class TaskPhase(StrEnum):
    BLOCKED = "blocked"  # waits for upstream tasks
    READY = "ready"  # dependencies met, spec frozen; held by back-off or the run's parallelism
    QUEUED = "queued"  # waits for admission (resources)
    ADMITTED = "admitted"  # resources reserved, an attempt exists
    ACTIVE = "active"  # its attempt was released
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"


class AttemptPhase(StrEnum):
    PLANNED = "planned"
    ARMED = "armed"
    RELEASED = "released"
    FINALIZING = "finalizing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class Desired(StrEnum):
    RUN = "run"
    STOP = "stop"


RUN_TERMINAL = frozenset({RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.STOPPED})
TASK_TERMINAL = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.STOPPED, TaskPhase.SKIPPED})
ATTEMPT_TERMINAL = frozenset({AttemptPhase.SUCCEEDED, AttemptPhase.FAILED, AttemptPhase.STOPPED, AttemptPhase.LOST})
ATTEMPT_LIVE = frozenset(AttemptPhase) - ATTEMPT_TERMINAL
TERMINAL: dict[Entity, frozenset[StrEnum]] = {
    Entity.RUN: frozenset(RUN_TERMINAL),
    Entity.TASK: frozenset(TASK_TERMINAL),
    Entity.ATTEMPT: frozenset(ATTEMPT_TERMINAL),
}

EDGES: dict[Entity, frozenset[tuple[StrEnum, StrEnum]]] = {
    Entity.RUN: frozenset(
        {
            (RunPhase.QUEUED, RunPhase.RUNNING),
            (RunPhase.QUEUED, RunPhase.STOPPED),
            (RunPhase.QUEUED, RunPhase.FAILED),
            (RunPhase.RUNNING, RunPhase.SUCCEEDED),
            (RunPhase.RUNNING, RunPhase.FAILED),
            (RunPhase.RUNNING, RunPhase.STOPPED),
        }
    ),
    Entity.TASK: frozenset(
        {
            (TaskPhase.BLOCKED, TaskPhase.READY),
            (TaskPhase.BLOCKED, TaskPhase.SKIPPED),
            (TaskPhase.BLOCKED, TaskPhase.STOPPED),
            (TaskPhase.BLOCKED, TaskPhase.FAILED),  # its spec could not be rendered
            (TaskPhase.READY, TaskPhase.QUEUED),
            (TaskPhase.READY, TaskPhase.STOPPED),
            (TaskPhase.QUEUED, TaskPhase.ADMITTED),
            (TaskPhase.QUEUED, TaskPhase.STOPPED),
            (TaskPhase.QUEUED, TaskPhase.FAILED),  # can never fit any more
            (TaskPhase.ADMITTED, TaskPhase.ACTIVE),
            (TaskPhase.ADMITTED, TaskPhase.READY),  # the attempt ended before release; another will follow
            (TaskPhase.ADMITTED, TaskPhase.FAILED),
            (TaskPhase.ADMITTED, TaskPhase.STOPPED),
            (TaskPhase.ACTIVE, TaskPhase.READY),  # retry
            (TaskPhase.ACTIVE, TaskPhase.SUCCEEDED),
            (TaskPhase.ACTIVE, TaskPhase.FAILED),
            (TaskPhase.ACTIVE, TaskPhase.STOPPED),
        }
    ),
    Entity.ATTEMPT: frozenset(
        {
            (AttemptPhase.PLANNED, AttemptPhase.ARMED),
            (AttemptPhase.PLANNED, AttemptPhase.STOPPED),
            (AttemptPhase.PLANNED, AttemptPhase.FAILED),  # the backend refused it
            (AttemptPhase.ARMED, AttemptPhase.RELEASED),
            (AttemptPhase.ARMED, AttemptPhase.FINALIZING),
            (AttemptPhase.RELEASED, AttemptPhase.FINALIZING),
            (AttemptPhase.FINALIZING, AttemptPhase.SUCCEEDED),
            (AttemptPhase.FINALIZING, AttemptPhase.FAILED),
            (AttemptPhase.FINALIZING, AttemptPhase.STOPPED),
            (AttemptPhase.FINALIZING, AttemptPhase.LOST),
        }
    ),
}


def allowed(entity: Entity, source: StrEnum, target: StrEnum) -> bool:
    return (source, target) in EDGES[entity]


def sources(entity: Entity, target: StrEnum) -> frozenset[StrEnum]:
    """The phases from which `target` may be entered."""
    return frozenset(a for a, b in EDGES[entity] if b == target)
