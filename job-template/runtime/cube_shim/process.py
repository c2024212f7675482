"""Starting and ending processes: one child with its own group, and everything that descends from it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from typing import Any

from cube_shim.files import stat_fields

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
OWN_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

try:
    import ctypes

    _prctl: Any = ctypes.CDLL(None).prctl
except (ImportError, OSError, AttributeError):
    _prctl = None


def prctl(option: int, value: int) -> None:
    if _prctl is not None:
        _prctl(option, value, 0, 0, 0)


class SpawnError(Exception):
    """The command could not be executed: `errno` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


def which(command: str, path: str, cwd: str) -> str | None:
    """The file that would run, None when there is none, as a shell would look for it."""
    if "/" in command:
        found = os.path.join(cwd, command)
        return found if os.path.exists(found) else None
    for folder in path.split(":"):
        found = os.path.join(cwd, folder, command)
        if folder and os.access(found, os.X_OK) and os.path.isfile(found):
            return found
    return None


def prepare() -> None:
    """Once per shim, what its children inherit: no core files, no ignored signals, and they, far larger than the shim,
    are the ones the kernel takes when memory runs short (before anything of the platform)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.umask(0o022)
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"500")
        os.close(fd)
    except OSError:
        pass


def sealed(argv: list[str], env: dict[str, str]) -> tuple[list[str], int]:
    """bubblewrap's command line with the job's variables in a file that only bubblewrap reads, and that file.

    bubblewrap itself runs outside of the sandbox: given the variables as its own, it would load what LD_PRELOAD names.
    The caller closes the file once the process has been started.
    """
    fd = os.memfd_create("variables", 0)        # inherited; bubblewrap closes it
    try:
        data = b"".join(b"--setenv\0%s\0%s\0" % (os.fsencode(k), os.fsencode(v)) for k, v in env.items())
        while data:
            data = data[os.write(fd, data):]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return [argv[0], "--args", str(fd), *argv[1:]], fd


def spawn_sandbox(argv: list[str], output: int) -> int:
    """Start bubblewrap, which dies with its parent and changes folder by itself. Raises SpawnError.

    Without a copy of this process to make, it costs half.
    """
    actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    try:
        return os.posix_spawn(argv[0], argv, {}, file_actions=actions, setpgroup=0, setsigmask=())
    except OSError as error:
        raise SpawnError(error.errno or errno.EINVAL) from None


def spawn(argv: list[str], env: dict[str, str], cwd: str, output: int, data_limit: int = 0, cpus: Any = None) -> int:
    """Start `argv` in a process group of its own that dies with this process. argv[0] is a path.

    `data_limit` in bytes and `cpus` stand in for a cgroup where there is none. Raises SpawnError.
    """
    parent = os.getpid()
    failed, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Every page touched here is copied: as little as can be.
        try:
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, 9)
            if os.getppid() != parent:
                os._exit(125)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if data_limit:
                resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))
            if cpus:
                os.sched_setaffinity(0, cpus)
            os.chdir(cwd)
            os.execve(argv[0], argv, env)
        except OSError as error:
            os.write(report, b"%d" % (error.errno or errno.EINVAL))
        except BaseException:
            os.write(report, b"%d" % errno.EINVAL)
        finally:
            os._exit(127)
    os.close(report)
    try:
        problem = os.read(failed, 64)
    finally:
        os.close(failed)
    if problem:
        os.waitpid(pid, 0)
        raise SpawnError(int(problem))
    return pid


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as f:
            return [int(child) for child in f.read().split()]
    except FileNotFoundError:
        pass
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and int(fields[1]) == pid:
                found.append(int(name))
    return found


def signal_group(pid: int, number: int, *, sandboxed: bool) -> None:
    """Send the signal to the job's group. In a sandbox that is the group of its first process, not bubblewrap's own:
    bubblewrap would die of it and take the job along before its grace is over."""
    target = pid
    if sandboxed and number != signal.SIGKILL:
        target = next(iter(children(pid)), 0)
        fields = stat_fields(target) if target else None
        if not fields or int(fields[2]) != target:
            number, target = signal.SIGKILL, pid      # it has not got so far as to start the command
    try:
        os.killpg(target, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_descendants() -> dict[int, int]:
    """Kill and collect everything below this process (a subreaper): returns pid -> wait status."""
    ended: dict[int, int] = {}
    me = os.getpid()
    pause = 0.001
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid:
            ended[pid] = status
            continue
        for child in children(me):
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(pause)
        pause = min(pause * 2, 0.25)
