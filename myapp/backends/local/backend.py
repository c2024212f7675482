"""Jobs as processes of this machine, one shim per rank. The folder of an attempt is all the state there is."""

from __future__ import annotations

import os
import re
import select
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from myapp.backends.local import cgroups, environment, launch, leftovers, machine, sandbox
from myapp.backends.local.collect import collect
from myapp.backends.local.folder import Folder, read_json, remove_tree, write_json, write_text
from myapp.backends.local.forkserver import ForkServer
from myapp.backends.local.identity import Identity, Life
from myapp.backends.local.ports import PortBook
from myapp.backends.local.settings import LocalSettings
from myapp.domain.ports import (
    Addresses,
    AttemptKey,
    Capacity,
    Cause,
    Collected,
    Handle,
    IdentityConflict,
    LaunchSpec,
    LogSlice,
    Observation,
    ObservedState,
    OwnedObject,
    RankState,
    Rejected,
    Transient,
)
from myapp.domain.runs.gang import summarise

OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ABANDONED_S = 3600.0


@dataclass(frozen=True)
class Capabilities:
    """What protects the machine from its jobs, in words fit to be shown."""

    sandbox: str             # "bwrap" | "none"
    sandbox_reason: str      # why there is none
    memory_limit: str        # "cgroup-v1" | "cgroup-v2" | "rlimit"
    cpu_limit: str           # "cgroup-v1" | "cgroup-v2" | "affinity"
    limits_reason: str


class LocalBackend:
    """Implements `ExecutionBackend`. Thread-safe; may be used by many processes over one CUBE_HOME."""

    kind = "local"

    def __init__(self, settings: LocalSettings) -> None:
        self.settings = settings
        for folder in (settings.jobs, settings.run_dir, settings.envs):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._server = ForkServer(
            settings.python, settings.runtime, f"{settings.run_dir}/shim.log", settings.arm_timeout_s
        )
        self._ports = PortBook(settings.run_dir, settings.jobs, settings.ports)

    def close(self) -> None:
        """End the fork server; jobs go on."""
        self._server.close()

    def capabilities(self) -> Capabilities:
        groups = cgroups.probe()
        off = self.settings.sandbox == "none"
        box = sandbox.Sandbox(None, "turned off by the settings") if off else sandbox.probe()
        return Capabilities(
            sandbox="bwrap" if box.path else "none",
            sandbox_reason=box.reason,
            memory_limit=f"cgroup-v{groups.version}" if groups.memory else "rlimit",
            cpu_limit=f"cgroup-v{groups.version}" if groups.cpu else "affinity",
            limits_reason=groups.reason,
        )

    def addresses(self, spec_name: str, key: AttemptKey, roles: dict[str, int], ports: tuple[str, ...]) -> Addresses:
        hosts = {role: ["127.0.0.1"] * count for role, count in roles.items()}
        return Addresses(hosts, self._ports.reserve(key.object_name, tuple(dict.fromkeys(ports))))

    # -- arm, fire, stop --------------------------------------------------------------------------------------------

    def arm(self, spec: LaunchSpec, key: AttemptKey) -> Handle:
        if not OBJECT_NAME.fullmatch(key.object_name):
            raise Rejected(f"'{key.object_name}' is not a name of an object")
        folder = Folder(self.settings.jobs, key.object_name)
        try:
            known = read_json(folder.at("spec.json"))
            if known is None:
                document = launch.document(spec, key, str(uuid.uuid4()), self.settings, self._bwrap(), cgroups.probe())
                os.makedirs(os.path.dirname(document["ranks"][0]["log"]), mode=0o700, exist_ok=True)
                known = document if folder.create(document, spec.files) else read_json(folder.at("spec.json"))
            if known is None:
                raise Transient(f"{folder.path} exists without its spec.json")
            if known["attempt_id"] != key.attempt_id or known["sha256"] != spec.sha256:
                raise IdentityConflict(f"{key.object_name} belongs to attempt {known['attempt_id']}")
            if known["node"] != self.settings.node:
                raise Transient(f"{key.object_name} was armed on node {known['node']}", retry_after=30)
            return self._complete(folder, known)
        except (OSError, ValueError) as error:
            raise Transient(f"{key.object_name} could not be armed: {error}") from error

    def _complete(self, folder: Folder, spec: dict[str, Any]) -> Handle:
        """Start the shims that were never started. A rank once identified is never given a second one."""
        ranks = [rank["rank"] for rank in spec["ranks"]]
        missing = [rank for rank in ranks if not os.path.exists(folder.rank(rank, "identity.json"))]
        if missing:
            plan = spec["environment"]
            wanted = plan is not None and not os.path.exists(f"{plan['path']}/.ready")
            self._server.spawn(folder.path, missing, environment.installer_env() if wanted else {})
        identities = [read_json(folder.rank(rank, "identity.json")) for rank in ranks]
        return Handle(spec["uid"], {"node": spec["node"], "ranks": identities})

    def _bwrap(self) -> str | None:
        if self.settings.sandbox == "none":
            return None
        box = sandbox.probe()
        if box.path is None and self.settings.sandbox == "bwrap":
            raise Rejected(
                f"jobs must be sandboxed, but {box.reason}", Cause.BACKEND,
                "install bubblewrap, or set the sandbox to auto or none",
            )
        return box.path

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        folder = Folder(self.settings.jobs, key.object_name)
        try:
            spec = read_json(folder.at("spec.json"))
            if spec is None or spec["uid"] != handle.uid:
                return
            if not os.path.exists(folder.at("go")):
                write_text(folder.at("go"), handle.uid)
            self._wake(folder, len(spec["ranks"]))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise Transient(f"{key.object_name} could not be released: {error}") from error

    def stop(self, key: AttemptKey, handle: Handle, grace_s: int) -> None:
        folder = Folder(self.settings.jobs, key.object_name)
        try:
            spec = read_json(folder.at("spec.json"))
            if spec is not None and spec["uid"] == handle.uid:
                request_stop(folder, len(spec["ranks"]), "cancelled", grace_s)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise Transient(f"{key.object_name} could not be stopped: {error}") from error

    def _wake(self, folder: Folder, ranks: int) -> None:
        for rank in range(ranks):
            identity = Identity.parse(read_json(folder.rank(rank, "identity.json")))
            if identity is not None and identity.node == self.settings.node:
                identity.send(signal.SIGUSR1)

    # -- observe ----------------------------------------------------------------------------------------------------

    def observe(self, key: AttemptKey, handle: Handle) -> Observation:
        try:
            return self._observe(Folder(self.settings.jobs, key.object_name), handle)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return Observation(ObservedState.UNKNOWN, message=f"{type(error).__name__}: {error}")

    def _observe(self, folder: Folder, handle: Handle) -> Observation:
        node = str(handle.data.get("node", self.settings.node))
        if node != self.settings.node:
            return Observation(ObservedState.UNKNOWN, message=f"it belongs to node {node}, not {self.settings.node}")
        spec = read_json(folder.at("spec.json"))
        if spec is None or spec["uid"] != handle.uid:
            return self._without_folder(handle)
        released, stopping = os.path.exists(folder.at("go")), os.path.exists(folder.at("stop"))
        ranks = [self._observe_rank(folder, spec, rank, released, stopping) for rank in spec["ranks"]]
        return summarise(ranks, spec["success_roles"])

    def _without_folder(self, handle: Handle) -> Observation:
        """The recorded processes decide: a shim notices that its folder is gone and ends by itself."""
        lives = [identity.life(self.settings.node) for identity in _identities(handle)]
        if Life.UNKNOWN in lives:
            return Observation(ObservedState.UNKNOWN, message="the attempt's folder is gone")
        if Life.ALIVE in lives or any(leftovers.kill(identity, []) for identity in _identities(handle)):
            return Observation(ObservedState.ENDING, message="the attempt's folder is gone; its processes are ending")
        return Observation(ObservedState.ABSENT, message="the attempt's folder is gone")

    def _observe_rank(
        self, folder: Folder, spec: dict[str, Any], plan: dict[str, Any], released: bool, stopping: bool
    ) -> RankState:
        rank: int = plan["rank"]
        status_path = folder.rank(rank, "status.json")
        status = _whole(status_path)
        if status is None:
            evidence = folder.rank(rank, "identity.json")
            identity = Identity.parse(read_json(evidence))
            if identity is None:
                return _state(plan, ObservedState.UNKNOWN, message="it has not been started yet")
            life = identity.life(self.settings.node, evidence)
            if life is Life.ALIVE:
                return self._living(folder, spec, plan, released, stopping)
            if life is Life.UNKNOWN:
                return _state(plan, ObservedState.UNKNOWN, message=f"process {identity.pid} cannot be seen from here")
            status = _whole(status_path)        # it may have been written while we looked
            if status is None:
                if leftovers.kill(identity, [group["dir"] for group in plan["cgroups"]]):
                    return _state(plan, ObservedState.ENDING, message="its shim was killed; ending what it left")
                return _state(plan, ObservedState.ABSENT)
        return RankState(
            plan["role"], plan["index"], rank,
            ObservedState.SUCCEEDED if status["exit_code"] == 0 else ObservedState.FAILED,
            exit_code=status["exit_code"],
            cause=Cause(status["cause"]) if status["cause"] else None,
            message=status["message"],
            started_at=status["started_at"],
            finished_at=status["finished_at"],
        )

    def _living(
        self, folder: Folder, spec: dict[str, Any], plan: dict[str, Any], released: bool, stopping: bool
    ) -> RankState:
        if stopping:
            return _state(plan, ObservedState.ENDING)
        if not released:
            return _state(plan, ObservedState.INERT)
        if spec["environment"] is None:
            return _state(plan, ObservedState.RUNNING, started_at=os.stat(folder.at("go")).st_mtime)
        stage = _whole(folder.rank(plan["rank"], "stage.json"))
        if stage is None:
            return _state(plan, ObservedState.PENDING)
        return _state(plan, ObservedState(stage["state"]), stage["message"], stage["started_at"])

    # -- evidence ---------------------------------------------------------------------------------------------------

    def read_log(self, key: AttemptKey, handle: Handle, rank: int, offset: int, limit: int) -> LogSlice:
        folder = Folder(self.settings.jobs, key.object_name)
        spec = read_json(folder.at("spec.json"))
        if spec is None or spec["uid"] != handle.uid or not 0 <= rank < len(spec["ranks"]):
            return LogSlice(b"", offset, offset, True)
        ended = os.path.exists(folder.rank(rank, "status.json"))
        try:
            fd = os.open(spec["ranks"][rank]["log"], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return LogSlice(b"", offset, offset, ended)
        try:
            data = os.pread(fd, max(limit, 0), max(offset, 0))
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        return LogSlice(data, offset, offset + len(data), ended and offset + len(data) >= size)

    def collect(self, key: AttemptKey, handle: Handle) -> Collected:
        folder = Folder(self.settings.jobs, key.object_name)
        spec = read_json(folder.at("spec.json"))
        if spec is None or spec["uid"] != handle.uid:
            return Collected(problems=["the job's folder is gone: its outputs are lost"])
        return collect(folder.at("out"), {rank["rank"]: rank["log"] for rank in spec["ranks"]})

    def reap(self, key: AttemptKey, handle: Handle) -> None:
        folder = Folder(self.settings.jobs, key.object_name)
        try:
            spec = read_json(folder.at("spec.json"))
            if spec is not None and spec["uid"] == handle.uid:
                self._erase(folder, spec)
            elif spec is None:
                self._ports.release(key.object_name)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise Transient(f"{key.object_name} could not be removed: {error}") from error

    def _erase(self, folder: Folder, spec: dict[str, Any]) -> None:
        """End what still lives (nothing, as a rule), then remove folder, groups and ports. Raises Transient."""
        for plan in spec["ranks"]:
            identity = Identity.parse(read_json(folder.rank(plan["rank"], "identity.json")))
            if identity is None:
                continue
            if identity.node != self.settings.node:
                raise Transient(f"{folder.name} belongs to node {identity.node}", retry_after=30)
            ended = os.path.exists(folder.rank(plan["rank"], "status.json"))
            if not _await_end(identity, kill=not ended):
                raise Transient(f"{folder.name}: process {identity.pid} does not end")
            if not ended:
                for pause in (0.0, 0.01, 0.1, 1.0):
                    time.sleep(pause)
                    if not leftovers.kill(identity, [group["dir"] for group in plan["cgroups"]]):
                        break
                else:
                    raise Transient(f"{folder.name}: processes of rank {plan['rank']} do not end")
        for plan in spec["ranks"]:
            for group in plan["cgroups"]:
                cgroups.remove(group["dir"])
        folder.remove()
        self._ports.release(folder.name)

    def list_owned(self) -> Iterator[OwnedObject]:
        cgroups.probe().sweep()
        with os.scandir(self.settings.jobs) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in names:
            path = f"{self.settings.jobs}/{name}"
            if name.startswith("."):
                _sweep(path)
                continue
            try:
                spec = read_json(f"{path}/spec.json")
                if spec is not None:
                    yield OwnedObject(name, spec["uid"], spec["attempt_id"], spec["created_at"])
            except (OSError, ValueError, KeyError):
                continue

    def destroy(self, owned: OwnedObject) -> None:
        self.reap(AttemptKey("", owned.attempt_id or 0, owned.object_name), Handle(owned.uid))

    def capacity(self) -> list[Capacity]:
        settings = self.settings
        gpu = machine.gpu_count() if settings.gpu is None else settings.gpu
        return [
            Capacity("local", "cpu", machine.cpu_milli() if settings.cpu is None else settings.cpu),
            Capacity("local", "memory", machine.memory_bytes() if settings.memory is None else settings.memory),
            Capacity("local", "gpu", gpu),
        ]


def request_stop(folder: Folder, ranks: int, reason: str, grace_s: float) -> None:
    """Ask every rank to end. The first reason stands; a later, shorter grace counts."""
    known = _whole(folder.at("stop"))
    if known is None:
        write_json(folder.at("stop"), {"reason": reason, "grace_s": grace_s})
    elif grace_s < known["grace_s"]:
        write_json(folder.at("stop"), {"reason": known["reason"], "grace_s": grace_s})
    for rank in range(ranks):
        if os.path.exists(folder.rank(rank, "status.json")):
            continue
        identity = Identity.parse(read_json(folder.rank(rank, "identity.json")))
        if identity is not None:
            identity.send(signal.SIGUSR1)


def _whole(path: str) -> Any:
    """A document written by rename; one torn by a power cut counts as not written."""
    try:
        return read_json(path)
    except ValueError:
        return None


def _state(
    plan: dict[str, Any], state: ObservedState, message: str = "", started_at: float | None = None
) -> RankState:
    return RankState(plan["role"], plan["index"], plan["rank"], state, message=message, started_at=started_at)


def _identities(handle: Handle) -> list[Identity]:
    return [identity for item in handle.data.get("ranks", ()) if (identity := Identity.parse(item))]


def _await_end(identity: Identity, *, kill: bool) -> bool:
    """Wait until the shim is gone (at most five seconds). True when it is."""
    fd = identity.open()
    if fd is None:
        return True
    try:
        if kill:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return bool(poller.poll(5000))
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)


def _sweep(path: str) -> None:
    """Remove a folder that a crash left half made or half deleted."""
    try:
        if time.time() - os.stat(path).st_mtime > ABANDONED_S:
            remove_tree(path)
    except OSError:
        pass
