"""The owner's side of the fork server: one small process per worker process, from which shims are forked."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from myapp.domain.ports import Transient


class ForkServer:
    """Starts on first use, again when it has died. Thread-safe; a forked child of the owner starts its own."""

    def __init__(self, python: str, runtime: Path, log: str, timeout_s: float) -> None:
        self._command = [python, "-I", "-S", str(runtime / "cube_shim" / "server.py")]
        self._log = log
        self._timeout = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._owner = 0
        self._sequence = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def spawn(self, folder: str, ranks: Sequence[int], installer_env: dict[str, str]) -> None:
        """Start the shims of these ranks and wait until each has written down its identity.

        A rank that has a shim already keeps it. Raises Transient.
        """
        with self._lock:
            for last in (False, True):
                try:
                    self._request(folder, ranks, installer_env)
                    return
                except OSError as error:
                    self._end()
                    if last:
                        raise Transient(f"the fork server does not answer: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._end()

    def _request(self, folder: str, ranks: Sequence[int], installer_env: dict[str, str]) -> None:
        link = self._connection()
        waiting = set()
        for rank in ranks:
            self._sequence += 1
            waiting.add(self._sequence)
            request = {"seq": self._sequence, "folder": folder, "rank": rank, "installer_env": installer_env}
            link.send(json.dumps(request).encode())
        while waiting:
            data = link.recv(65536)
            if not data:
                raise ConnectionResetError("it has ended")
            reply: dict[str, Any] = json.loads(data)
            if reply["seq"] in waiting:
                waiting.discard(reply["seq"])
                if "error" in reply:
                    raise Transient(f"a process could not be started: {reply['error']}")

    def _connection(self) -> socket.socket:
        if self._owner != os.getpid():
            if self._socket:
                self._socket.close()        # the parent's: it keeps its own end
            self._socket, self._process, self._owner = None, None, os.getpid()
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    pass_fds=(theirs.fileno(),), start_new_session=True,
                )
            ours.settimeout(self._timeout)
            self._socket = ours
        return self._socket

    def _end(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None
        if self._process and self._owner == os.getpid():
            try:
                self._process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        self._process = None
