"""The end of an attempt: seal its logs, keep what it left, then one transaction that closes everything at once."""

from __future__ import annotations

import json
import os
from typing import Any

import orjson
import structlog

from myapp.controllers import advance, launch
from myapp.controllers.engine import Engine
from myapp.domain.errors import CubeError
from myapp.domain.ports import AttemptKey, BackendError, Cause, Collected, ExecutionBackend, Handle
from myapp.domain.runs.decide import Outcome
from myapp.domain.runs.diagnose import Diagnosis, with_log
from myapp.domain.runs.phases import AttemptPhase, Desired, Entity, TaskPhase
from myapp.domain.runs.retry import judge
from myapp.persistence import run_store
from myapp.persistence.unit_of_work import Topic

log = structlog.get_logger(__name__)
REAP_DELAY_S = 15.0  # the ended object is deleted a little later, in batches
SEAL_RETRY_S = 10.0
LOG_TAIL = 4096  # bytes of a failed rank that are looked at for a known cause
MAX_STEP = 2**63 - 1
LAST_MOMENT = 253_402_300_799.0  # of the year 9999, the last that a calendar can show


def seal(engine: Engine, backend: ExecutionBackend, view: Any, evidence: dict[str, Any] | None = None) -> None:
    """Seal and close an ended attempt. Safe to repeat: everything is stored under keys of the attempt.

    `evidence`: its outcome and what goes with it, unless they are written already (it is finalizing). When the store
    cannot take it (full, away) the attempt becomes or stays finalizing and is tried again; nothing is lost.
    """
    for name, value in (evidence or {}).items():
        setattr(view, name, value)
    engine.crash("finalizing")
    key = AttemptKey(view.project, view.id, view.object_name)
    outcome = Outcome(view.outcome)
    try:
        collected = backend.collect(key, Handle(view.handle["uid"], view.handle["data"]))
        chunks = engine.context.logs.seal(view.project, view.run_id, view.node_key, view.attempt_no, collected.logs)
        outputs, problems = _keep(engine, view, collected) if outcome is Outcome.SUCCEEDED else ([], [])
    except (OSError, BackendError) as error:
        log.error("sealing failed, will be tried again", attempt=view.id, error=str(error))
        _wait_for_store(engine, view, evidence, f"waiting for the store: {error}"[:2000])
        return
    except Exception as error:  # whatever a job left behind, its end must not be tried for ever
        log.exception("the results of an attempt cannot be kept", attempt=view.id)
        collected, chunks, outputs = Collected(), [], []
        problems = [f"its results could not be kept: {type(error).__name__}: {error}"[:500]]
    engine.crash("sealed")
    diagnosis = (
        Diagnosis(**{**view.diagnosis, "cause": Cause(view.diagnosis["cause"]) if view.diagnosis["cause"] else None})
        if view.diagnosis
        else None
    )
    if outcome is Outcome.FAILED and diagnosis is not None:
        diagnosis = with_log(diagnosis, _log_tail(collected, view.ranks or []))
        evidence = (evidence or {}) | {"diagnosis": diagnosis.to_json()}
    metrics = [
        {
            "run_id": view.run_id,
            "task_run_id": view.task_run_id,
            "attempt_id": view.id,
            "name": str(m["name"])[:128],
            "value": float(m["value"]),
            "step": _step(m.get("step")),
            "at": _moment(m.get("at"), view.finished_at),
        }
        for m in collected.metrics
    ]
    logs = [
        {
            "attempt_id": view.id,
            "rank": c.rank,
            "seq": c.seq,
            "byte_start": c.byte_start,
            "byte_end": c.byte_end,
            "object_key": c.object_key,
            "sealed": True,
        }
        for c in chunks
    ]
    close(
        engine,
        view,
        outcome,
        diagnosis,
        evidence=evidence,
        outputs=outputs,
        metrics=metrics,
        logs=logs,
        problems=problems,
    )


def _log_tail(collected: Collected, ranks: list[dict[str, Any]]) -> str:
    """The end of the log of the rank that failed first by itself; empty when it cannot be read."""
    bad = [r for r in ranks if r.get("exit_code") and r.get("cause") not in (Cause.PEER_FAILED, Cause.CANCELLED)]
    first = min(bad, key=lambda r: (r.get("finished_at") or LAST_MOMENT, r["rank"]), default=None)
    path = collected.logs.get(first["rank"]) if first is not None else None
    if path is None:
        return ""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return file.read(LOG_TAIL).decode(errors="replace")
    except OSError:
        return ""


def _wait_for_store(engine: Engine, view: Any, evidence: dict[str, Any] | None, message: str) -> None:
    with engine.context.database.write() as unit:
        columns: dict[str, Any] = {"message": message, "next_check_at": unit.now + SEAL_RETRY_S}
        if evidence is None:
            run_store.note_attempt(unit.connection, view.id, view.version, **columns)
            return
        unit.lock_run(view.run_id)
        unit.move(
            Entity.ATTEMPT,
            view.id,
            view.run_id,
            view.version,
            AttemptPhase(view.phase),
            AttemptPhase.FINALIZING,
            note=message,
            **(evidence | columns),
        )


def _keep(engine: Engine, view: Any, collected: Collected) -> tuple[list[dict[str, Any]], list[str]]:
    """Output rows of a successful attempt, its artifacts moved into the store; and what could not be kept, in words."""
    problems = list(collected.problems)
    base = {"run_id": view.run_id, "task_run_id": view.task_run_id, "attempt_id": view.id}
    rows: list[dict[str, Any]] = [
        {
            **base,
            "name": name,
            "kind": "value",
            "value": storable(value),
            "path": None,
            "size": None,
            "media_type": None,
        }
        for name, value in collected.values.items()
    ]
    for name, path in collected.artifacts.items():
        if name in collected.values:
            continue
        try:
            stored = engine.context.artifacts.put(view.project, view.run_id, view.node_key, view.attempt_no, name, path)
        except CubeError as error:  # what the job left cannot be an artifact: trying again would not change it
            problems.append(f"artifact {name} was not kept: {error.message}")
            continue
        rows.append(
            {
                **base,
                "name": name,
                "kind": "artifact",
                "value": None,
                "path": stored.path,
                "size": stored.size,
                "media_type": stored.media_type,
            }
        )
    return rows, problems


def storable(value: Any) -> Any:
    """A job's value as the database can keep it: what is too large or too deep for a JSON column becomes its text."""
    try:
        orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=True)
    return value


def _moment(at: Any, default: float) -> float:
    """When a metric was measured, as the job says where that is a moment since 1970."""
    return float(at) if isinstance(at, int | float) and 0 < at <= LAST_MOMENT else float(default)


def _step(step: Any) -> int | None:
    """The step of a metric, None when no integer column could hold it."""
    return step if isinstance(step, int) and abs(step) <= MAX_STEP else None


def close(
    engine: Engine,
    view: Any,
    outcome: Outcome,
    diagnosis: Diagnosis | None,
    *,
    evidence: dict[str, Any] | None = None,
    outputs: list[dict[str, Any]] | None = None,
    metrics: list[dict[str, Any]] | None = None,
    logs: list[dict[str, Any]] | None = None,
    problems: list[str] | None = None,
) -> None:
    """One transaction: the attempt ends, its allocation closes, its task ends or is queued again, the graph goes on."""
    cause = diagnosis.cause if diagnosis else None
    summary = diagnosis.summary if diagnosis else ""
    with engine.context.database.write() as unit:
        run = unit.lock_run(view.run_id)
        extra: dict[str, Any] = {"message": summary[:2000]} | (evidence or {})
        path = [AttemptPhase(view.phase), AttemptPhase(str(outcome))]
        if path[0] in (AttemptPhase.ARMED, AttemptPhase.RELEASED):
            path.insert(1, AttemptPhase.FINALIZING)
        if view.phase == AttemptPhase.PLANNED:
            extra = {
                "finished_at": unit.now,
                "cause": str(cause or ""),
                "message": summary[:2000],
                "outcome": str(outcome),
                "diagnosis": diagnosis.to_json() if diagnosis else None,
            }
        unit.move(
            Entity.ATTEMPT,
            view.id,
            view.run_id,
            view.version,
            *path,
            note=summary,
            live_guard=None,
            next_check_at=unit.now + REAP_DELAY_S,
            **extra,
        )
        run_store.release_allocations(unit.connection, view.id, unit.now)
        run_store.insert_results(unit.connection, outputs or [], metrics or [], logs or [])
        unit.post(Topic.ADMISSION, view.backend, ring=False)
        ended = _end_task(engine, unit, run, view, outcome, diagnosis, problems or [])
        if ended:
            advance.after(engine, unit, run, view.node_key)
        else:
            advance.promote(unit, run, advance.room(unit, run))
    view.phase = AttemptPhase(str(outcome))
    engine.crash("closed")


def _end_task(
    engine: Engine, unit: Any, run: Any, view: Any, outcome: Outcome, diagnosis: Diagnosis | None, problems: list[str]
) -> bool:
    """Move the task on from its ended attempt. True when it has ended, False when another attempt will follow."""
    cause = diagnosis.cause if diagnosis else None
    reason = _reason(diagnosis)
    stopping = run.desired == Desired.STOP
    source = TaskPhase(view.task_phase)
    columns: dict[str, Any] = {"reason": reason[:2000], "reason_code": str(cause or "")}

    def move(target: TaskPhase, **more: Any) -> None:
        unit.move(Entity.TASK, view.task_run_id, view.run_id, view.task_version, source, target, **columns, **more)

    if outcome is Outcome.SUCCEEDED:
        columns["reason"] = "; ".join(problems)[:2000]
        move(TaskPhase.SUCCEEDED, finished_at=unit.now)
        return True
    verdict = judge(
        outcome,
        cause,
        launch.retry_policy(view, engine.retry_defaults),
        user_failures=view.user_failures,
        infra_failures=view.infra_failures,
    )
    counter = (
        {"infra_failures": view.infra_failures + 1}
        if verdict.infrastructure
        else {"user_failures": view.user_failures + 1}
    )
    if outcome is Outcome.STOPPED or (stopping and verdict.again):
        if stopping and run.reason:
            columns |= {"reason": run.reason, "reason_code": run.reason_code}
        move(TaskPhase.STOPPED, finished_at=unit.now)
        return True
    if verdict.again:
        columns["reason"] = f"{reason}; tried again in {verdict.delay_s:g} s"[:2000]
        move(TaskPhase.READY, next_check_at=unit.now + verdict.delay_s, **counter)
        return False
    move(TaskPhase.FAILED, finished_at=unit.now, **counter)
    return True


def _reason(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return ""
    return ". ".join(part.rstrip(".") for part in (diagnosis.summary, diagnosis.resolution) if part)
