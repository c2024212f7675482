"""Along the graph: start runs, wake what waited, judge it, queue what is ready, and end runs.

All of it under the lock of the run's row, in bounded batches. A blocked task waits for one upstream task at a time
(`waits_for`), so the end of a task costs what it wakes, not what the run holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import Row

from myapp.controllers.engine import Engine
from myapp.domain.conditions import Condition
from myapp.domain.errors import CubeError
from myapp.domain.pipelinegraph import GraphTask, PipelineGraph
from myapp.domain.runs.derive import run_phase
from myapp.domain.runs.phases import RUN_TERMINAL, TASK_TERMINAL, Desired, Entity, RunPhase, TaskPhase
from myapp.domain.runs.transitions import StaleRow
from myapp.domain.runs.trigger import judge, why_not
from myapp.persistence import run_store
from myapp.persistence.unit_of_work import Topic, UnitOfWork
from myapp.services.freeze_task import freeze_task

log = structlog.get_logger(__name__)
BATCH = 100
_HELD = (TaskPhase.BLOCKED, TaskPhase.READY, TaskPhase.QUEUED)


def step(engine: Engine, run_id: int) -> bool:
    """Do what a run needs now, in transactions of at most BATCH tasks; True when something was queued."""
    queued = False
    while True:
        try:
            with engine.context.database.write() as unit:
                run = unit.lock_run(run_id)
                unit.answered(Topic.RUN, run_id)
                if run.phase in RUN_TERMINAL:
                    return queued
                run = _notice_deadline(unit, run)
                if run.desired == Desired.STOP:
                    more = _stop_held(unit, run)
                else:
                    graph = engine.context.graphs.get(unit.connection, run.pipeline_version_id)
                    run = _start(unit, run)
                    found, more = wake(engine, unit, run, graph)
                    queued = queued or found
                if more:
                    unit.post(Topic.RUN, run_id, ring=False)  # should this process die before the next batch
                else:
                    finish(unit, run)
        except StaleRow:
            return queued
        if not more:
            return queued


def _start(unit: UnitOfWork, run: Row[Any]) -> Row[Any]:
    if run.phase != RunPhase.QUEUED:
        return run
    deadline = unit.now + run.timeout_s if run.timeout_s else None
    unit.move(
        Entity.RUN,
        run.id,
        run.id,
        run.version,
        RunPhase.QUEUED,
        RunPhase.RUNNING,
        started_at=unit.now,
        deadline_at=deadline,
        next_check_at=deadline,
    )
    return unit.lock_run(run.id)


def _notice_deadline(unit: UnitOfWork, run: Row[Any]) -> Row[Any]:
    if run.deadline_at is None or unit.now < run.deadline_at or run.desired == Desired.STOP:
        return run
    run_store.note_run(
        unit.connection,
        run.id,
        desired=str(Desired.STOP),
        reason_code="timeout",
        reason="the run's timeout passed",
        next_check_at=unit.now + 30.0,
    )
    return unit.lock_run(run.id)


def _stop_held(unit: UnitOfWork, run: Row[Any]) -> bool:
    """End the tasks of a stopping run that hold nothing; True when there may be more."""
    rows = run_store.tasks_in(unit.connection, run.id, _HELD, BATCH)
    for row in rows:
        unit.move(
            Entity.TASK,
            row.id,
            run.id,
            row.version,
            TaskPhase(row.phase),
            TaskPhase.STOPPED,
            reason=run.reason,
            reason_code=run.reason_code,
            waits_for=None,
            finished_at=unit.now,
            next_check_at=None,
        )
    if any(row.phase == TaskPhase.QUEUED for row in rows):
        unit.post(Topic.ADMISSION, run.backend, ring=False)  # what stood behind them may go now
    if len(rows) == BATCH:
        return True
    for attempt_id in run_store.live_attempts(unit.connection, run.id):
        unit.ring(Topic.ATTEMPT, attempt_id)
    return False


def after(engine: Engine, unit: UnitOfWork, run: Row[Any], ended_key: str) -> None:
    """A task of a locked run has just ended, in this transaction: go on from there."""
    run_store.wake(unit.connection, run.id, ended_key)
    if run.desired == Desired.STOP:
        finish(unit, run)
        return
    graph = engine.context.graphs.get(unit.connection, run.pipeline_version_id)
    _, more = wake(engine, unit, run, graph)
    if more:
        unit.post(Topic.RUN, run.id)
    else:
        finish(unit, run)


def wake(engine: Engine, unit: UnitOfWork, run: Row[Any], graph: PipelineGraph) -> tuple[bool, bool]:
    """Judge the tasks that wait for nothing more. Returns (something was queued, there is more to judge)."""
    left = room(unit, run)
    queued, judged = promote(unit, run, left)
    while judged < BATCH:
        rows = run_store.wakeable(unit.connection, run.id, BATCH - judged)
        if not rows:
            return queued > 0, False
        keys = {key for row in rows for key in graph.by_key[row.node_key].upstream}
        phases = run_store.phases_of(unit.connection, run.id, keys) if keys else {}
        for row in rows:
            judged += 1
            task = graph.by_key[row.node_key]
            open_key = next((k for k in reversed(task.upstream) if phases[k] not in TASK_TERMINAL), None)
            if open_key is not None:
                run_store.wait_for(unit.connection, row.id, open_key)
                continue
            end = _judge(
                engine, unit, run, row, task, {k: phases[k] for k in task.upstream}, left is None or queued < left
            )
            if end is None:
                queued += 1
                continue
            if end in TASK_TERMINAL:
                phases[row.node_key] = end
                run_store.wake(unit.connection, run.id, row.node_key)
    return queued > 0, True


def room(unit: UnitOfWork, run: Row[Any]) -> int | None:
    """How many more tasks the run's parallelism lets in; None: no limit."""
    if run.parallelism is None:
        return None
    return max(0, int(run.parallelism) - run_store.holding(unit.connection, run.id))


def promote(unit: UnitOfWork, run: Row[Any], left: int | None) -> tuple[int, int]:
    """ready -> queued for tasks whose back-off is over, while there is room. Returns (queued, looked at)."""
    limit = BATCH if left is None else min(left, BATCH)
    if limit == 0:
        run_store.settle_ready(unit.connection, run.id, unit.now)
        return 0, 0
    rows: Sequence[Row[Any]] = run_store.ready(unit.connection, run.id, unit.now, limit)
    for row in rows:
        unit.move(
            Entity.TASK,
            row.id,
            run.id,
            row.version,
            TaskPhase.READY,
            TaskPhase.QUEUED,
            queued_at=unit.now,
            next_check_at=None,
            reason="",
            reason_code="",
        )
    if rows:
        unit.post(Topic.ADMISSION, run.backend, ring=False)
    return len(rows), len(rows)


def _judge(
    engine: Engine,
    unit: UnitOfWork,
    run: Row[Any],
    row: Row[Any],
    task: GraphTask,
    upstream: Mapping[str, TaskPhase],
    room: bool,
) -> TaskPhase | None:
    """Decide about one task whose upstream has ended. None when it was queued, else the phase it came to."""

    def end(phase: TaskPhase, code: str, reason: str) -> TaskPhase:
        unit.move(
            Entity.TASK,
            row.id,
            run.id,
            row.version,
            TaskPhase.BLOCKED,
            phase,
            reason=reason[:2000],
            waits_for=None,
            finished_at=unit.now,
            reason_code=code,
        )
        return phase

    if task.skip:
        return end(TaskPhase.SKIPPED, "skip", "the pipeline says to skip it")
    if judge(task.trigger, list(upstream.values())) == "skip":
        return end(TaskPhase.SKIPPED, "trigger", why_not(task.trigger, upstream))
    try:
        frozen = freeze_task(engine.context, unit.connection, run, task)
        conditions = [Condition.parse(text, field="when") for text in task.when]
        missed = [c.with_values(frozen.context) for c in conditions if not c.evaluate(frozen.context)]
        if missed:
            return end(TaskPhase.SKIPPED, "condition", f"its condition did not hold: {'; '.join(missed)}"[:500])
        spec = frozen.spec()
    except CubeError as error:
        parts = (error.message, error.resolution or "")
        return end(TaskPhase.FAILED, "invalid_spec", ". ".join(part.rstrip(".") for part in parts if part))
    except (ValueError, TypeError, KeyError) as error:  # whatever its document holds, the tasks beside it go on
        log.exception("a task cannot be rendered", run=run.id, task=task.key)
        return end(TaskPhase.FAILED, "invalid_spec", f"it cannot be rendered: {type(error).__name__}: {error}")
    path = [TaskPhase.BLOCKED, TaskPhase.READY] + ([TaskPhase.QUEUED] if room else [])
    unit.move(
        Entity.TASK,
        row.id,
        run.id,
        row.version,
        *path,
        waits_for=None,
        spec=spec.document,
        spec_sha256=spec.sha256,
        cpu_milli=spec.cpu_milli,
        memory=spec.memory,
        gpu=spec.gpu,
        ready_at=unit.now,
        queued_at=unit.now if room else None,
        next_check_at=None,
    )
    if not room:
        return TaskPhase.READY
    unit.post(Topic.ADMISSION, run.backend, ring=False)
    return None


def finish(unit: UnitOfWork, run: Row[Any]) -> bool:
    """End the run if all its tasks have ended."""
    if run_store.has_open_task(unit.connection, run.id):
        return False
    counts = run_store.ended_counts(unit.connection, run.id)
    phase = run_phase(((TaskPhase(p), allow) for p, allow, _ in counts), timed_out=run.reason_code == "timeout")
    if phase is None:
        return False
    reason, code = run.reason, run.reason_code
    if phase is RunPhase.SUCCEEDED:
        reason, code = "", ""  # cancelled too late
    if phase is RunPhase.FAILED and code != "timeout":
        bad = run_store.first_failure(unit.connection, run.id)
        failed = sum(n for p, allow, n in counts if p == TaskPhase.FAILED and not allow)
        more = f" (and {failed - 1} more)" if failed > 1 else ""
        reason, code = (f"{bad.node_key}: {bad.reason}{more}"[:1000], bad.reason_code) if bad else (reason, code)
    unit.move(
        Entity.RUN,
        run.id,
        run.id,
        run.version,
        RunPhase(run.phase),
        phase,
        reason=reason,
        reason_code=code,
        finished_at=unit.now,
        next_check_at=None,
    )
    return True
