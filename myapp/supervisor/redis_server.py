"""The embedded Redis: on a unix socket only, small, its queue kept on disk."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

from myapp.config import Settings
from myapp.supervisor.checks import run_folder


class RedisServer:
    """How to run it; the supervisor forks and `exec`s."""

    def __init__(self, settings: Settings, binary: str) -> None:
        self.binary = binary
        self.folder = settings.root / "redis"
        self.socket = run_folder(settings.root) / "redis.sock"

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.socket.unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Move away data that a Redis refuses to load. Only doorbells are in there: the sweep rings them again."""
        aside = self.folder.with_name(f"redis.refused-{int(time.time())}")
        if aside.exists():
            shutil.rmtree(aside)
        self.folder.rename(aside)
        return aside

    def exec(self) -> int:
        """Become the server. Never returns."""
        os.chdir(self.folder)
        os.execv(self.binary, [self.binary, *self.arguments()])  # noqa: S606 - no shell is the point

    def arguments(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": ".",
            "daemonize": "no",
            "databases": "4",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "8mb",
            "aof-load-truncated": "yes",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
            "logfile": str(self.folder / "redis.log"),
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def answers(self) -> bool:
        """True when it replies to PING, which it does once its data is loaded."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(0.5)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def last_words(self) -> str:
        """The end of its log."""
        try:
            lines = (self.folder / "redis.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""
