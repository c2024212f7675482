"""From a `LaunchSpec` to the file a shim works from: environment, command line, limits of each rank."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import asdict
from typing import Any

from myapp.backends.local import cgroups, environment, machine, sandbox
from myapp.backends.local.folder import Folder
from myapp.backends.local.settings import LocalSettings
from myapp.domain.ports import AttemptKey, LaunchSpec, RankSpec, Rejected

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SMALLEST_MEMORY = 8 * 1024 * 1024


JOB_DIR = "$(CUBE_JOB_DIR)"      # at the start of a word of the command: the folder of the job's own files


def document(
    spec: LaunchSpec, key: AttemptKey, uid: str, settings: LocalSettings, bwrap: str | None, groups: cgroups.Cgroups
) -> dict[str, Any]:
    """The contents of spec.json. Creates the workspace. Raises Rejected."""
    folder = Folder(settings.jobs, key.object_name)
    _check(spec)
    cwd = _workdir(spec, folder)
    scratch = folder.at("tmp")
    python = environment.plan(spec.environment, settings, bwrap, scratch)
    logs = spec.labels.get("log_dir") or folder.path
    if not os.path.isabs(logs):
        raise Rejected(f"log_dir must be an absolute path, not '{logs}'")
    ranks = []
    for rank in sorted(spec.ranks, key=lambda r: r.rank):
        env = _variables(spec, rank, key, uid, folder, settings, python)
        ranks.append({
            "role": rank.role,
            "index": rank.index,
            "rank": rank.rank,
            "command": rank.command[0],
            "argv": _argv(spec, rank, folder, cwd, settings, bwrap, python),
            "env": env,
            "cwd": cwd,
            "log": f"{logs}/rank-{rank.rank}.log",
            "sandboxed": bwrap is not None,
            "memory": rank.resources.memory,
            "cgroups": groups.plan(
                cgroups.name(uid, rank.rank), max(rank.resources.memory, SMALLEST_MEMORY),
                rank.resources.cpu_milli, machine.cores(),
            ),
            "data_limit": 0 if groups.memory else max(rank.resources.memory, SMALLEST_MEMORY),
            "cpus": None if groups.cpu else _cpus(rank),
        })
    return {
        "version": 1,
        "uid": uid,
        "attempt_id": key.attempt_id,
        "project": key.project,
        "object_name": key.object_name,
        "sha256": spec.sha256,
        "node": settings.node,
        "created_at": time.time(),
        "run_dir": settings.run_dir,
        "log_limit": settings.log_limit,
        "stop_signal": _signal(spec.stop_signal),
        "grace_s": spec.grace_s,
        "success_roles": list(spec.success_roles),
        "environment": python.plan,
        "ranks": ranks,
        "launch": asdict(spec) | {"ranks": [], "files": sorted(spec.files)},
    }


def _check(spec: LaunchSpec) -> None:
    if sorted(rank.rank for rank in spec.ranks) != list(range(len(spec.ranks))) or not spec.ranks:
        raise Rejected("ranks must be numbered from 0 without gaps")
    for rank in spec.ranks:
        if not rank.command or not rank.command[0]:
            raise Rejected(f"{rank.role}-{rank.index} has no command", resolution="give a command or a script")
        for text in (*rank.command, *rank.env.values()):
            if "\0" in text:
                raise Rejected(f"{rank.role}-{rank.index}: a NUL character in its command or environment")
            _encodable(text, f"the command or environment of {rank.role}-{rank.index}")
        for name in rank.env:
            if not VARIABLE.fullmatch(name):
                raise Rejected(f"'{name[:100]}' is not a name of an environment variable")
    for name, text in spec.files.items():
        if not FILE_NAME.fullmatch(name):
            raise Rejected(f"'{name[:100]}' is not a name of a file of the job")
        _encodable(text, f"the file {name}")
    for path in spec.inputs:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise Rejected(f"the input {path} does not exist", resolution="run the task that makes it again")


def _encodable(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected(f"{what} has half of a character, which is not valid Unicode") from None


def _workdir(spec: LaunchSpec, folder: Folder) -> str:
    if not spec.workspace:
        return folder.at("home")
    workspace = os.path.abspath(spec.workspace)
    os.makedirs(workspace, mode=0o700, exist_ok=True)
    cwd = os.path.normpath(os.path.join(workspace, spec.workdir or ""))
    real, root = os.path.realpath(cwd), os.path.realpath(workspace)
    if real != root and not real.startswith(root + "/"):
        raise Rejected(f"workdir '{spec.workdir}' lies outside the workspace")
    if not os.path.isdir(cwd):
        raise Rejected(f"workdir '{spec.workdir}' is not a folder of the workspace", resolution="create it first")
    return cwd


def _variables(
    spec: LaunchSpec, rank: RankSpec, key: AttemptKey, uid: str, folder: Folder, settings: LocalSettings,
    python: environment.Python,
) -> dict[str, str]:
    """Everything the rank sees: nothing of the platform's own environment is in it."""
    env = {"LANG": "C.UTF-8", "TERM": "dumb", "OMP_NUM_THREADS": str(max(1, rank.resources.cpu_milli // 1000))}
    if python.bin:
        env["PYTHONUNBUFFERED"] = "1"
    for label, variable in (("run_id", "CUBE_RUN_ID"), ("task", "CUBE_TASK"), ("attempt_no", "CUBE_ATTEMPT")):
        if label in spec.labels:
            env[variable] = spec.labels[label]
    env.setdefault("CUBE_ATTEMPT", str(key.attempt_id))
    env.update(rank.env)
    env.update(python.variables or {})
    env.update({
        "HOME": folder.at("home"),
        "TMPDIR": folder.at("tmp"),
        "CUBE_JOB_DIR": folder.at("job"),
        "CUBE_OUTPUT_DIR": folder.at("out"),
        "CUBE_WORKSPACE": os.path.abspath(spec.workspace) if spec.workspace else folder.at("home"),
        "CUBE_PROJECT": key.project,
        "CUBE_ROLE": rank.role,
        "CUBE_INDEX": str(rank.index),
        "CUBE_RANK": str(rank.rank),
        "CUBE_WORLD_SIZE": str(len(spec.ranks)),
        "CUBE_JOB_UID": uid,
        "CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in rank.devices),
    })
    path = rank.env.get("PATH") or settings.job_path
    env["PATH"] = f"{python.bin}:{path}" if python.bin else path
    return env


def _argv(
    spec: LaunchSpec, rank: RankSpec, folder: Folder, cwd: str, settings: LocalSettings, bwrap: str | None,
    python: environment.Python,
) -> list[str]:
    command = [word.replace(JOB_DIR, folder.at("job")) if word.startswith(JOB_DIR) else word for word in rank.command]
    if bwrap is None:
        return command
    writable = [folder.at("out"), folder.at("home")]
    if spec.workspace:
        writable.insert(0, os.path.abspath(spec.workspace))
    view = sandbox.View(
        home=str(settings.home),
        cwd=cwd,
        temporary=folder.at("tmp"),
        writable=tuple(writable),
        readable=(folder.at("job"), *python.readable, *spec.inputs),
        hidden=settings.hidden,
        shared_memory=folder.at("shm") if len(spec.ranks) > 1 else None,
        devices=bool(rank.devices),
        rdma=rank.resources.rdma > 0,
    )
    return sandbox.argv(bwrap, view, command)


def _cpus(rank: RankSpec) -> list[int] | None:
    """Without control groups a rank is kept to as many processors as it asked for, spread over the machine."""
    available = sorted(os.sched_getaffinity(0))
    wanted = -(-rank.resources.cpu_milli // 1000)
    if wanted < 1 or wanted >= len(available):
        return None
    first = (os.getpid() + time.time_ns() // 1000 + rank.rank * wanted) % len(available)
    return [available[(first + i) % len(available)] for i in range(wanted)]


def _signal(name: str) -> int:
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].value
    except KeyError:
        raise Rejected(f"'{name}' is not a signal", resolution="use TERM, INT, HUP, USR1, USR2 or QUIT") from None
