"""Runs as people see them: lists, and one run with all that is known of it. Times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping

from myapp.domain.errors import Invalid, NotFound
from myapp.domain.naming import shown
from myapp.domain.permissions import Actor, Permission
from myapp.domain.runs.phases import RUN_TERMINAL, RunPhase, TaskPhase
from myapp.persistence.repositories import capacity, results, runs, tasks
from myapp.persistence.repositories.runs import RunFilter
from myapp.persistence.scope import TenantScope
from myapp.services.context import Context
from myapp.services.paging import Page, bounds
from myapp.services.task_view import Waiting, artifact_view, metric_view, task_view
from myapp.utils.clock import iso

__all__ = ["RunFilter", "describe_run", "list_metrics", "list_runs", "list_tasks", "read_run", "require_run"]
COUNT_UP_TO = 10_000
COUNT_FOUND_UP_TO = 1000  # for filters without an index
DEFAULT_TASKS = 1000
MAX_TASKS = 10_000
MAX_RESULTS = 10_000
_PHASES = frozenset(str(phase) for phase in RunPhase)
_PRIORITIES = {-10: "low", 0: "normal", 10: "high"}


def require_run(connection: Connection, actor: Actor, run_id: int, permission: Permission) -> RowMapping:
    """The run's row with its `project`, when the actor may do this with it. Raises NotFound or Forbidden."""
    row = runs.get_run(connection, TenantScope.of(actor), run_id)
    if row is None:
        raise NotFound(
            f"run {run_id} was not found", code="run_not_found", resolution="List yours with `cube get runs`."
        )
    actor.require(permission, row["project_id"], what=f"run {run_id}")
    return row


def list_runs(
    ctx: Context, actor: Actor, wanted: RunFilter | None = None, *, page: int = 0, page_size: int | None = None
) -> Page:
    """Newest first; follow `next_before_id` (as `before_id`) rather than far pages.

    Counts exactly up to 10,000, and up to 1000 when it searches names or users.
    """
    actor.require(Permission.SELF)
    wanted = wanted or RunFilter()
    if unknown := [p for p in wanted.phases if p not in _PHASES]:
        raise Invalid(
            f"phase: {shown(unknown[0])} is not a phase of runs",
            code="unknown_phase",
            resolution="use some of: " + ", ".join(RunPhase),
        )
    limit, offset = bounds(page, page_size)
    most = COUNT_FOUND_UP_TO if wanted.contains or wanted.created_by else COUNT_UP_TO
    scope = TenantScope.of(actor)
    with ctx.database.read() as connection:
        rows = runs.list_runs(connection, scope, wanted, limit=limit, offset=offset)
        if wanted.before_id is None and offset == 0 and len(rows) < limit:
            count = len(rows)
        else:
            count = runs.count_runs(connection, scope, wanted, at_most=most + 1)
    return Page(
        min(count, most),
        [_brief(row) for row in rows],
        count <= most,
        int(rows[-1]["id"]) if len(rows) == limit else None,
    )


def read_run(ctx: Context, actor: Actor, run_id: int) -> dict[str, Any]:
    """The run without its tasks: one statement."""
    with ctx.database.read() as connection:
        return _whole(require_run(connection, actor, run_id, Permission.RUN_READ))


def describe_run(
    ctx: Context,
    actor: Actor,
    run_id: int,
    *,
    tasks_limit: int = DEFAULT_TASKS,
    after_ordinal: int = -1,
    phases: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The run, how many tasks are in each phase, one page of tasks with their attempts, and what they left behind.

    `next_ordinal` is the cursor (`after_ordinal`) of the next page of tasks, None on the last.
    """
    scope = TenantScope.of(actor)
    with ctx.database.snapshot() as connection:
        row = require_run(connection, actor, run_id, Permission.RUN_READ)
        counts = tasks.task_counts(connection, scope, run_id)
        page, following = _tasks(ctx, connection, scope, row, counts, phases, after_ordinal, tasks_limit)
        outputs = results.list_outputs(connection, scope, run_id, limit=MAX_RESULTS)
        metrics = results.last_metrics(connection, scope, run_id, limit=MAX_RESULTS)
    values: dict[str, dict[str, Any]] = {}
    artifacts: dict[str, list[dict[str, Any]]] = {}
    for output in outputs:
        if output["kind"] == "value":
            values.setdefault(output["node_key"], {})[output["name"]] = output["value"]
        else:
            artifacts.setdefault(output["node_key"], []).append(artifact_view(output))
    for task in page:
        task["outputs"] = values.get(task["key"], {})
        task["artifacts"] = artifacts.get(task["key"], [])
    waiting = next((t["waiting"] for t in page if t["phase"] == TaskPhase.QUEUED), None)
    return {
        **_whole(row),
        "waiting": waiting if row["phase"] not in RUN_TERMINAL and not counts.get(TaskPhase.ACTIVE) else None,
        "task_counts": counts,
        "tasks": page,
        "next_ordinal": following,
        "outputs": values,
        "artifacts": [{"task": key, **item} for key, items in artifacts.items() for item in items],
        "metrics": [metric_view(m) for m in metrics],
    }


def list_tasks(
    ctx: Context,
    actor: Actor,
    run_id: int,
    *,
    phases: tuple[str, ...] = (),
    after_ordinal: int = -1,
    limit: int = DEFAULT_TASKS,
) -> tuple[list[dict[str, Any]], int | None]:
    """One page of a run's tasks in the order of the pipeline, and the cursor of the next."""
    scope = TenantScope.of(actor)
    with ctx.database.snapshot() as connection:
        row = require_run(connection, actor, run_id, Permission.RUN_READ)
        counts = tasks.task_counts(connection, scope, run_id)
        return _tasks(ctx, connection, scope, row, counts, phases, after_ordinal, limit)


def list_metrics(
    ctx: Context, actor: Actor, run_id: int, *, name: str = "", after_id: int = 0, limit: int = 1000
) -> list[dict[str, Any]]:
    """The points of a run's metrics in the order they were written; `after_id` is the last one seen."""
    with ctx.database.read() as connection:
        require_run(connection, actor, run_id, Permission.RUN_READ)
        rows = results.metric_points(
            connection,
            TenantScope.of(actor),
            run_id,
            name=name,
            after_id=after_id,
            limit=max(1, min(limit, MAX_RESULTS)),
        )
    return [{"id": row["id"], **metric_view(row)} for row in rows]


def _tasks(
    ctx: Context,
    connection: Connection,
    scope: TenantScope,
    run: RowMapping,
    counts: dict[str, int],
    phases: tuple[str, ...],
    after_ordinal: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    limit = max(0, min(limit, MAX_TASKS))
    if limit == 0:
        return [], None
    rows = tasks.list_tasks(connection, scope, run["id"], phases=phases, after_ordinal=after_ordinal, limit=limit)
    attempts = tasks.list_attempts(connection, scope, run["id"], (r["id"] for r in rows if r["attempts"]))
    graph = ctx.graphs.get(connection, run["pipeline_version_id"])
    waiting = _waiting(ctx, connection, run, counts, rows)
    page = [task_view(row, attempts.get(row["id"], []), graph.by_key.get(row["node_key"]), waiting) for row in rows]
    return page, int(rows[-1]["ordinal"]) if len(rows) == limit else None


def _waiting(ctx: Context, connection: Connection, run: RowMapping, counts: dict[str, int], rows: Any) -> Waiting:
    """What the reasons of waiting tasks are made of; asked for only when some wait."""
    holding = sum(counts.get(p, 0) for p in (TaskPhase.QUEUED, TaskPhase.ADMITTED, TaskPhase.ACTIVE))
    queued = next((r for r in rows if r["phase"] == TaskPhase.QUEUED), None)
    there: dict[str, int] = {}
    free: dict[str, int] = {}
    ahead = None
    if queued is not None:
        held = capacity.held(connection).get(queued["backend"], {})
        for flavor in capacity.flavors(connection).get(queued["backend"], {}).values():
            for name, amount in flavor.items():
                there[name] = there.get(name, 0) + amount
        free = {name: amount - held.get(name, 0) for name, amount in there.items()}
        ahead = tasks.queue_ahead(connection, queued["backend"], queued["precedence"], run["id"], queued["id"])
    return Waiting(
        now=ctx.database.clock(),
        capacity=there,
        free=free,
        first_queued=queued["id"] if queued is not None else None,
        ahead=ahead,
        parallelism=run["parallelism"],
        holding=holding,
    )


def _brief(row: RowMapping) -> dict[str, Any]:
    started, finished = row["started_at"], row["finished_at"]
    return {
        "id": row["id"],
        "project": row["project"],
        "pipeline_id": row["pipeline_id"],
        "kind": row["kind"],
        "name": row["name"],
        "phase": row["phase"],
        "desired": row["desired"],
        "event_seq": row["event_seq"],
        "priority": _PRIORITIES.get(-row["precedence"], str(-row["precedence"])),
        "reason_code": row["reason_code"],
        "reason": row["reason"],
        "retry_of": row["retry_of"],
        "schedule_id": row["schedule_id"],
        "scheduled_at": iso(row["scheduled_at"]),
        "submitted_at": iso(row["submitted_at"]),
        "started_at": iso(started),
        "finished_at": iso(finished),
        "created_by": row["created_by"],
        "duration_s": round(finished - started, 3) if started is not None and finished is not None else None,
    }


def _whole(row: RowMapping) -> dict[str, Any]:
    return _brief(row) | {
        "pipeline_version_id": row["pipeline_version_id"],
        "params": row["params"],
        "backend": row["backend"],
        "queue": row["queue"],
        "parallelism": row["parallelism"],
        "timeout_s": row["timeout_s"],
        "deadline_at": iso(row["deadline_at"]),
        "version": row["version"],
    }
