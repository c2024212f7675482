"""The database: one engine, short reads, and one kind of write transaction.

SQLite allows one writer; its own waiting is a back-off that sleeps. Writers of this program queue on a file lock
instead, which the kernel hands over at once and frees when a process dies: nobody ever sees "database is locked".
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import Engine, make_url

from myapp.persistence.unit_of_work import Bell, SilentBell, UnitOfWork
from myapp.utils import clock


class WriteGate:
    """A fair queue of writers: threads of this process by a lock, processes by `flock`."""

    def __init__(self, path: str | None) -> None:
        self._thread = threading.Lock()
        self._path = path
        self._fd: int | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        if self._path is None:
            yield
            return
        with self._thread:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)


class Database:
    """`durable`: a commit survives the loss of power (the web's submits); without it, any crash of processes."""

    def __init__(
        self,
        url: str,
        *,
        bell: Bell | None = None,
        durable: bool = True,
        pool_size: int = 8,
        clock: Callable[[], float] = clock.now,
    ) -> None:
        self.url = url
        self.bell = bell or SilentBell()
        self.clock = clock
        self.dialect = make_url(url).get_backend_name()
        self.engine = _engine(url, durable=durable, pool_size=pool_size)
        self._gate = WriteGate(_gate_path(url))
        self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection in autocommit: each statement sees what is committed at that moment."""
        with self._autocommit.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A read-only transaction: all statements see one state."""
        with self.engine.connect() as connection:
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN")
            elif self.dialect == "postgresql":
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def write(self) -> Iterator[UnitOfWork]:
        """One transaction. Committed when the block ends, rolled back when it raises; bells ring after the commit."""
        with self._gate.entered(), self.engine.connect() as connection:
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            unit = UnitOfWork(connection, now=self.clock())
            try:
                yield unit
                unit.flush()
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        unit.announce(self.bell)

    def dispose(self) -> None:
        self.engine.dispose()


def _gate_path(url: str) -> str | None:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return f"{Path(parsed.database).absolute()}.lock"


def _engine(url: str, *, durable: bool, pool_size: int) -> Engine:
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        engine = create_engine(parsed, pool_size=pool_size, max_overflow=64, connect_args={"check_same_thread": False})

        @event.listens_for(engine, "connect")
        def _configure(connection: Any, record: Any) -> None:
            connection.isolation_level = None  # transactions are begun by us, explicitly
            cursor = connection.cursor()
            for pragma in (
                "journal_mode=WAL",
                f"synchronous={'FULL' if durable else 'NORMAL'}",
                "foreign_keys=ON",
                "busy_timeout=60000",
                "cache_size=-8000",
                "wal_autocheckpoint=2000",
            ):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        return engine
    if backend in ("mysql", "mariadb"):
        return create_engine(
            parsed, pool_size=pool_size, max_overflow=64, pool_pre_ping=True, isolation_level="READ COMMITTED"
        )
    return create_engine(parsed, pool_size=pool_size, max_overflow=64, pool_pre_ping=True)
