"""The schema goes up and down on every database, matches the models, and may be upgraded by many processes at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from myapp.persistence import schema
from tests.conftest import DATABASES

URLs = Callable[[str], str]


def tables(url: str) -> set[str]:
    engine = create_engine(url, poolclass=NullPool)
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def test_there_is_one_head_and_the_program_knows_it() -> None:
    assert schema.heads() == [schema.HEAD]


@pytest.mark.parametrize("kind", DATABASES)
def test_up_matches_the_models_and_down_leaves_nothing(kind: str, empty_url: URLs) -> None:
    url = empty_url(kind)
    assert schema.current(url) is None
    assert schema.upgrade(url) is True
    assert schema.current(url) == schema.HEAD
    assert schema.differences(url) == []
    assert {"run", "ab_user"} < tables(url)
    assert schema.upgrade(url) is False
    schema.downgrade(url, "0001")
    assert "run" not in tables(url)
    assert "ab_user" in tables(url)
    schema.downgrade(url)
    assert tables(url) == set()
    assert schema.upgrade(url) is True
    assert schema.differences(url) == []


@pytest.mark.parametrize("kind", DATABASES)
def test_many_may_upgrade_at_once(kind: str, empty_url: URLs) -> None:
    url = empty_url(kind)
    program = f"from myapp.persistence import schema; print(schema.upgrade({url!r}))"
    with ThreadPoolExecutor(3) as pool:
        answers = list(
            pool.map(
                lambda _: subprocess.run([sys.executable, "-c", program], capture_output=True, text=True), range(3)
            )
        )
    assert [a.returncode for a in answers] == [0, 0, 0], [a.stderr[-2000:] for a in answers]
    assert sorted(a.stdout.strip() for a in answers) == ["False", "False", "True"]


@pytest.mark.parametrize("kind", DATABASES)
def test_an_upgrade_cut_short_goes_on(kind: str, empty_url: URLs) -> None:
    """MariaDB commits each CREATE TABLE by itself: one that died half-way must not block the next."""
    url = empty_url(kind)
    schema.upgrade(url)
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for table in ("log_chunk", "allocation", "output"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    assert schema.upgrade(url) is True
    assert schema.differences(url) == []


@pytest.mark.parametrize("kind", DATABASES)
def test_flask_appbuilder_can_write_its_users(kind: str, empty_url: URLs) -> None:
    from flask_appbuilder.security.sqla.models import Role, User

    url = empty_url(kind)
    schema.upgrade(url)
    with Session(create_engine(url, poolclass=NullPool)) as session:
        role = Role(name="dev")
        session.add(
            User(
                first_name="A",
                last_name="B",
                username="ab",
                email="a@b.c",
                roles=[role],
                created_by_fk=None,
                changed_by_fk=None,
            )
        )
        session.commit()
        user = session.query(User).one()
        assert user.id == 1
        assert [r.name for r in user.roles] == ["dev"]


def test_an_unknown_revision_says_what_to_do(empty_url: URLs) -> None:
    url = empty_url("sqlite")
    schema.upgrade(url)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(schema.UnknownRevision, match="newer version"):
        schema.upgrade(url)


def test_an_upgrade_with_nothing_to_do_imports_no_alembic(empty_url: URLs) -> None:
    url = empty_url("sqlite")
    schema.upgrade(url)
    program = (
        f"import sys; from myapp.persistence import schema; schema.upgrade({url!r});"
        "print([m for m in sys.modules if m.split('.')[0] in ('alembic', 'flask_appbuilder')])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout.strip()) == (0, "[]"), answer.stderr
