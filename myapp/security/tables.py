"""Flask-AppBuilder's user tables as far as access control reads them, without importing Flask-AppBuilder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Boolean, Connection, DateTime, Integer, String, column, table

ADMIN_ROLE = "Admin"

USER = table(
    "ab_user",
    column("id", Integer),
    column("username", String),
    column("email", String),
    column("first_name", String),
    column("last_name", String),
    column("password", String),
    column("active", Boolean),
    column("last_login", DateTime),
    column("login_count", Integer),
    column("fail_login_count", Integer),
)
ROLE = table("ab_role", column("id", Integer), column("name", String))
USER_ROLE = table("ab_user_role", column("user_id", Integer), column("role_id", Integer))
USER_GROUP = table("ab_user_group", column("user_id", Integer), column("group_id", Integer))
GROUP_ROLE = table("ab_group_role", column("group_id", Integer), column("role_id", Integer))
API_KEY = table(
    "ab_api_key",
    column("id", Integer),
    column("uuid", String),
    column("name", String),
    column("lookup_hash", String),
    column("key_prefix", String),
    column("user_id", Integer),
    column("active", Boolean),
    column("created_on", DateTime),
    column("expires_on", DateTime),
    column("revoked_on", DateTime),
    column("last_used_on", DateTime),
)


class Unit(Protocol):
    """An open write transaction."""

    @property
    def connection(self) -> Connection: ...

    @property
    def now(self) -> float: ...


class Reader(Protocol):
    def read(self) -> AbstractContextManager[Connection]: ...


class Store(Reader, Protocol):
    """`persistence.Database`, as far as access control needs it."""

    def write(self) -> AbstractContextManager[Unit]: ...
