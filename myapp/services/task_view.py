"""A task, its attempts and results as JSON-ready data, and in words why it is not running yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping

from myapp.domain.pipelinegraph import GraphTask
from myapp.domain.ports import ObservedState
from myapp.domain.runs.phases import AttemptPhase, TaskPhase
from myapp.domain.scheduling.resources import Request, waiting_reason
from myapp.utils.clock import iso


@dataclass(frozen=True)
class Waiting:
    """Shared by the tasks of one reply. `holding`: tasks of the run that are queued or have resources."""

    now: float
    capacity: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    first_queued: int | None = None
    ahead: int | None = None
    parallelism: int | None = None
    holding: int = 0

    def reason(self, row: RowMapping, attempts: Sequence[RowMapping]) -> str | None:
        """None for a task that runs or has ended."""
        match row["phase"]:
            case TaskPhase.BLOCKED:
                return f"waits for task {row['waits_for']}" if row["waits_for"] else "waits to be looked at"
            case TaskPhase.READY:
                if row["next_check_at"] is not None and row["next_check_at"] > self.now:
                    return f"tried again at {iso(row['next_check_at'])}"
                if self.parallelism is not None and self.holding >= self.parallelism:
                    return f"waits for other tasks of the run: at most {self.parallelism} at once"
                return "waits to be queued"
            case TaskPhase.QUEUED:
                request = Request(row["cpu_milli"], row["memory"], row["gpu"])
                ahead = self.ahead if row["id"] == self.first_queued else None
                return waiting_reason(request, self.free, self.capacity, ahead)
            case TaskPhase.ADMITTED | TaskPhase.ACTIVE:
                return _starting(attempts[-1]) if attempts else None
        return None


def _starting(attempt: RowMapping) -> str | None:
    """Why a task that holds resources does not compute now; None when it does, as far as is known.

    A job that was released runs, unless it was seen to do something else: observations come later.
    """
    match attempt["phase"], attempt["observed"]:
        case (AttemptPhase.PLANNED | AttemptPhase.ARMED), _:
            return attempt["message"] or "is being started"
        case AttemptPhase.RELEASED, ObservedState.PENDING:
            return attempt["message"] or None
        case AttemptPhase.RELEASED, ObservedState.ENDING:
            return "is being stopped"
        case AttemptPhase.FINALIZING, _:
            return "has ended; its results are being stored"
    return None


def task_view(
    row: RowMapping, attempts: Sequence[RowMapping], node: GraphTask | None, waiting: Waiting
) -> dict[str, Any]:
    started, finished = row["started_at"], row["finished_at"]
    return {
        "id": row["id"],
        "key": row["node_key"],
        "title": node.title if node is not None else None,
        "template": node.template if node is not None else None,
        "depends_on": list(node.upstream) if node is not None else [],
        "position": node.position if node is not None else None,
        "ordinal": row["ordinal"],
        "phase": row["phase"],
        "reason_code": row["reason_code"],
        "reason": row["reason"],
        "waiting": waiting.reason(row, attempts),
        "allow_failure": bool(row["allow_failure"]),
        "carried_from": row["carried_from"],
        "user_failures": row["user_failures"],
        "infra_failures": row["infra_failures"],
        "resources": {"cpu_milli": row["cpu_milli"], "memory": row["memory"], "gpu": row["gpu"]},
        "ready_at": iso(row["ready_at"]),
        "queued_at": iso(row["queued_at"]),
        "started_at": iso(started),
        "finished_at": iso(finished),
        "duration_s": round(finished - started, 3) if started is not None and finished is not None else None,
        "attempts": [attempt_view(attempt) for attempt in attempts],
    }


def attempt_view(row: RowMapping) -> dict[str, Any]:
    return {
        "no": row["attempt_no"],
        "phase": row["phase"],
        "backend": row["backend"],
        "object_name": row["object_name"],
        "observed": row["observed"],
        "message": row["message"],
        "outcome": row["outcome"],
        "stop_reason": row["stop_reason"],
        "exit_code": row["exit_code"],
        "cause": row["cause"],
        "devices": row["devices"],
        "diagnosis": row["diagnosis"],
        "ranks": [_rank_view(rank) for rank in row["ranks"] or []],
        "created_at": iso(row["created_at"]),
        "released_at": iso(row["released_at"]),
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
    }


def artifact_view(row: RowMapping) -> dict[str, Any]:
    return {"name": row["name"], "path": row["path"], "size": row["size"], "media_type": row["media_type"]}


def metric_view(row: RowMapping) -> dict[str, Any]:
    out = {
        "task": row["node_key"],
        "name": row["name"],
        "value": row["value"],
        "step": row["step"],
        "at": iso(row["at"]),
    }
    if "points" in row:
        out["points"] = row["points"]
    return out


def _rank_view(rank: Mapping[str, Any]) -> dict[str, Any]:
    return {name: iso(value) if name.endswith("_at") else value for name, value in rank.items()}
