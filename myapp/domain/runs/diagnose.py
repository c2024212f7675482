"""From what was observed to what a person needs: the cause in words, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from myapp.domain.ports import Cause, Observation, RankState
from myapp.domain.runs.decide import Outcome, StopReason


@dataclass(frozen=True)
class Diagnosis:
    """`cause` is a metric label; `summary` one line; `resolution` what to do."""

    cause: Cause | None
    summary: str
    detail: str = ""
    resolution: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "cause": self.cause or "",
            "summary": self.summary,
            "detail": self.detail,
            "resolution": self.resolution,
        }


_RESOLUTIONS: dict[Cause, str] = {
    Cause.EXIT_NONZERO: "Read the end of the log; the command itself reported an error.",
    Cause.SIGNAL: "The process was killed from outside or crashed; read the end of the log.",
    Cause.OOM: "Ask for more memory (resources.memory), or use smaller batches.",
    Cause.TIMEOUT: "Raise the task's timeout, or make the work shorter.",
    Cause.CANCELLED: "",
    Cause.COMMAND_NOT_FOUND: "Check the command's spelling, or add what provides it to the environment's requirements.",
    Cause.ENVIRONMENT: "Correct the requirements; the installer's last lines say which one it refused.",
    Cause.ENVIRONMENT_TRANSIENT: "The package index is out of reach or the disk is full; it is tried again by itself.",
    Cause.PEER_FAILED: "Another rank ended first; look at that one.",
    Cause.INTERRUPTED: "The platform or the machine was stopped; the task is tried again by itself.",
    Cause.LOST: "The processes vanished (killed from outside, or the machine restarted); tried again by itself.",
    Cause.EVICTED: "The node needed its resources; tried again by itself.",
    Cause.NODE_LOST: "The node went away; tried again by itself.",
    Cause.REJECTED: "Change the job as the message says; the same job would be refused again.",
    Cause.NOT_READY: "Not all ranks became ready in time; tried again by itself.",
    Cause.BACKEND: "The backend failed while launching; tried again by itself.",
}
_STOPPED: dict[StopReason, tuple[Cause, str]] = {
    StopReason.CANCEL: (Cause.CANCELLED, "stopped because the run was cancelled"),
    StopReason.TIMEOUT: (Cause.TIMEOUT, "stopped because its timeout passed"),
    StopReason.NOT_READY: (Cause.NOT_READY, "stopped because not all ranks were ready in time"),
}


def resolution(cause: Cause | None) -> str:
    return _RESOLUTIONS.get(cause, "") if cause else ""


def first_bad_rank(ranks: tuple[RankState, ...]) -> RankState | None:
    """The rank whose failure came first and was its own: not one that fell because another did."""
    bad = [r for r in ranks if r.exit_code not in (0, None) or (r.cause is not None and r.cause is not Cause.CANCELLED)]
    own = [r for r in bad if r.cause not in (Cause.PEER_FAILED, Cause.CANCELLED)] or bad
    return min(own, key=lambda r: (r.finished_at is None, r.finished_at or 0.0, r.rank), default=None)


def diagnose(outcome: Outcome, stop_reason: StopReason | None, observation: Observation | None) -> Diagnosis | None:
    """None when it succeeded."""
    if outcome is Outcome.SUCCEEDED:
        return None
    if stop_reason in _STOPPED:
        cause, summary = _STOPPED[stop_reason]
        return Diagnosis(cause, summary, resolution=resolution(cause))
    if outcome is Outcome.LOST or observation is None:
        return Diagnosis(
            Cause.LOST, "its processes are gone and left no exit status", resolution=resolution(Cause.LOST)
        )
    rank = first_bad_rank(observation.ranks)
    if rank is None:
        return Diagnosis(Cause.EXIT_NONZERO, observation.message or "failed", resolution=resolution(Cause.EXIT_NONZERO))
    cause = rank.cause or Cause.EXIT_NONZERO
    who = f"rank {rank.rank} ({rank.role} {rank.index}) " if len(observation.ranks) > 1 else ""
    return Diagnosis(cause, who + _words(cause, rank), detail=rank.message, resolution=resolution(cause))


_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([A-Za-z_][A-Za-z0-9_.]{0,200})'", re.M)
_LAST_LINES = 5
_PACKAGES = {"PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "skimage": "scikit-image",
             "sklearn": "scikit-learn", "yaml": "pyyaml"}


def with_log(found: Diagnosis, tail: str) -> Diagnosis:
    """The diagnosis with what the end of the log tells: a Python module that is not in the environment."""
    if found.cause is not Cause.EXIT_NONZERO:
        return found
    last = "\n".join(tail.rstrip().splitlines()[-_LAST_LINES:])
    missing = _MISSING_MODULE.findall(last)
    if not missing:
        return found
    module = missing[-1].partition(".")[0]
    package = _PACKAGES.get(module, module)
    return replace(found, detail=f"No module named '{missing[-1]}'",
                   resolution=f"The Python module '{module}' is missing: add '{package}' to environment.requirements.")


def _words(cause: Cause, rank: RankState) -> str:
    if cause is Cause.EXIT_NONZERO:
        return f"ended with exit code {rank.exit_code}"
    if cause is Cause.SIGNAL and rank.exit_code is not None:
        return f"was killed by signal {rank.exit_code - 128}"
    if cause is Cause.OOM:
        return "was killed because it used more memory than it asked for"
    if cause is Cause.COMMAND_NOT_FOUND:
        return rank.message or "could not start: command not found"
    if cause in (Cause.ENVIRONMENT, Cause.ENVIRONMENT_TRANSIENT):
        return "could not start: its environment could not be built"
    if cause is Cause.INTERRUPTED:
        return "was interrupted because the platform stopped"
    return rank.message or cause.value.replace("_", " ")
