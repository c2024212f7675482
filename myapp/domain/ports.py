"""The seams between the run engine and the places where work runs or is kept.

A backend knows no tables: it takes a `LaunchSpec`, returns a `Handle`, and answers `observe` with an `Observation`.
The contract of each verb is in its docstring; `tests/contract/test_backend.py` runs it over every backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True)
class AttemptKey:
    """Identity of one attempt. `object_name` is deterministic, stored, never recomputed; at most 63 chars [a-z0-9-]."""

    project: str
    attempt_id: int
    object_name: str


@dataclass(frozen=True)
class Resources:
    """What one rank asks for. cpu in millicores, memory in bytes, devices by count."""

    cpu_milli: int = 1000
    memory: int = 512 * 1024 * 1024
    gpu: int = 0
    gpu_type: str | None = None
    rdma: int = 0


@dataclass(frozen=True)
class EnvironmentSpec:
    """Where a rank's Python comes from, for backends without images.

    Exactly one of: `requirements` (a cached virtual environment keyed by their hash), `interpreter` (a name an admin
    has allowed), or neither: the command runs as it is, with no Python promised.
    """

    requirements: tuple[str, ...] = ()
    interpreter: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class RankSpec:
    """One process (or pod). `env` is everything the rank sees beyond the backend's own base variables.

    `{{host:ROLE:INDEX}}` and `{{port:NAME}}` never appear here: `domain.frameworks.render` asks the backend for
    addresses through `ExecutionBackend.addresses` first and fills them. In `command`, and only there, the exact text
    `$(CUBE_JOB_DIR)` stands for the folder of `LaunchSpec.files`: Kubernetes expands it itself, the others replace it
    in the argv. `python` in the argv is the environment's: its `bin` comes first in PATH.
    """

    role: str
    index: int                      # within the role
    rank: int                       # global, 0..world_size-1
    command: tuple[str, ...]        # argv, never a shell string
    env: dict[str, str]
    resources: Resources
    devices: tuple[int, ...] = ()   # GPU indices handed out by admission


@dataclass(frozen=True)
class LaunchSpec:
    """Everything a backend needs to run one attempt."""

    name: str
    ranks: tuple[RankSpec, ...]
    success_roles: tuple[str, ...]          # the job succeeds when every rank of these roles exits 0
    environment: EnvironmentSpec = EnvironmentSpec()
    files: dict[str, str] = field(default_factory=dict)   # name -> text, read-only in $CUBE_JOB_DIR
    image: str | None = None
    workdir: str | None = None              # relative to the workspace; default: the workspace itself
    workspace: str = ""                     # project's workspace (a folder for local)
    inputs: tuple[str, ...] = ()            # folders (artifacts of upstream tasks) the job may read
    stop_signal: str = "TERM"
    grace_s: int = 30
    sha256: str = ""                        # of the frozen task spec; adoption compares it
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Handle:
    """What `arm` created. `uid` is unique for ever; `data` is the backend's own (JSON-serialisable)."""

    uid: str
    data: dict[str, Any] = field(default_factory=dict)


class ObservedState(StrEnum):
    INERT = "inert"          # created, not released
    PENDING = "pending"      # released, not running yet (building the environment, pulling an image)
    RUNNING = "running"
    ENDING = "ending"        # told to stop or being deleted; still holds devices
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABSENT = "absent"        # positive proof that the recorded identity is gone
    UNKNOWN = "unknown"      # could not find out; never ends anything


class Cause(StrEnum):
    """Why a rank or a job ended badly: the closed set of reason labels."""

    EXIT_NONZERO = "exit_nonzero"
    SIGNAL = "signal"
    OOM = "oom"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    COMMAND_NOT_FOUND = "command_not_found"
    ENVIRONMENT = "environment"            # the environment or image could not be built or pulled
    ENVIRONMENT_TRANSIENT = "environment_transient"   # ... but trying again may help (index unreachable)
    PEER_FAILED = "peer_failed"            # ended because another rank died
    INTERRUPTED = "interrupted"            # the platform or the machine was stopped
    LOST = "lost"
    EVICTED = "evicted"
    NODE_LOST = "node_lost"
    REJECTED = "rejected"                  # the backend refused the object
    NOT_READY = "not_ready"                # the gang's deadline passed
    BACKEND = "backend"                    # the backend failed while launching


@dataclass(frozen=True)
class RankState:
    role: str
    index: int
    rank: int
    state: ObservedState
    exit_code: int | None = None           # 128+n when a signal ended it
    cause: Cause | None = None
    message: str = ""                      # for a person: "installing scikit-learn", installer's last lines ...
    started_at: float | None = None        # unix seconds
    finished_at: float | None = None


@dataclass(frozen=True)
class Observation:
    """What a backend saw. `state` is the job's; ranks in rank order (empty when ABSENT or UNKNOWN)."""

    state: ObservedState
    ranks: tuple[RankState, ...] = ()
    message: str = ""
    broken: bool = False                   # a rank that must not die has died while others still run
    complete: bool = False                 # every success rank exited 0 while others (e.g. ps) still run

    @property
    def ended(self) -> bool:
        return self.state in (ObservedState.SUCCEEDED, ObservedState.FAILED)


@dataclass(frozen=True)
class OwnedObject:
    object_name: str
    uid: str
    attempt_id: int | None
    created_at: float                      # unix seconds


@dataclass(frozen=True)
class LogSlice:
    data: bytes
    offset: int
    next_offset: int
    eof: bool                              # nothing more will come


@dataclass(frozen=True)
class Capacity:
    """One resource of one flavor: cpu (millicores), memory (bytes), gpu (count)."""

    flavor: str
    resource: str
    amount: int


class BackendError(Exception):
    """Base of what a backend may raise."""


class Transient(BackendError):
    """Try again later; nothing is known to be wrong with the job."""

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Rejected(BackendError):
    """The job as written can never run here."""

    def __init__(self, message: str, cause: Cause = Cause.REJECTED, resolution: str = "") -> None:
        super().__init__(message)
        self.cause = cause
        self.resolution = resolution


class IdentityConflict(BackendError):
    """The object's name is taken by something with another attempt or spec: never adopted, never killed."""


class ExecutionBackend(Protocol):
    """`local`, `kubernetes` or `fake`. Every verb is idempotent and safe to repeat after a crash at any point."""

    kind: str

    def addresses(self, spec_name: str, key: AttemptKey, roles: dict[str, int], ports: tuple[str, ...]) -> Addresses:
        """Host of each rank and a number for each named port; stable for one key (asked again after a crash)."""
        ...

    def arm(self, spec: LaunchSpec, key: AttemptKey) -> Handle:
        """Create the object inert, or adopt the one of the same key and sha256.

        Raises Transient, Rejected, IdentityConflict. Never starts the command.
        """
        ...

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        """Release it; tests the uid; a no-op if that identity is gone or already released."""
        ...

    def observe(self, key: AttemptKey, handle: Handle) -> Observation:
        """ABSENT only on positive proof for this uid; UNKNOWN whenever in doubt; never raises."""
        ...

    def stop(self, key: AttemptKey, handle: Handle, grace_s: int) -> None:
        """Ask it to end by its stop signal, kill after `grace_s`; recorded identity only; returns at once."""
        ...

    def reap(self, key: AttemptKey, handle: Handle) -> None:
        """Delete the evidence of an ended object (its logs are sealed elsewhere). A no-op when already gone."""
        ...

    def list_owned(self) -> Iterator[OwnedObject]:
        """Every object this platform created, for the orphan sweep."""
        ...

    def destroy(self, owned: OwnedObject) -> None:
        """Delete an orphan by its uid, killing what runs in it."""
        ...

    def read_log(self, key: AttemptKey, handle: Handle, rank: int, offset: int, limit: int) -> LogSlice: ...

    def collect(self, key: AttemptKey, handle: Handle) -> Collected:
        """What the ended job left: output values, artifacts, metrics, log files. Bounded in size, paths checked."""
        ...

    def capacity(self) -> list[Capacity]:
        """What this backend has in all, by flavor."""
        ...


@dataclass(frozen=True)
class Addresses:
    """`hosts[role][index]` and `ports[name]` (one number, the same for every rank that uses it).

    `rank_ports[name][rank]`, by global rank, wins over `ports[name]` for ports on which every rank listens: ranks that
    share a host cannot share a port. A backend
    may also leave it empty and answer the names of `render.port_names` (`grpc.0`, `grpc.1`) in `ports`.
    """

    hosts: dict[str, list[str]]
    ports: dict[str, int]
    rank_ports: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Collected:
    """`values`: name -> JSON value; `artifacts`: name -> absolute path of a file or folder; `metrics`: rows
    `{name, value, step?, at}`; `logs`: rank -> absolute path of its whole log."""

    values: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
