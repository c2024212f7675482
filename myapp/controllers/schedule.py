"""Schedules: beat rings, the database decides. One run per due time, however many beats and workers there are."""

from __future__ import annotations

from typing import Any

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from myapp.controllers.engine import Engine
from myapp.domain.params import resolve_params
from myapp.domain.permissions import Actor
from myapp.domain.runs.phases import RUN_TERMINAL, RunPhase
from myapp.models import Pipeline, Project, Run, Schedule
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.cron import next_times
from myapp.services.submit_run import RunRequest, insert_run
from myapp.utils import clock

log = structlog.get_logger(__name__)
LIMIT = 100
ON_TIME_S = 300.0  # with catch-up "none": what is due this long ago was missed
MOST_AT_ONCE = 50
WINDOWS_S = (7_200.0, 180_000.0, 3_600_000.0, 300_000_000.0)


def step(engine: Engine) -> int:
    """Turn what is due into runs; how many."""
    database = engine.context.database
    with database.read() as connection:
        due = (
            connection.execute(
                select(Schedule.id)
                .where(Schedule.paused.is_(False), Schedule.next_due_at <= database.clock())
                .order_by(Schedule.next_due_at)
                .limit(LIMIT)
            )
            .scalars()
            .all()
        )
    made = 0
    for schedule_id in due:
        try:
            with database.write() as unit:
                made += _fire(engine, unit, schedule_id)
        except IntegrityError:
            log.info("another beat was first", schedule=schedule_id)
        except ValueError as error:  # as it stands it can make no run: what is due passes
            log.error("schedule cannot run", schedule=schedule_id, error=str(error))
            with database.write() as unit:
                _pass_over(unit, schedule_id)
        except Exception as error:  # one broken schedule must not keep the others
            log.error("schedule failed", schedule=schedule_id, error=str(error))
    return made


def _fire(engine: Engine, unit: UnitOfWork, schedule_id: int) -> int:
    row = unit.connection.execute(
        select(
            *Schedule.__table__.columns,
            Pipeline.name.label("pipeline"),
            Pipeline.current_version_id,
            Project.backend.label("backend"),
        )
        .join(Pipeline, Pipeline.id == Schedule.pipeline_id)
        .join(Project, Project.id == Schedule.project_id)
        .where(Schedule.id == schedule_id)
        .with_for_update(of=Schedule)
    ).one_or_none()
    if row is None or row.paused or row.next_due_at > unit.now or row.current_version_id is None:
        return 0
    times = due_times(row, unit.now)
    wanted, after = chosen(row.catchup, times, unit.now)
    active = unit.connection.execute(
        select(func.count())
        .select_from(Run)
        .where(Run.schedule_id == schedule_id, Run.phase.in_([str(p) for p in RunPhase if p not in RUN_TERMINAL]))
    ).scalar_one()
    made = 0
    for at in wanted:
        if active + made >= row.max_active_runs:
            after = at if row.catchup != "none" else after  # it stays due and waits for room
            break
        made += _submit(engine, unit, row, at)
    unit.connection.execute(
        update(Schedule).where(Schedule.id == schedule_id).values(next_due_at=after, version=row.version + 1)
    )
    return made


def _pass_over(unit: UnitOfWork, schedule_id: int) -> None:
    """Wait for the next moment to come, without a run."""
    query = select(Schedule.cron, Schedule.timezone).where(Schedule.id == schedule_id)
    row = unit.connection.execute(query).one_or_none()
    following = next_times(row.cron, row.timezone, unit.now, 1) if row is not None else []
    if following:
        unit.connection.execute(update(Schedule).where(Schedule.id == schedule_id).values(next_due_at=following[0]))


def due_times(row: Any, now: float) -> list[float]:
    """Due moments not yet handled, oldest first, and the one to come.

    At most MOST_AT_ONCE with catch-up "all" (the rest stays due); otherwise only the newest matters.
    """
    if row.catchup != "all":
        newest = latest_due(row.cron, row.timezone, row.next_due_at, now)
        return [newest, *next_times(row.cron, row.timezone, now, 1)]
    times = [float(row.next_due_at)]
    while times[-1] <= now and len(times) <= MOST_AT_ONCE:
        following = next_times(row.cron, row.timezone, times[-1], 1)
        if not following:
            break
        times.extend(following)
    return times


def latest_due(cron: str, timezone: str, first: float, now: float) -> float:
    """The newest due moment in `[first, now]`, `first` being due itself: found from the near past outwards."""
    for window in WINDOWS_S:
        start = max(first, now - window)
        found = next_times(cron, timezone, start - 1.0, 1 + int(window // 60), until=now)
        if found:
            return found[-1]
        if start == first:
            break
    return first


def chosen(catchup: str, times: list[float], now: float) -> tuple[list[float], float]:
    """Which due moments become runs, and the next one to wait for: the last of `times`, which ascends. It is a moment
    to come, unless more are due than can be handled at once."""
    due, after = [t for t in times[:-1] if t <= now], times[-1]
    if catchup == "all":
        return due, after
    newest = due[-1:]
    if catchup == "none":
        newest = [t for t in newest if now - t <= ON_TIME_S]
    return newest, after


def _submit(engine: Engine, unit: UnitOfWork, row: Any, at: float) -> bool:
    """The run of one due moment; False when it has been made before."""
    key = f"schedule:{row.id}:{clock.iso(at)}"
    taken = select(Run.id).where(Run.project_id == row.project_id, Run.idempotency_key == key)
    if unit.connection.execute(taken).first() is not None:
        return False
    graph = engine.context.graphs.get(unit.connection, row.current_version_id)
    values, problems = resolve_params(graph.params, row.params or {}, field="spec.schedule.params")
    if problems:
        raise ValueError("; ".join(p.message for p in problems))
    insert_run(
        unit,
        RunRequest(
            project_id=row.project_id,
            pipeline_id=row.pipeline_id,
            version_id=row.current_version_id,
            name=row.pipeline,
            kind="pipeline",
            graph=graph,
            params=values,
            actor=Actor(row.user_id, row.created_by or "schedule"),
            priority=graph.priority,
            backend=row.backend,
            schedule_id=row.id,
            scheduled_at=at,
            idempotency_key=key,
        ),
    )
    return True
