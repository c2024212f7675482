"""Admission: queued tasks get resources and an attempt, in one transaction under one lock per backend."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from myapp.controllers.engine import Engine
from myapp.domain.naming import object_name
from myapp.domain.runs.phases import AttemptPhase, Desired, Entity, TaskPhase
from myapp.domain.scheduling.plan import Candidate, plan
from myapp.domain.scheduling.resources import Request
from myapp.persistence import run_store
from myapp.persistence.unit_of_work import Topic, UnitOfWork

WINDOW = 64  # how far past the head of the queue one look reaches
LAUNCH_NET_S = 5.0  # a planned attempt nobody launched is looked at again after this


def step(engine: Engine, backend: str) -> list[int]:
    """Admit what fits; the ids of the new attempts, to be launched. Cheap when nothing is queued or nothing is free."""
    with engine.context.database.write() as unit:
        unit.answered(Topic.ADMISSION, backend)
        capacity = run_store.lock_capacity(unit.connection, backend)
        rows = run_store.queued(unit.connection, backend, WINDOW)
        if not rows:
            return []
        used = run_store.usage(unit.connection, backend)
        free = {resource: amount - used.get(resource, 0) for resource, amount in capacity.items()}
        chosen = plan([Candidate(r.id, _request(r), r.queued_at or unit.now) for r in rows], free, unit.now)
        if not chosen:
            return []
        by_id = {r.id: r for r in rows}
        runs = unit.lock_runs([by_id[i].run_id for i in chosen])
        taken: set[int] | None = None
        attempts: list[int] = []
        for task_id in chosen:
            row = by_id[task_id]
            run = runs.get(row.run_id)
            if run is None or run.desired != Desired.RUN:
                continue
            devices: list[int] | None = None
            if row.gpu:
                taken = run_store.devices_in_use(unit.connection, backend) if taken is None else taken
                devices = [d for d in range(capacity.get("gpu", 0)) if d not in taken][: row.gpu]
                taken.update(devices)
            attempts.append(_admit(unit, row, run, backend, devices))
        if len(attempts) == WINDOW:
            unit.post(Topic.ADMISSION, backend)
    engine.crash("admitted")
    return attempts


def _request(row: Row[Any]) -> dict[str, int]:
    return Request(row.cpu_milli, row.memory, row.gpu).amounts()


def _admit(unit: UnitOfWork, row: Row[Any], run: Row[Any], backend: str, devices: list[int] | None) -> int:
    number = row.attempts + 1
    unit.move(
        Entity.TASK,
        row.id,
        row.run_id,
        row.version,
        TaskPhase.QUEUED,
        TaskPhase.ADMITTED,
        attempts=number,
        reason="",
        reason_code="",
    )
    attempt_id = run_store.insert_attempt(
        unit.connection,
        run_id=row.run_id,
        task_run_id=row.id,
        attempt_no=number,
        phase=str(AttemptPhase.PLANNED),
        version=0,
        live_guard=row.id,
        backend=backend,
        object_name=object_name(run.name, row.node_key, row.id * 10_000 + number),
        devices=devices,
        created_at=unit.now,
        next_check_at=unit.now + LAUNCH_NET_S,
    )
    run_store.insert_allocations(
        unit.connection,
        [
            {
                "attempt_id": attempt_id,
                "backend": backend,
                "queue": run.queue,
                "flavor": backend,
                "resource": resource,
                "amount": amount,
                "reserved_at": unit.now,
            }
            for resource, amount in _request(row).items()
        ],
    )
    return attempt_id
