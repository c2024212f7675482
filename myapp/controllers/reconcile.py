"""One look at one attempt: read, observe, decide, do one idempotent thing; again while there is something to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import structlog

from myapp.controllers import close, launch
from myapp.controllers.engine import Engine
from myapp.domain.ports import (
    AttemptKey,
    BackendError,
    Cause,
    ExecutionBackend,
    Handle,
    Observation,
    ObservedState,
    Rejected,
    Transient,
)
from myapp.domain.runs.decide import AttemptSnapshot, Decision, Do, Outcome, StopReason, decide
from myapp.domain.runs.diagnose import Diagnosis, diagnose, resolution
from myapp.domain.runs.phases import ATTEMPT_TERMINAL, AttemptPhase, Desired, Entity, TaskPhase
from myapp.domain.runs.transitions import StaleRow
from myapp.persistence import run_store
from myapp.persistence.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)
MAX_STEPS = 12
VERB_RETRY_S = 2.0
LOST_RING_NET_S = 30.0  # a released attempt is looked at this often though nobody rang


def step(engine: Engine, attempt_id: int) -> int | None:
    """Do all that can be done now for this attempt. Returns its run's id when it ended, else None."""
    for _ in range(MAX_STEPS):
        with engine.context.database.read() as connection:
            row = run_store.attempt(connection, attempt_id)
        if row is None or row.phase in ATTEMPT_TERMINAL:
            return None
        backend = engine.backends.get(row.backend)
        if backend is None:
            return None
        view = SimpleNamespace(**row._mapping)
        try:
            if not _look(engine, backend, view):
                return int(view.run_id) if view.phase in ATTEMPT_TERMINAL else None
        except StaleRow:
            continue
    return None


def key_of(view: Any) -> AttemptKey:
    return AttemptKey(project=view.project, attempt_id=view.id, object_name=view.object_name)


def handle_of(view: Any) -> Handle:
    return Handle(uid=view.handle["uid"], data=view.handle["data"])


def _look(engine: Engine, backend: ExecutionBackend, view: Any) -> bool:
    """One decision carried out; True when it is worth looking again at once."""
    observation: Observation | None = None
    if view.phase in (AttemptPhase.ARMED, AttemptPhase.RELEASED):
        observation = backend.observe(key_of(view), handle_of(view))
    now = engine.context.database.clock()
    decision = decide(_snapshot(view), observation, now)
    match decision.do:
        case Do.ARM:
            return _arm(engine, backend, view)
        case Do.CLOSE_UNARMED:
            diagnosis = diagnose(Outcome.STOPPED, StopReason.CANCEL, None)
            close.close(engine, view, Outcome.STOPPED, diagnosis)
            return False
        case Do.RELEASE:
            _release(engine, view)
            _fire(engine, backend, view)
        case Do.FIRE:
            _fire(engine, backend, view)
        case Do.STOP:
            _stop(engine, backend, view, decision, now)
        case Do.FINALIZE:
            assert decision.outcome is not None
            close.seal(engine, backend, view, _evidence(engine, view, decision.outcome, observation))
            return False
        case Do.SEAL:
            close.seal(engine, backend, view)
            return False
        case Do.MARK_ABSENT:
            _note(engine, view, observation, absent_since=now, next_check_at=decision.again_at)
            return False
        case Do.NOTHING:
            pass
    _keep_watching(engine, view, observation, decision, now)
    return False


def _snapshot(view: Any) -> AttemptSnapshot:
    return AttemptSnapshot(
        phase=AttemptPhase(view.phase),
        desired=Desired(view.desired),
        stop_reason=StopReason(view.stop_reason) if view.stop_reason else None,
        stop_asked_at=view.stop_asked_at,
        absent_since=view.absent_since,
        run_deadline_at=view.run_deadline_at,
        ready_deadline_at=view.ready_deadline_at,
        grace_s=launch.grace_of(view),
    )


def _arm(engine: Engine, backend: ExecutionBackend, view: Any) -> bool:
    try:
        spec = launch.build(engine, backend, view, key_of(view))
        handle = backend.arm(spec, key_of(view))
    except Transient as error:
        _note(
            engine,
            view,
            None,
            message=str(error)[:2000],
            next_check_at=engine.context.database.clock() + error.retry_after,
        )
        return False
    except Rejected as error:
        diagnosis = Diagnosis(error.cause, str(error), resolution=error.resolution or resolution(error.cause))
        close.close(engine, view, Outcome.FAILED, diagnosis)
        return False
    except (BackendError, OSError) as error:
        log.error("arm failed", attempt=view.id, error=str(error))
        close.close(
            engine, view, Outcome.FAILED, Diagnosis(Cause.BACKEND, str(error), resolution=resolution(Cause.BACKEND))
        )
        return False
    engine.crash("created")
    view.handle = {"uid": handle.uid, "data": handle.data}
    if not _record(engine, view):
        return True
    engine.crash("released")
    _fire(engine, backend, view)
    return False


def _record(engine: Engine, view: Any) -> bool:
    """planned -> armed, and on to released when the run is still to run. True when released."""
    with engine.context.database.write() as unit:
        run = unit.lock_run(view.run_id)
        wanted = bool(run.desired == Desired.RUN)
        path = [AttemptPhase.PLANNED, AttemptPhase.ARMED] + ([AttemptPhase.RELEASED] if wanted else [])
        columns = _release_columns(view, unit.now) if wanted else {"next_check_at": unit.now}
        version = unit.move(
            Entity.ATTEMPT, view.id, view.run_id, view.version, *path, handle=view.handle, armed_at=unit.now, **columns
        )
        if wanted:
            _activate_task(unit, view)
    view.version = version
    return wanted


def _release(engine: Engine, view: Any) -> None:
    with engine.context.database.write() as unit:
        run = unit.lock_run(view.run_id)
        if run.desired != Desired.RUN:
            raise StaleRow("the run is to stop")
        version = unit.move(
            Entity.ATTEMPT,
            view.id,
            view.run_id,
            view.version,
            AttemptPhase.ARMED,
            AttemptPhase.RELEASED,
            **_release_columns(view, unit.now),
        )
        _activate_task(unit, view)
    view.version = version
    engine.crash("released")


def _activate_task(unit: UnitOfWork, view: Any) -> None:
    unit.move(
        Entity.TASK,
        view.task_run_id,
        view.run_id,
        view.task_version,
        TaskPhase.ADMITTED,
        TaskPhase.ACTIVE,
        started_at=unit.now,
    )


def _release_columns(view: Any, now: float) -> dict[str, Any]:
    timeout = launch.timeout_of(view)
    deadline = now + timeout if timeout else None
    return {
        "released_at": now,
        "run_deadline_at": deadline,
        "next_check_at": min(now + LOST_RING_NET_S, deadline or now + LOST_RING_NET_S),
    }


def _fire(engine: Engine, backend: ExecutionBackend, view: Any) -> None:
    try:
        backend.fire(key_of(view), handle_of(view))
    except BackendError as error:
        log.warning("fire failed, will be tried again", attempt=view.id, error=str(error))
        _note(engine, view, None, next_check_at=engine.context.database.clock() + VERB_RETRY_S)
    engine.crash("fired")


def _stop(engine: Engine, backend: ExecutionBackend, view: Any, decision: Decision, now: float) -> None:
    """The reason is written before anything is told to stop: it decides what the end will mean."""
    if view.stop_reason is None:
        _note(
            engine,
            view,
            None,
            stop_reason=str(decision.stop_reason),
            stop_asked_at=now,
            next_check_at=decision.again_at,
        )
    else:
        _note(engine, view, None, stop_asked_at=now, next_check_at=decision.again_at)
    engine.crash("stop_noted")
    try:
        backend.stop(key_of(view), handle_of(view), int(launch.grace_of(view)))
    except BackendError as error:
        log.warning("stop failed, will be tried again", attempt=view.id, error=str(error))
        _note(engine, view, None, stop_asked_at=None, next_check_at=now + VERB_RETRY_S)


def _evidence(engine: Engine, view: Any, outcome: Outcome, observation: Observation | None) -> dict[str, Any]:
    """The outcome and all the evidence there will ever be: columns of the attempt."""
    gone = observation is None or observation.state is ObservedState.ABSENT
    seen = None if gone else observation
    stop_reason = StopReason(view.stop_reason) if view.stop_reason else None
    diagnosis = diagnose(outcome, stop_reason, seen)
    ranks = seen.ranks if seen else ()
    bad = next((r.exit_code for r in ranks if r.exit_code), None)
    return {
        "outcome": str(outcome),
        "observed": str(observation.state) if observation else "",
        "ranks": [launch.rank_json(r) for r in ranks],
        "exit_code": bad if bad is not None else (0 if ranks and outcome is Outcome.SUCCEEDED else None),
        "cause": str(diagnosis.cause or "") if diagnosis else "",
        "diagnosis": diagnosis.to_json() if diagnosis else None,
        "message": (diagnosis.summary if diagnosis else "")[:2000],
        "started_at": min((r.started_at for r in ranks if r.started_at), default=view.started_at),
        "finished_at": max((r.finished_at for r in ranks if r.finished_at), default=None)
        or engine.context.database.clock(),
    }


def _keep_watching(engine: Engine, view: Any, observation: Observation | None, decision: Decision, now: float) -> None:
    """Write down what was seen when it is new, and make sure that somebody looks again."""
    changes: dict[str, Any] = {}
    if decision.clear_absent:
        changes["absent_since"] = None
    if observation is not None and decision.do is Do.NOTHING:
        seen = str(observation.state)
        message = (observation.message or next((r.message for r in observation.ranks if r.message), ""))[:2000]
        if seen != view.observed or message != view.message:
            changes |= {"observed": seen, "message": message, "ranks": [launch.rank_json(r) for r in observation.ranks]}
            if observation.state is ObservedState.RUNNING and view.started_at is None:
                changes["started_at"] = min((r.started_at for r in observation.ranks if r.started_at), default=now)
        due = decision.again_at or now + LOST_RING_NET_S
        if view.next_check_at is None or view.next_check_at <= now or due < view.next_check_at - 1.0:
            changes["next_check_at"] = due
    if changes:
        _note(engine, view, None, **changes)


def _note(engine: Engine, view: Any, observation: Observation | None, **columns: Any) -> None:
    if observation is not None:
        columns["observed"] = str(observation.state)
    with engine.context.database.write() as unit:
        if not run_store.note_attempt(unit.connection, view.id, view.version, **columns):
            raise StaleRow(f"attempt {view.id} moved on")
