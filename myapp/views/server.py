"""The web server: gunicorn inside this process's program, with threads."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from gunicorn import sock
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker

from myapp.views import app as _app  # noqa: F401  imported before gunicorn forks, so that the workers share its memory
from myapp.views.turnstile import Turnstile

if TYPE_CHECKING:
    from myapp.composition import Platform

_GRACE_S = 10
_KEEP_ALIVE_S = 30
_BACKLOG = 512
_PATIENCE_S = 30.0  # for a whole request to arrive
_HURRY_S = 1.0  # the same, while most threads wait for requests to arrive


class Worker(ThreadWorker):
    """Event streams end when the worker is told to stop; their clients come back and go on after their cursor.

    `alone`: there is no master over it, and Ctrl-C finishes what is under way.
    """

    alone = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arriving: dict[Any, float] = {}

    def handle(self, conn: Any) -> Any:
        self._arriving[conn] = time.monotonic()
        try:
            return super().handle(conn)
        finally:
            self._arriving.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        if req.method in ("GET", "HEAD"):
            self._arriving.pop(conn, None)  # it is all there
        return super().handle_request(req, conn)

    def notify(self) -> None:
        """Called every second. Clients that send a request too slowly, each holding a thread, are cut off: what they
        have sent is still read and answered, but no more is waited for."""
        super().notify()
        arriving = list(self._arriving.items())
        patience = _HURRY_S if len(arriving) > self.cfg.threads // 2 else _PATIENCE_S
        for conn, since in arriving:
            if time.monotonic() - since > patience:
                try:
                    conn.sock.shutdown(socket.SHUT_RD)
                except OSError:
                    pass

    def init_signals(self) -> None:
        super().init_signals()
        if self.alone:
            signal.signal(signal.SIGINT, self.handle_exit)

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self.app.close_streams()


class Server(BaseApplication):
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._flask: Any = None
        super().__init__()

    def load_config(self) -> None:
        settings = self._platform.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        values = {
            "bind": [f"{host}:{settings.port}"],
            "workers": settings.web_workers,
            "worker_class": Worker,
            "threads": settings.web_threads,
            "worker_connections": 1000,
            "backlog": _BACKLOG,
            "keepalive": _KEEP_ALIVE_S,
            "graceful_timeout": _GRACE_S,
            "timeout": 60,
            "control_socket_disable": True,
            "accesslog": None,
            "errorlog": "-",
            "loglevel": "warning",
            "limit_request_line": 8190,
            "proc_name": "cube-web",
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Called in each worker, after the fork: nothing that holds a connection is shared."""
        from myapp import create_app

        self._flask = create_app(self._platform)
        return Turnstile(self._flask)

    def run(self) -> None:
        if self.cfg.workers > 1:
            gc.collect()
            gc.freeze()  # what is there before the fork stays shared: no collection writes to it
            super().run()
        else:
            self._run_alone()

    def _run_alone(self) -> None:
        """One worker needs no master: the supervisor (or the container) starts it again. Saves a process's memory."""
        log = self.cfg.logger_class(self.cfg)
        sockets = sock.create_sockets(self.cfg, log)
        worker = Worker(1, os.getppid(), sockets, self, self.cfg.timeout, self.cfg, log)
        worker.alone = True
        worker.pid = os.getpid()
        worker.init_process()

    def close_streams(self) -> None:
        if self._flask is not None:
            self._flask.extensions["cube"].streams.close()


def serve(platform: Platform) -> None:
    """Serve until told to stop by SIGTERM or SIGINT; requests under way are finished first. Exits the process when the
    address cannot be had."""
    Server(platform).run()
