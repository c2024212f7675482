"""The life of one rank: armed, released, run, ended. What it did is in its folder, whoever dies around it."""

from __future__ import annotations

import _socket
import errno
import fcntl
import json
import os
import select
import signal
import time
from typing import Any

from cube_shim import environment, files, limits, process
from cube_shim.pump import LogPump
from cube_shim.verdict import ended, judge

NET_S = 5.0            # how often a shim looks even when nobody rang
RETRY_S = 0.5          # while the disk is full
BELL_S = 2.0


class Machine:
    """What is the same for every shim of one server."""

    def __init__(self, boot: str, pid_ns: int) -> None:
        self.boot = boot
        self.pid_ns = pid_ns


class Gone(Exception):
    """The attempt's folder has been taken away: nothing may run and nobody wants a result."""


class Stop:
    """A request to end: `cause` (a value of ports.Cause) and the moment to kill, on the monotonic clock."""

    def __init__(self, cause: str, grace: float) -> None:
        self.cause = cause
        self.signalled = False
        self.kill_at = time.monotonic() + grace


class Shim:
    def __init__(self, folder: str, rank: int, installer_env: dict[str, str], machine: Machine) -> None:
        self.folder = folder
        self.home = os.path.join(folder, f"rank-{rank}")
        self.machine = machine
        self.installer_env = installer_env
        self.spec: dict[str, Any] = files.read_json(os.path.join(folder, "spec.json"))
        self.rank: dict[str, Any] = self.spec["ranks"][rank]
        self.stop: Stop | None = None
        self.limited = False
        self.pump = LogPump(self.rank["log"], int(self.spec["log_limit"]))
        self.wake = (-1, -1)
        self.pid = os.getpid()
        self.start = files.start_time(self.pid)

    # -- armed ------------------------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Write this process's identity; False when the rank has a shim already."""
        identity = {
            "pid": self.pid,
            "start_time": self.start,
            "boot_id": self.machine.boot,
            "node": self.spec["node"],
            "pid_ns": self.machine.pid_ns,
            "uid": self.spec["uid"],
        }
        fd = files.create_json(os.path.join(self.home, "identity.json"), identity)
        if fd is None:
            return False
        fcntl.flock(fd, fcntl.LOCK_EX)      # held until death: proof of life across process namespaces
        return True

    def wait_for_release(self) -> bool:
        """True when released, False when told to stop first. Raises Gone."""
        while True:
            self.look_for_stop()
            if self.stop:
                return False
            go = files.read_text(os.path.join(self.folder, "go"))
            if go is not None and go.strip() == self.spec["uid"]:
                return True
            received = signal.sigtimedwait(process.OWN_SIGNALS, NET_S)
            if received and received.si_signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self.stop = Stop("interrupted", 0)
                return False

    def look_for_stop(self) -> None:
        request = files.read_json(os.path.join(self.folder, "stop"))
        if request is None:
            if not os.path.exists(self.home):
                raise Gone
            return
        wanted = Stop(str(request.get("reason") or "cancelled"), float(request.get("grace_s", 0)))
        if self.stop is None:
            self.stop = wanted
        else:
            self.stop.kill_at = min(self.stop.kill_at, wanted.kill_at)

    # -- released ---------------------------------------------------------------------------------------------------

    def enter_limits(self) -> None:
        if not self.limited and self.rank["cgroups"]:
            self.limited = limits.enter(self.rank["cgroups"])

    def listen(self) -> None:
        """From waiting for signals to being woken by them."""
        self.wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in process.OWN_SIGNALS:
            signal.signal(number, _awake)
        signal.set_wakeup_fd(self.wake[1], warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.OWN_SIGNALS)

    def stage(self, state: str, message: str, started_at: float | None = None) -> None:
        """What to show while the rank lives; a full disk does not matter here."""
        try:
            document = {"state": state, "message": message, "started_at": started_at}
            files.write_json(os.path.join(self.home, "stage.json"), document)
            self.ring("stage")
        except OSError:
            pass

    def pause(self, seconds: float) -> None:
        """Sleep, but wake for a signal; takes note of a stop request."""
        poller = select.poll()
        poller.register(self.wake[0], select.POLLIN)
        if poller.poll(seconds * 1000):
            self._answer_signals()

    def _answer_signals(self) -> bool:
        """Read the wake-up pipe. True when a child may have ended."""
        try:
            numbers = os.read(self.wake[0], 4096)
        except BlockingIOError:
            return False
        if signal.SIGUSR1 in numbers:
            self.look_for_stop()
        if self.stop is None and any(n in numbers for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            self.stop = Stop("interrupted", float(self.spec["grace_s"]))
        return signal.SIGCHLD in numbers

    def run(self, argv: list[str], env: dict[str, str], cwd: str, *, sandboxed: bool, limit: bool) -> int:
        """Run one command to its end, output to the log, nothing of it left behind. Returns the wait status.

        Raises process.SpawnError, Gone.
        """
        source, sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(source, False)
        fallback = limit and not self.limited
        variables = -1
        try:
            if sandboxed:
                argv, variables = process.sealed(argv, env)
                env = {}
            data, cpus = (int(self.rank["data_limit"]), self.rank["cpus"]) if fallback else (0, None)
            if sandboxed and not data and not cpus:
                pid = process.spawn_sandbox(argv, sink)
            else:
                pid = process.spawn(argv, env, cwd, sink, data, cpus)
        except process.SpawnError:
            os.close(source)
            raise
        finally:
            os.close(sink)
            if variables >= 0:
                os.close(variables)
        try:
            status = self._attend(pid, source, sandboxed)
        finally:
            ended = process.kill_descendants()
        status = ended.get(pid, 0) if status is None else status
        self._drain(source)
        os.close(source)
        return status

    def _attend(self, pid: int, source: int, sandboxed: bool) -> int | None:
        """Pump and watch until the main process has ended, or must be killed (None)."""
        poller = select.poll()
        poller.register(self.wake[0], select.POLLIN)
        poller.register(source, select.POLLIN)
        open_source, listening = True, True
        next_net = time.monotonic() + NET_S
        while True:
            now = time.monotonic()
            if now >= next_net:
                self.look_for_stop()
                next_net = now + NET_S
            if self.stop:
                if now >= self.stop.kill_at:
                    return None
                if not self.stop.signalled:
                    process.signal_group(pid, int(self.spec["stop_signal"]), sandboxed=sandboxed)
                    self.stop.signalled = True
            wait = next_net - now
            if self.stop:
                wait = min(wait, self.stop.kill_at - now)
            if self.pump.blocked:
                wait = min(wait, RETRY_S)
            ready = [number for number, _ in poller.poll(wait * 1000 + 1)]
            if self.wake[0] in ready and self._answer_signals():
                status = self._collect(pid)
                if status is not None:
                    return status
            if self.pump.blocked:
                self.pump.flush()
            elif open_source and source in ready:
                open_source = self.pump.read(source) is not False
            wanted = open_source and not self.pump.blocked
            if wanted != listening:
                poller.register(source, select.POLLIN) if wanted else poller.unregister(source)
                listening = wanted

    @staticmethod
    def _collect(main: int) -> int | None:
        found = None
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return found
                if pid == main:
                    found = status
        except ChildProcessError:
            return found

    def _drain(self, source: int) -> None:
        while True:
            self._wait_for_disk()
            if not self.pump.read(source):
                break
        self._wait_for_disk()

    def _wait_for_disk(self) -> None:
        told = False
        while not self.pump.flush():
            if not told:
                self.stage("running", "the command has ended; waiting for room in the log store")
                told = True
            if self.stop and time.monotonic() >= self.stop.kill_at:
                self.pump.give_up()
                return
            self.pause(RETRY_S)
            self.look_for_stop()

    # -- ended ------------------------------------------------------------------------------------------------------

    def finish(self, status: dict[str, Any]) -> None:
        path = os.path.join(self.home, "status.json")
        while True:
            try:
                files.write_json(path, status)
                break
            except OSError as error:
                if not os.path.exists(self.home):
                    raise Gone from None
                if error.errno not in files.FULL:
                    raise
                time.sleep(RETRY_S)
        self.ring("ended")

    def ring(self, event: str) -> None:
        """Tell the watch process, if there is one: `<attempt> <event> <object> <rank> <pid> <start time>`.

        The end waits a moment for a bell that is busy; then a note asks the watch process to look at everything.
        """
        words = (self.spec["attempt_id"], event, self.spec["object_name"], self.rank["rank"], self.pid, self.start)
        folder = -1
        bell = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
        bell.settimeout(BELL_S if event == "ended" else 0)
        try:
            path = os.path.join(self.spec["run_dir"], "bell.sock")
            if len(path) > 100:
                folder = os.open(self.spec["run_dir"], os.O_PATH | os.O_CLOEXEC)
                path = f"/proc/self/fd/{folder}/bell.sock"
            bell.sendto(" ".join(str(word) for word in words).encode(), path)
        except (BlockingIOError, TimeoutError):
            self._leave_a_note()
        except OSError:
            pass            # nobody is watching
        finally:
            bell.close()
            if folder >= 0:
                os.close(folder)

    def _leave_a_note(self) -> None:
        try:
            os.close(os.open(os.path.join(self.spec["run_dir"], "bell.missed"), os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError:
            pass


def _awake(number: int, frame: object) -> None:
    """Only the wake-up descriptor matters."""


def main(request: dict[str, Any], reply: int, machine: Machine) -> int:
    """A fresh child of the fork server, its signals blocked, becomes the shim of one rank. Returns its exit code."""
    os.setsid()
    os.umask(0o077)
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
    answer: dict[str, Any] = {"seq": request["seq"], "pid": os.getpid()}
    claimed = False
    try:
        shim = Shim(request["folder"], request["rank"], request.get("installer_env") or {}, machine)
        claimed = shim.claim()
        if claimed:
            shim.ring("armed")          # before anyone may kill it by the identity in the answer
    except (OSError, KeyError, TypeError, IndexError) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    try:
        os.write(reply, json.dumps(answer).encode())
    except OSError:
        pass            # the asker is gone; another will adopt this rank
    os.close(reply)
    if not claimed:
        return 0
    process.prepare()
    try:
        shim.finish(live(shim))
    except Gone:
        process.kill_descendants()
        return 1
    except Exception as error:
        process.kill_descendants()
        message = f"the shim failed: {type(error).__name__}: {error}"
        shim.finish(ended(shim, stage="shim", cause="backend", message=message))
        raise
    return 0


def live(shim: Shim) -> dict[str, Any]:
    """From armed to ended; returns the contents of status.json."""
    plan = shim.spec.get("environment")
    if not plan or environment.ready(plan):
        shim.enter_limits()
    if not shim.wait_for_release():
        return ended(shim, stage="armed", cause=shim.stop.cause if shim.stop else "cancelled", message="never started")
    shim.listen()
    if plan and not environment.ready(plan):
        failure = environment.build(shim, plan)
        if failure:
            cause, message = failure
            return ended(shim, stage="environment", cause=cause, message=message)
    shim.enter_limits()
    return command(shim)


def command(shim: Shim) -> dict[str, Any]:
    rank = shim.rank
    name = rank["command"]
    started = time.time()
    if shim.spec.get("environment"):
        shim.stage("running", "", started)
    argv = list(rank["argv"])
    found = process.which(name, rank["env"].get("PATH", ""), rank["cwd"])
    if found is None:
        return missing(shim, started, f"command not found: {name}")
    if not rank["sandboxed"]:
        argv[0], name = found, argv[0]
    try:
        status = shim.run(argv, rank["env"], rank["cwd"], sandboxed=rank["sandboxed"], limit=True)
    except process.SpawnError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
            return missing(shim, started, f"{rank['command']} cannot be executed: {error}")
        return ended(shim, started=started, code=126, cause="backend", message=f"could not start: {error}")
    return judge(shim, status, started)


def missing(shim: Shim, started: float, message: str) -> dict[str, Any]:
    shim.pump.write(f"[cube] {message}\n".encode())
    return ended(shim, started=started, code=127, cause="command_not_found", message=message)
