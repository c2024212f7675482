"""Fields of a job that its project's backend cannot honour: refused where data would be missing, else only said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from myapp.domain.errors import Problem

LOCAL = "local"
CLUSTER_VOLUMES = ("hostPath", "pvc", "configMap", "secret")


def check_backend(
    backend: str | None, body: Mapping[str, Any], *, field: str, node: str | None = None
) -> list[Problem]:
    """A raw AIJob spec (or a part of one: `resources`) on a backend; None or an unknown one: nothing is said.

    A volume that only a cluster has is an error, a field without effect a warning.
    """
    if backend != LOCAL:
        return []
    problems: list[Problem] = []
    volumes = body.get("volumes")
    for i, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        kind = volume.get("type") if isinstance(volume, Mapping) else None
        if kind in CLUSTER_VOLUMES:
            problems.append(Problem(
                code="needs_cluster", field=f"{field}.volumes[{i}].type", node=node,
                message=f"a volume of type {kind} needs a Kubernetes cluster; the local backend has only the workspace",
                resolution="put the data into the project's workspace",
            ))
    if body.get("image"):
        problems.append(_idle("image", f"{field}.image", node, "name packages in environment.requirements"))
    if body.get("queue") not in (None, "default"):
        problems.append(_idle("queue", f"{field}.queue", node, "all jobs share one queue; use priority"))
    resources = body.get("resources")
    if isinstance(resources, Mapping) and resources.get("gpuType"):
        problems.append(_idle("gpuType", f"{field}.resources.gpuType", node, "any device may be given"))
    return problems


def _idle(name: str, field: str, node: str | None, resolution: str) -> Problem:
    return Problem(code="no_effect", message=f"{name} has no effect on the local backend", field=field, node=node,
                   resolution=resolution, severity="warning")
