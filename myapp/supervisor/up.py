"""The supervisor behind `cube up` and `make run`.

It is the parts' zygote: it imports everything, then forks. So it holds no connection, starts no thread, and waits in
one `select` for signals and due restarts.
"""

from __future__ import annotations

import gc
import http.client
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable

from myapp.config import Settings
from myapp.supervisor import checks, parts
from myapp.supervisor.children import Child, fork
from myapp.supervisor.errors import StartError
from myapp.supervisor.first_start import Prepared, prepare
from myapp.supervisor.redis_server import RedisServer
from myapp.utils import process

STOP_S = 8.0  # the parts' time to end by themselves
JOBS_STOP_S = 5.0  # the local jobs'
REDIS_START_S = 30.0
SAY_AGAIN_S = 10.0
SAME_WISH_S = 0.7
SOON_DEATHS = 4  # of one part before the platform was ever ready: it will not come


class Interrupted(Exception):
    """Asked to stop while starting."""


class Supervisor:
    def __init__(self, settings: Settings, redis_binary: str | None) -> None:
        self.settings = settings
        self.redis = RedisServer(settings, redis_binary) if redis_binary else None
        self.redis_child = Child("redis", self.redis.exec) if self.redis else None
        self.parts = [Child(name, self._runner(name)) for name in parts.PARTS]
        self.asked_to_stop = 0
        self._asked_at = float("-inf")
        self._wakeup, self._wakeup_write = os.pipe()

    def _runner(self, name: str) -> Callable[[], int]:
        def run() -> int:
            os.close(self._wakeup)
            os.close(self._wakeup_write)
            return parts.PARTS[name](self.settings)

        return run

    # --- the course of things ---

    def run(self) -> int:
        self._listen_to_signals()
        try:
            if self.redis_child:
                self._start_redis()
            parts.preload(self.settings)
            gc.collect()
            gc.freeze()
            process.trim_memory()
            if self.redis_child:
                self._await_redis()
            prepared = self._prepare()
            for child in self.parts:
                child.start()
            self._await_ready()
            self._announce(prepared)
            while not self.asked_to_stop:
                self._wait(self._next_restart())
                self._tend()
        except Interrupted:
            pass
        finally:
            self._stop()
        return 0

    def _announce(self, prepared: Prepared) -> None:
        write_url(self.settings)
        say(f"Cube Studio is ready: {shown_url(self.settings)}")
        if prepared.password_made:
            say(f"  user admin, password {prepared.password_made}  (also in {self.settings.root / 'admin-password'})")
        elif (self.settings.root / "admin-password").exists():
            say(f"  user admin, password in {self.settings.root / 'admin-password'}")
        for line in prepared.notes:
            say(f"  {line}")

    def _stop(self) -> None:
        (self.settings.root / "run" / "url").unlink(missing_ok=True)
        self.asked_to_stop = max(self.asked_to_stop, 1)
        if any(child.alive for child in self.parts):
            say("Stopping ... (Ctrl-C once more: at once)")
        self._end(self.parts, STOP_S)
        self._interrupt_jobs()
        if self.redis_child:
            self._end([self.redis_child], STOP_S)

    # --- waiting ---

    def _listen_to_signals(self) -> None:
        os.set_blocking(self._wakeup_write, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup
                signal.signal(signum, self._ask_to_stop)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)

    def _ask_to_stop(self, signum: int, frame: object) -> None:
        """The same wish may come twice at once (make passes a TERM on, the group has it too): that counts once."""
        now = time.monotonic()
        if now - self._asked_at > SAME_WISH_S:
            self.asked_to_stop += 1
        self._asked_at = now

    def _wait(self, seconds: float | None) -> None:
        """Until a signal (a child's death is one), or that long."""
        readable, _, _ = select.select([self._wakeup], [], [], seconds)
        if readable:
            try:
                os.read(self._wakeup, 4096)
            except BlockingIOError:
                pass

    def _children(self) -> list[Child]:
        return [*([self.redis_child] if self.redis_child else []), *self.parts]

    def _next_restart(self) -> float | None:
        due = [child.restart_at for child in self._children() if child.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _tend(self) -> None:
        """Notice deaths, start again what is due."""
        for child in self._children():
            if child.reap() is not None and not self.asked_to_stop:
                pause = child.plan_restart()
                warn(f"{child.name} {child.ended}; starting it again in {pause:g} s")
            if child.restart_at is not None and time.monotonic() >= child.restart_at and not self.asked_to_stop:
                if child is self.redis_child and self.redis:
                    self.redis.prepare()
                child.start()

    def _check(self) -> None:
        if self.asked_to_stop:
            raise Interrupted

    # --- starting ---

    def _start_redis(self) -> None:
        assert self.redis is not None
        assert self.redis_child is not None
        self.redis.prepare()
        self.redis_child.start()

    def _await_redis(self) -> None:
        """Until it answers. What a Redis refuses to load is set aside once."""
        assert self.redis is not None
        assert self.redis_child is not None
        deadline = time.monotonic() + REDIS_START_S
        set_aside = False
        while not self.redis.answers():
            self._check()
            if self.redis_child.reap() is not None:
                words = self.redis.last_words()
                if set_aside or not any(self.redis.folder.glob("appendonly*")):
                    raise StartError(
                        f"redis {self.redis_child.ended}: {words or self.redis.binary}",
                        f"See {self.redis.folder / 'redis.log'}; or use a Redis of your own: CUBE_REDIS_URL=redis://...",
                    )
                warn(f"redis {self.redis_child.ended} ({words}); its data is now in {self.redis.set_aside()}")
                set_aside = True
                self._start_redis()
            if time.monotonic() > deadline:
                raise StartError(
                    f"redis does not answer on {self.redis.socket}", f"See {self.redis.folder / 'redis.log'}."
                )
            self._wait(0.01)

    def _prepare(self) -> Prepared:
        """Schema, administrator, catalogue, sample: in a process of its own, whose connections end with it."""
        reader, writer = os.pipe()

        def work() -> int:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                try:
                    json.dump(prepare(self.settings).as_dict(), pipe)
                except StartError as error:
                    json.dump({"error": error.message, "resolution": error.resolution}, pipe)
            return 0

        child = Child("prepare", work)
        child.start()
        os.close(writer)
        said = b""
        os.set_blocking(reader, False)
        while True:
            readable, _, _ = select.select([reader, self._wakeup], [], [])
            if self._wakeup in readable:
                self._wait(0)
                if self.asked_to_stop:
                    self._end([child], STOP_S)
                    raise Interrupted
            if reader in readable:
                block = os.read(reader, 65536)
                if not block:
                    break
                said += block
        os.close(reader)
        while child.reap() is None and child.alive:
            self._wait(0.05)
        answer = json.loads(said) if said else {"error": f"the set-up step {child.ended}", "resolution": "See above."}
        if "error" in answer:
            raise StartError(answer["error"], answer["resolution"])
        return Prepared(**answer)

    def _await_ready(self) -> None:
        said_at = time.monotonic()
        while True:
            self._check()
            self._tend()
            for child in self.parts:
                if child.failures >= SOON_DEATHS:
                    raise StartError(
                        f"{child.name} {child.ended}, {child.failures} times in a row", "Its own words are above."
                    )
            ready, why = probe(self.settings)
            if ready:
                return
            if time.monotonic() - said_at > SAY_AGAIN_S:
                warn(f"not ready yet: {why}")
                said_at = time.monotonic()
            self._wait(0.03)

    # --- ending ---

    def _end(self, children: Iterable[Child], seconds: float) -> None:
        """TERM, then KILL: to those still there after that time, or at once when asked to stop a second time."""
        children = list(children)
        for child in children:
            child.restart_at = None
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while True:
            for child in children:
                child.reap()
            left = [child for child in children if child.alive]
            if not left:
                return
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.asked_to_stop > 1:
                for child in left:
                    if self.asked_to_stop <= 1:
                        warn(f"{child.name} did not end within {seconds:g} s and is killed")
                    child.send_group(signal.SIGKILL)
                    child.send(signal.SIGKILL)
                deadline = time.monotonic() + seconds
                self._wait(0.05)
            else:
                self._wait(remaining)

    def _interrupt_jobs(self) -> None:
        """Local jobs outlive the platform's death, but not its being stopped: the engine retries them afterwards."""
        patient = self.asked_to_stop <= 1
        grace = JOBS_STOP_S if patient else 0.0

        def work() -> int:
            from myapp.backends.local.interrupt import interrupt_all

            interrupt_all(self.settings.root, grace, self.settings.node)
            return 0

        if not (self.settings.root / "jobs").is_dir():
            return
        child = Child("interrupt", work)
        child.start()
        deadline = time.monotonic() + JOBS_STOP_S * 3
        while child.reap() is None and child.alive:
            hurried = patient and self.asked_to_stop > 1
            if hurried or time.monotonic() > deadline:
                child.send_group(signal.SIGKILL)
                if hurried:
                    self._interrupt_jobs()
                else:
                    warn("some local jobs could not be stopped")
            self._wait(0.2)


def up(settings: Settings, *, follow_parent: bool = False) -> int:
    """Start the platform and stay until told to stop. Raises StartError before anything was started."""
    if follow_parent:
        process.die_with_parent(os.getppid(), signal.SIGTERM)
    checks.prepare_home(settings)
    with checks.sole_instance(settings):
        redis_binary = checks.redis_binary() if settings.embedded_redis else None
        port = checks.choose_port(settings)
        settings = checks.with_redis(settings).model_copy(update={"port": port, "home": settings.root})
        process.set_name("cube-up")
        return Supervisor(settings, redis_binary).run()


def local_url(settings: Settings) -> str:
    """Where this machine reaches the web server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{settings.port}"


def shown_url(settings: Settings) -> str:
    return settings.public_url or local_url(settings)


def write_url(settings: Settings) -> None:
    """`run/url` tells the `cube` command of this machine where the platform is."""
    path = settings.root / "run" / "url"
    path.write_text(local_url(settings) + "\n")


def probe(settings: Settings) -> tuple[bool, str]:
    """Whether `/ready` says so, and if not, why."""
    host = local_url(settings).removeprefix("http://").rpartition(":")[0].strip("[]")
    connection = http.client.HTTPConnection(host, settings.port, timeout=2)
    try:
        connection.request("GET", "/ready")
        reply = connection.getresponse()
        body = reply.read(4096)
        return reply.status == 200, f"/ready answers {reply.status}: {body.decode(errors='replace')}"
    except (OSError, http.client.HTTPException) as error:
        return False, f"the web server does not answer yet ({error})"
    finally:
        connection.close()


def say(line: str) -> None:
    _write(sys.stdout, line)


def warn(line: str) -> None:
    _write(sys.stderr, f"cube: {line}")


def _write(stream: object, line: str) -> None:
    try:
        print(line, file=stream, flush=True)  # type: ignore[call-overload]
    except OSError:
        pass  # the terminal has gone; the platform is to end in order all the same


__all__ = ["Supervisor", "fork", "local_url", "probe", "up"]
