"""Carries a job's output into its log file; waits, rather than fails, when the disk is full."""

from __future__ import annotations

import os

from cube_shim.files import FULL

CHUNK = 65536
TAIL = 4096


class LogPump:
    """Reads `source` (a pipe) and appends to `path`, at most `limit` bytes in all.

    While the file cannot be written (`blocked`), nothing more is read: the pipe fills and the job waits.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.tail = b""
        self._file = -1
        self._size = 0
        self._pending = b""
        self._truncated = False

    @property
    def blocked(self) -> bool:
        return bool(self._pending)

    def read(self, source: int) -> bool | None:
        """Move one chunk. True: moved; None: nothing there now; False: end of the stream."""
        try:
            data = os.read(source, CHUNK)
        except BlockingIOError:
            return None
        if not data:
            return False
        self.write(data)
        return True

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL:]
        self._pending += data
        self.flush()

    def flush(self) -> bool:
        """Write what is pending. False when the disk still refuses it."""
        try:
            if self._pending and self._file < 0:
                self._open()
            while self._pending:
                room = self.limit - self._size
                if self._truncated:
                    self._pending = b""
                elif room <= 0:
                    notice = f"\n[cube] log truncated at {self.limit} bytes\n".encode()
                    os.write(self._file, notice)
                    self._truncated = True
                else:
                    count = os.write(self._file, self._pending[:room])
                    self._size += count
                    self._pending = self._pending[count:]
        except FileNotFoundError:
            self._close()
            return False
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        return True

    def give_up(self) -> None:
        self._pending = b""

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
