"""Fixtures every test may use. `database` runs a test on SQLite, PostgreSQL and MariaDB alike."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from myapp.models import Base
from myapp.persistence import schema
from myapp.persistence.database import Database
from tests import databases

DATABASES = ("sqlite", "postgresql", "mariadb")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        databases.claim_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        databases.stop_all()


def server(kind: str) -> str:
    """URL of a running server, or skip where it is not installed and CUBE_TEST_REQUIRE_DATABASES is unset."""
    try:
        return databases.server_url(kind)
    except databases.NotInstalled as error:
        if os.environ.get(databases.REQUIRE_VARIABLE):
            raise
        pytest.skip(str(error))


def _execute(url: str, *statements: str) -> None:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def _named(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A function from a kind of database to the URL of a new, empty one."""
    made: list[tuple[str, str]] = []

    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'cube.db'}"
        url, name = server(kind), f"cube_{uuid.uuid4().hex[:16]}"
        _execute(url, f"CREATE DATABASE {name}")
        made.append((url, name))
        return _named(url, name)

    yield make
    for url, name in made:
        _execute(url, f"DROP DATABASE IF EXISTS {name}" + (" WITH (FORCE)" if url.startswith("postgresql") else ""))


@pytest.fixture(scope="session")
def migrated(empty_url: Callable[[str], str]) -> Callable[[str], str]:
    """A function from a kind to the URL of a migrated database, one per session and kind: to copy or to empty."""
    urls: dict[str, str] = {}

    def get(kind: str) -> str:
        if kind not in urls:
            urls[kind] = empty_url(kind)
            schema.upgrade(urls[kind])
        return urls[kind]

    return get


@pytest.fixture
def fresh_url(migrated: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A function from a kind to the URL of a migrated database without rows."""
    clones: list[tuple[str, str]] = []

    def make(kind: str) -> str:
        source = migrated(kind)
        if kind == "sqlite":
            target = tmp_path / "cube.db"
            shutil.copyfile(str(make_url(source).database), target)
            return f"sqlite:///{target}"
        if kind == "postgresql":
            name, admin = f"cube_{uuid.uuid4().hex[:16]}", server(kind)
            _execute(admin, f"CREATE DATABASE {name} TEMPLATE {make_url(source).database}")
            clones.append((admin, name))
            return _named(admin, name)
        tables = [t.name for t in Base.metadata.sorted_tables]
        _execute(source, "SET FOREIGN_KEY_CHECKS = 0", *(f"DELETE FROM `{name}`" for name in tables))
        return source

    yield make
    for admin, name in clones:
        _execute(admin, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, fresh_url: Callable[[str], str]) -> Iterator[Database]:
    """A migrated `Database` without rows: the test runs once for each kind."""
    opened = Database(fresh_url(request.param), durable=False)
    yield opened
    opened.dispose()


@pytest.fixture
def sqlite_database(fresh_url: Callable[[str], str]) -> Iterator[Database]:
    """A migrated SQLite `Database` without rows, for tests that need no other kind."""
    opened = Database(fresh_url("sqlite"), durable=False)
    yield opened
    opened.dispose()
