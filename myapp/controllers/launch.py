"""From a task's frozen spec to a LaunchSpec: plan the ranks, ask the backend for addresses, fill in every rank."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from myapp.controllers.engine import Engine
from myapp.domain.errors import CubeError
from myapp.domain.frameworks.render import port_names, render_launch
from myapp.domain.frameworks.topology import Plan, plan
from myapp.domain.jobspec import AIJobSpec
from myapp.domain.ports import AttemptKey, ExecutionBackend, LaunchSpec, RankState, Rejected
from myapp.domain.runs.retry import RetryPolicy


def build(engine: Engine, backend: ExecutionBackend, view: Any, key: AttemptKey) -> LaunchSpec:
    """The same spec every time it is asked for one attempt. Raises Rejected when the job cannot be launched."""
    frozen = view.spec
    try:
        spec = AIJobSpec.model_validate(frozen["job"])
        framework = engine.context.frameworks.get(spec.framework)
        if framework is None:
            raise Rejected(
                f"framework {spec.framework} is not in the catalogue any more",
                resolution="Restore it, or edit the job.",
            )
        if spec.script is not None:
            runtime = engine.context.runtime_files.get(spec.framework, {})
            spec = spec.model_copy(update={"files": {**runtime, **spec.files}})
        planned, problems = plan(framework, spec)
        if planned is None:
            raise Rejected("; ".join(p.message for p in problems))
        ports = port_names(framework, planned)
        addresses = backend.addresses(view.node_key, key, planned.replicas, ports)
        return render_launch(
            framework,
            spec,
            planned,
            addresses,
            key,
            project=view.project,
            run=view.run_id,
            task=view.node_key,
            attempt=view.attempt_no,
            workspace=engine.context.workspace_of(view.project),
            inputs=tuple(frozen["inputs"]),
            devices=devices_of(planned, view.devices or []),
            sha256=view.spec_sha256,
            env={"CUBE_RUN_NAME": view.run_name},
            labels={"log_dir": engine.context.logs.live_dir(view.project, view.run_id, view.node_key, view.attempt_no)},
        )
    except CubeError as error:
        raise Rejected(error.message, resolution=error.resolution or "") from error
    except ValueError as error:
        raise Rejected(f"its frozen spec cannot be launched by this version: {error}"[:1000]) from error


def devices_of(planned: Plan, devices: list[int]) -> dict[int, tuple[int, ...]]:
    """Deal the admitted GPU indices out to the ranks, in rank order."""
    left = list(devices)
    dealt: dict[int, tuple[int, ...]] = {}
    for rank in planned.ranks:
        dealt[rank.rank], left = tuple(left[: rank.resources.gpu]), left[rank.resources.gpu :]
    return dealt


def timeout_of(view: Any) -> float | None:
    return view.spec.get("timeout") if view.spec else None


def grace_of(view: Any) -> float:
    return float(view.spec.get("grace", 30)) if view.spec else 30.0


def retry_policy(view: Any, defaults: RetryPolicy) -> RetryPolicy:
    retry = (view.spec or {}).get("retry") or {}
    return RetryPolicy(
        limit=retry.get("limit", defaults.limit),
        backoff_s=retry.get("backoff", defaults.backoff_s),
        max_backoff_s=retry.get("max_backoff", defaults.max_backoff_s),
        infra_limit=defaults.infra_limit,
        infra_backoff_s=defaults.infra_backoff_s,
    )


def rank_json(rank: RankState) -> dict[str, Any]:
    """A rank's state as it is stored and shown."""
    return {k: v for k, v in asdict(rank).items() if v not in (None, "")}
