"""Builds the virtual environment a job asked for: once per machine, whoever asks, as a visible step of the job."""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from cube_shim import process

if TYPE_CHECKING:
    from cube_shim.shim import Shim

TRANSIENT = (
    "no space left", "failed to fetch", "error sending request", "dns error", "connection", "timed out", "timeout",
    "temporary failure", "network", "tls", "certificate", "unreachable", "502 ", "503 ", "504 ", "429 ", "disk quota",
)
LAST_LINES = 12


def ready(plan: dict[str, Any]) -> bool:
    return os.path.exists(os.path.join(plan["path"], ".ready"))


def build(shim: Shim, plan: dict[str, Any]) -> tuple[str, str] | None:
    """Wait for the environment or build it. None when it is ready, else (cause, message).

    One builder at a time by a lock on `<path>.lock`; a half-built one (no `.ready`) is removed and built again.
    """
    os.makedirs(os.path.dirname(plan["path"]), mode=0o700, exist_ok=True)
    lock = os.open(plan["path"] + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    shim.stage("pending", f"waiting for the environment {plan['label']}")
                    told = True
            shim.pause(0.2)
            if shim.stop:
                return shim.stop.cause, "stopped while waiting for its environment"
        if ready(plan):
            return None
        return _install(shim, plan)
    finally:
        os.close(lock)


def _install(shim: Shim, plan: dict[str, Any]) -> tuple[str, str] | None:
    import shutil

    message = f"installing {plan['label']}"
    shim.stage("pending", message)
    shim.pump.write(f"[cube] {message}\n".encode())
    shutil.rmtree(plan["path"], ignore_errors=True)
    os.makedirs(plan["path"], mode=0o755)
    os.makedirs(plan["cache"], mode=0o700, exist_ok=True)
    env = {**shim.installer_env, **plan["env"]}
    for argv in plan["steps"]:
        shim.pump.tail = b""
        try:
            status = shim.run(argv, env, "/", sandboxed=plan["sandboxed"], limit=False)
        except process.SpawnError as error:
            return "environment", f"the installer {plan['uv']} cannot be executed: {error}"
        if shim.stop:
            return shim.stop.cause, "stopped while its environment was being built"
        if status:
            return _explain(shim.pump.tail, plan)
    marker = os.path.join(plan["path"], ".ready")
    with open(marker + ".new", "w") as f:
        json.dump({"requirements": plan["requirements"]}, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(marker + ".new", marker)
    return None


def _explain(tail: bytes, plan: dict[str, Any]) -> tuple[str, str]:
    lines = [line for line in tail.decode("utf-8", "replace").splitlines() if line.strip()][-LAST_LINES:]
    text = "\n".join(lines)
    transient = any(word in text.lower() for word in TRANSIENT)
    cause = "environment_transient" if transient else "environment"
    return cause, f"the environment {plan['label']} could not be built:\n{text}"
