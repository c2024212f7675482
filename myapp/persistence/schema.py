"""The database's schema: brought up to date under a lock, so that any number of processes may start at once.

Alembic (and Flask-AppBuilder's tables, which it needs only to compare) are imported when there is something to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, MetaData, create_engine, event, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from myapp.persistence.database import WriteGate
from myapp.persistence.database import _gate_path as gate_path
from myapp.utils.shipped import shipped

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0002"  # the newest file in migrations/versions; a test compares them
_LOCK_NAME = "cube_schema"
_LOCK_KEY = 0x63756265  # "cube"
_LOCK_WAIT_S = 600


class UnknownRevision(Exception):
    """The database was made by a newer version of the platform."""


def current(url: str) -> str | None:
    """The revision stored in the database; None when it has no tables yet."""
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            return stored(connection)
    finally:
        engine.dispose()


def stored(connection: Connection) -> str | None:
    try:
        row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    except (OperationalError, ProgrammingError) as error:
        connection.rollback()
        if _no_such_table(error):
            return None
        raise
    return None if row is None else str(row[0])


def upgrade(url: str, revision: str = "head") -> bool:
    """Bring the schema up to `revision`; True when anything was done. Safe to call from many processes at once.

    Raises UnknownRevision when the database is newer than this program.
    """
    wanted = HEAD if revision == "head" else revision
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
        Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    if current(url) == wanted:
        return False
    with _locked(url) as engine:
        with engine.connect() as connection:
            found = stored(connection)
        if found == wanted:
            return False
        _check_known(found)
        _run(engine, "upgrade", wanted)
    return True


def downgrade(url: str, revision: str = "base") -> None:
    """Take the schema down to `revision`, dropping what newer ones made."""
    with _locked(url) as engine:
        _run(engine, "downgrade", revision)


def differences(url: str) -> list[Any]:
    """What Alembic's autogenerate would change to make the database match the models; empty when they agree."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = _engine(url)
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            return list(compare_metadata(context, target_metadata()))  # type: ignore[arg-type]
    finally:
        engine.dispose()


def heads() -> list[str]:
    from alembic.script import ScriptDirectory

    return list(ScriptDirectory.from_config(_config()).get_heads())


def target_metadata() -> list[MetaData]:
    """The metadata of the platform's tables and of Flask-AppBuilder's."""
    import flask_appbuilder.security.sqla.models  # noqa: F401  registers its tables
    from flask_appbuilder import Model

    from myapp.models import Base

    return [Base.metadata, Model.metadata]


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, poolclass=NullPool)
    engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": 60})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # so that DDL is part of the transaction begun below

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if engine.url.database else "BEGIN")

    return engine


@contextmanager
def _locked(url: str) -> Iterator[Engine]:
    """An engine, while nobody else migrates (and on SQLite, nobody writes)."""
    engine = _engine(url)
    dialect = engine.dialect.name
    try:
        if dialect == "sqlite":
            with WriteGate(gate_path(url)).entered():
                yield engine
            return
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as holder:
            if dialect == "postgresql":
                holder.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
            else:
                name = f"{_LOCK_NAME}:{engine.url.database}"[:64]
                if not holder.scalar(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": _LOCK_WAIT_S}):
                    raise TimeoutError(f"another process has been migrating this database for {_LOCK_WAIT_S} s")
            yield engine  # both locks end with the connection
    finally:
        engine.dispose()


def _run(engine: Engine, command: str, revision: str) -> None:
    from alembic import command as commands

    config = _config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        getattr(commands, command)(config, revision)
        connection.commit()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    return config


def scripts() -> Path:
    """The folder of the migration scripts."""
    return shipped("migrations")


def _check_known(found: str | None) -> None:
    if found is None:
        return
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    try:
        ScriptDirectory.from_config(_config()).get_revision(found)
    except CommandError as error:
        raise UnknownRevision(
            f"the database is at revision {found}, which this version of Cube Studio does not know: "
            "start the newer version that made it, or restore a backup"
        ) from error


def _no_such_table(error: Exception) -> bool:
    message = str(getattr(error, "orig", error)).lower()
    return "no such table" in message or "does not exist" in message or "doesn't exist" in message
