"""Real PostgreSQL and MariaDB servers for tests: started once per session, as an unprivileged user, in a temp folder.

All pytest-xdist workers share them; `stop_all` is called by the process that owns the session.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_VARIABLE = "CUBE_TEST_SERVERS"
REQUIRE_VARIABLE = "CUBE_TEST_REQUIRE_DATABASES"


class NotInstalled(Exception):
    """The server's programs are not on this machine."""


def claim_folder() -> None:
    """Called by the process that owns the session, before workers start."""
    if FOLDER_VARIABLE not in os.environ:
        folder = tempfile.mkdtemp(prefix="cube-servers-")
        Path(folder).chmod(0o711)
        os.environ[FOLDER_VARIABLE] = folder


def stop_all() -> None:
    folder = Path(os.environ.pop(FOLDER_VARIABLE))
    for state in folder.glob("*.json"):
        pid = json.loads(state.read_text())["pid"]
        try:
            os.kill(pid, signal.SIGQUIT if state.stem == "postgresql" else signal.SIGKILL)
        except ProcessLookupError:
            continue
        _wait_gone(pid)
    shutil.rmtree(folder, ignore_errors=True)


def server_url(kind: str) -> str:
    """URL of the server's own administrative database; starts the server the first time. Raises NotInstalled."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    state = folder / f"{kind}.json"
    with _lock(folder / f"{kind}.lock"):
        if not state.exists():
            pid, url = {"postgresql": _start_postgresql, "mariadb": _start_mariadb}[kind](folder / kind)
            state.write_text(json.dumps({"pid": pid, "url": url}))
    return str(json.loads(state.read_text())["url"])


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _user() -> str | None:
    """Whom to run a server as: both refuse or dislike root."""
    return "nobody" if os.geteuid() == 0 else None


def _program(name: str, *folders: str) -> str:
    found = shutil.which(
        name, path=os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    )
    if found is None:
        raise NotInstalled(f"{name} is not installed")
    return found


def _folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    user = _user()
    if user is not None:
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)


def _start(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "server.out", "ab") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            user=_user(),
            start_new_session=True,
            env={"LC_ALL": "C"},
        )


def _start_postgresql(folder: Path) -> tuple[int, str]:
    versions = sorted(str(p) for p in Path("/usr/lib/postgresql").glob("*/bin"))
    initdb, postgres = _program("initdb", *reversed(versions)), _program("postgres", *reversed(versions))
    _folder(folder)
    data = folder / "data"
    subprocess.run(
        [initdb, "-D", str(data), "-U", "cube", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True,
        capture_output=True,
        user=_user(),
        cwd="/",
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
    )
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "shared_buffers": "32MB",
        "max_connections": "150",
    }
    process = _start([postgres, "-D", str(data), *(f"--{k}={v}" for k, v in options.items())], folder)
    _await(process, folder / ".s.PGSQL.5432", folder)
    return process.pid, f"postgresql+psycopg://cube@/postgres?host={folder}"


def _start_mariadb(folder: Path) -> tuple[int, str]:
    install, server = _program("mariadb-install-db"), _program("mariadbd")
    _folder(folder)
    data, socket = folder / "data", folder / "sock"
    subprocess.run(
        [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True,
        capture_output=True,
        user=_user(),
        cwd="/",
        env={"LC_ALL": "C", "PATH": os.environ["PATH"] + ":/usr/sbin", "TMPDIR": str(folder)},
    )
    process = _start(
        [
            server,
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={socket}",
            f"--tmpdir={folder}",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--max-connections=150",
            "--skip-log-bin",
            "--performance-schema=OFF",
            f"--pid-file={folder / 'pid'}",
        ],
        folder,
    )
    _await(process, socket, folder)
    return process.pid, f"mysql+pymysql://root@localhost/mysql?unix_socket={socket}&charset=utf8mb4"


def _await(process: subprocess.Popen[bytes], socket: Path, folder: Path) -> None:
    """Until the server's socket accepts; its output is part of the error when it does not."""
    import socket as sockets

    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        with sockets.socket(sockets.AF_UNIX) as probe:
            try:
                probe.connect(str(socket))
            except OSError:
                time.sleep(0.05)
                continue
            process.returncode = 0  # it is left running on purpose: no ResourceWarning when this object goes
            return
    raise RuntimeError(f"{process.args!r} did not start: {(folder / 'server.out').read_text(errors='replace')[-2000:]}")


def _wait_gone(pid: int) -> None:
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
        time.sleep(0.02)
