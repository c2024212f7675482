"""Runs, tasks and attempts written straight into the database and moved by the real unit of work."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select

from myapp.domain.runs.phases import AttemptPhase, Entity, RunPhase, TaskPhase
from myapp.persistence.database import Database
from myapp.persistence.tables import ALLOCATION, ATTEMPT, PIPELINE_VERSION, PROJECT, RUN, TASK, insert_row
from myapp.persistence.unit_of_work import UnitOfWork

GRAPH = {"format": 1, "tasks": [{"key": "one"}], "priority": "normal"}


def add_project(database: Database, slug: str) -> int:
    with database.write() as unit:
        return insert_row(
            unit.connection,
            PROJECT,
            {
                "slug": slug,
                "title": slug,
                "description": "",
                "namespace": slug,
                "backend": "local",
                "created_by": "",
                "created_at": unit.now,
            },
        )


def add_version(database: Database, project_id: int, graph: dict[str, Any] | None = None) -> int:
    """A version of no pipeline, as a submitted job has."""
    with database.write() as unit:
        return insert_row(
            unit.connection,
            PIPELINE_VERSION,
            {
                "project_id": project_id,
                "pipeline_id": None,
                "number": 1,
                "sha256": "0" * 64,
                "graph": graph or GRAPH,
                "document": {},
                "created_by": "",
                "created_at": unit.now,
            },
        )


def add_run(
    database: Database, project_id: int, version_id: int, keys: tuple[str, ...] = ("one",), **columns: Any
) -> int:
    """A queued run with blocked tasks."""
    with database.write() as unit:
        run_id = insert_row(
            unit.connection,
            RUN,
            {
                "project_id": project_id,
                "pipeline_version_id": version_id,
                "name": "a-run",
                "params": {},
                "submitted_at": unit.now,
                "created_by": "somebody",
                **columns,
            },
        )
        unit.connection.execute(
            insert(TASK),
            [{"run_id": run_id, "node_key": key, "ordinal": n, "cpu_milli": 1000} for n, key in enumerate(keys)],
        )
        return run_id


def task_id(database: Database, run_id: int, key: str = "one") -> int:
    with database.read() as connection:
        return int(
            connection.execute(select(TASK.c.id).where(TASK.c.run_id == run_id, TASK.c.node_key == key)).scalar_one()
        )


def move_task(unit: UnitOfWork, run_id: int, task_run_id: int, *path: TaskPhase, **columns: Any) -> None:
    version = unit.connection.execute(select(TASK.c.version).where(TASK.c.id == task_run_id)).scalar_one()
    unit.move(Entity.TASK, task_run_id, run_id, version, *path, **columns)


def start_task(database: Database, run_id: int, key: str = "one") -> int:
    """Move a blocked task to active with a released attempt that holds its cpu; the attempt's id."""
    task_run_id = task_id(database, run_id, key)
    with database.write() as unit:
        run = unit.lock_run(run_id)
        if run.phase == RunPhase.QUEUED:
            unit.move(Entity.RUN, run_id, run_id, run.version, RunPhase.QUEUED, RunPhase.RUNNING, started_at=unit.now)
        move_task(
            unit,
            run_id,
            task_run_id,
            TaskPhase.BLOCKED,
            TaskPhase.READY,
            TaskPhase.QUEUED,
            TaskPhase.ADMITTED,
            TaskPhase.ACTIVE,
            attempts=1,
            started_at=unit.now,
        )
        attempt_id = insert_row(
            unit.connection,
            ATTEMPT,
            {
                "run_id": run_id,
                "task_run_id": task_run_id,
                "attempt_no": 1,
                "live_guard": task_run_id,
                "backend": "local",
                "object_name": f"o-{task_run_id}-1",
                "created_at": unit.now,
            },
        )
        unit.connection.execute(
            insert(ALLOCATION).values(
                attempt_id=attempt_id,
                backend="local",
                queue="default",
                flavor="local",
                resource="cpu",
                amount=1000,
                reserved_at=unit.now,
            )
        )
        unit.move(
            Entity.ATTEMPT,
            attempt_id,
            run_id,
            0,
            AttemptPhase.PLANNED,
            AttemptPhase.ARMED,
            AttemptPhase.RELEASED,
            handle={"uid": "u", "data": {}},
            released_at=unit.now,
        )
        return attempt_id


def finish_task(database: Database, run_id: int, key: str = "one", *, close_run: bool = True) -> None:
    """End a started task well, and its run with it."""
    task_run_id = task_id(database, run_id, key)
    with database.write() as unit:
        run = unit.lock_run(run_id)
        attempt = unit.connection.execute(select(ATTEMPT).where(ATTEMPT.c.live_guard == task_run_id)).one()
        unit.move(
            Entity.ATTEMPT,
            attempt.id,
            run_id,
            attempt.version,
            AttemptPhase.RELEASED,
            AttemptPhase.FINALIZING,
            AttemptPhase.SUCCEEDED,
            live_guard=None,
            finished_at=unit.now,
            outcome="succeeded",
            exit_code=0,
        )
        unit.connection.execute(
            ALLOCATION.update().where(ALLOCATION.c.attempt_id == attempt.id).values(released_at=unit.now)
        )
        move_task(unit, run_id, task_run_id, TaskPhase.ACTIVE, TaskPhase.SUCCEEDED, finished_at=unit.now)
        if close_run:
            version = unit.connection.execute(select(RUN.c.version).where(RUN.c.id == run_id)).scalar_one()
            unit.move(
                Entity.RUN, run_id, run_id, version, RunPhase(run.phase), RunPhase.SUCCEEDED, finished_at=unit.now
            )
