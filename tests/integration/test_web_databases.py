"""Sign-in and tokens on every kind of database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from myapp.config import Settings
from myapp.persistence.database import Database
from myapp.security.bootstrap import ensure_admin
from myapp.security.identity import find_token, find_user
from myapp.security.login import authenticate
from myapp.security.tokens import create_token, list_tokens, lookup_hash, note_use, revoke_token


@dataclass
class Bare:
    settings: Settings
    database: Database


def test_from_the_first_admin_to_a_revoked_token(database: Database, tmp_path: Path) -> None:
    password = (
        ensure_admin(Bare(Settings(home=tmp_path), database)) or (tmp_path / "admin-password").read_text().strip()
    )
    assert ensure_admin(Bare(Settings(home=tmp_path), database)) is None
    assert authenticate(database, "admin", "wrong") is None
    assert authenticate(database, "nosuch", password) is None
    found = authenticate(database, "admin", password, address="10.0.0.1")
    assert found is not None
    assert found.first
    again = authenticate(database, "admin@localhost", password)
    assert again is not None
    assert (again.user_id, again.first) == (found.user_id, False)
    with database.read() as connection:
        identity = find_user(connection, found.user_id)
        assert find_user(connection, 10**9) is None
    assert identity is not None
    assert (identity.actor.username, identity.actor.is_admin, identity.stamp) == ("admin", True, found.stamp)

    made = create_token(database, found.user_id, "admin", "ci", days=1)
    with database.read() as connection:
        by_token = find_token(connection, lookup_hash(made["token"]))
    assert by_token is not None
    assert (by_token.actor.user_id, by_token.token) == (found.user_id, made["id"])
    note_use(database, made["id"], None)
    assert [t["last_used_on"] is not None for t in list_tokens(database, found.user_id)] == [True]
    revoke_token(database, found.user_id, "admin", made["id"])
    with database.read() as connection:
        assert find_token(connection, lookup_hash(made["token"])) is None
