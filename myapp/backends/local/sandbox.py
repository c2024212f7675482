"""What a job may see of the machine, as arguments for bubblewrap."""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Of the platform's user.
PRIVATE = (
    ".ssh", ".kube", ".aws", ".azure", ".config", ".docker", ".gnupg", ".netrc", ".pypirc", ".git-credentials",
    ".pgpass", ".my.cnf", ".bash_history", ".python_history", ".vault-token", ".huggingface", ".terraform.d",
    ".npmrc", ".cargo/credentials", ".cargo/credentials.toml", ".cache/huggingface/token", ".kaggle", ".boto", ".s3cfg",
    ".zsh_history", ".psql_history", ".mysql_history", ".rediscli_history",
)
SYSTEM = ("/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/docker")
RUN_KEPT = ("/run/systemd/resolve", "/run/resolvconf", "/run/nvidia-persistenced")
TEMPORARY = ("/tmp", "/var/tmp")        # noqa: S108 -- what the job sees there is its own
SHARED_MEMORY = "/dev/shm"              # noqa: S108
# The machine's settings, which root may change even without a single capability (core_pattern: code outside of here).
KERNEL = ("/proc/sys", "/proc/fs", "/proc/scsi", "/proc/acpi", "/proc/driver", "/proc/mtrr")
DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd")


@dataclass(frozen=True)
class Sandbox:
    """`path` of bubblewrap, or None with the `reason` why jobs are not sandboxed."""

    path: str | None
    reason: str = ""


@functools.cache
def probe() -> Sandbox:
    """Whether bubblewrap works here; tried once per process."""
    path = shutil.which("bwrap")
    if path is None:
        return Sandbox(None, "bubblewrap (bwrap) is not installed")
    command = [path, *_base(), "/bin/true"]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return Sandbox(None, f"bubblewrap does not work here: {error}")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        return Sandbox(None, f"bubblewrap does not work here: {lines[-1]}")
    return Sandbox(path)


@functools.cache
def _base() -> tuple[str, ...]:
    """Its own processes, the whole machine to read, nothing to write."""
    options = ["--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"]
    options += ["--cap-drop", "ALL"] if os.getuid() == 0 else []
    options += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    if os.getuid() == 0:
        options += [word for path in KERNEL if os.path.exists(path) for word in ("--ro-bind", path, path)]
    return tuple(options)


@dataclass(frozen=True)
class View:
    """What one command sees. All paths absolute; `temporary` appears as /tmp and under its own path."""

    home: str                          # CUBE_HOME, hidden
    cwd: str
    temporary: str
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shared_memory: str | None = None   # a folder to be /dev/shm, shared by the ranks of a job
    devices: bool = False
    rdma: bool = False


def argv(bwrap: str, view: View, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in this view."""
    # A tmpfs over a folder hides what is below it; whatever a job may see there is bound back afterwards.
    line = [bwrap, *_base()]
    masks = list(TEMPORARY)
    line += [word for folder in TEMPORARY for word in ("--bind", view.temporary, folder)]
    if os.path.isdir("/run"):
        masks.append("/run")
        line += ["--tmpfs", "/run"]
        for path in RUN_KEPT:
            if os.path.exists(path):
                line += ["--ro-bind", path, path]
    user = os.path.expanduser("~")
    for path in (*SYSTEM, *(f"{user}/{name}" for name in PRIVATE), *view.hidden):
        path = os.path.realpath(path)
        if _below(path, masks):
            continue
        if os.path.isdir(path):
            masks.append(path)
            line += ["--tmpfs", path]
        elif os.path.exists(path):
            line += ["--ro-bind", "/dev/null", path]
    home = os.path.realpath(view.home)
    masks.append(home)
    line += ["--tmpfs", home]
    if view.shared_memory:
        line += ["--bind", view.shared_memory, SHARED_MEMORY]
    for path in view.readable:
        if _below(os.path.realpath(path), masks):
            line += ["--ro-bind", path, path]
    for path in (*view.writable, view.temporary):
        line += ["--bind", path, path]
    if view.devices:
        line += [word for path in _devices(DEVICES) for word in ("--dev-bind", path, path)]
    if view.rdma:
        line += [word for path in _devices(("/dev/infiniband",)) for word in ("--dev-bind", path, path)]
    return [*line, "--chdir", view.cwd, "--", *command]


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _devices(patterns: Iterable[str]) -> list[str]:
    return sorted(path for pattern in patterns for path in glob.glob(pattern))
