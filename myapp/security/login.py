"""Checking a user name and password against the database."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, insert, or_, select, update
from werkzeug.security import check_password_hash

from myapp.domain.errors import Unavailable
from myapp.models import Audit
from myapp.security.identity import password_stamp, utc_now
from myapp.security.tables import USER, Store

_AUDIT: Any = Audit.__table__
# The hash of no password, with the cost of a real one: an unknown name takes as long as a wrong password.
_NOBODY = f"scrypt:32768:8:1${16 * '0'}${128 * '0'}"
_HASHING = threading.BoundedSemaphore(2)  # one check takes 32 MiB
_HASHING_WAIT_S = 20.0
MAX_PASSWORD = 1024
MAX_USERNAME = 320


@dataclass(frozen=True)
class SignedIn:
    user_id: int
    username: str
    stamp: str
    first: bool  # this user's first sign-in


def authenticate(store: Store, username: str, password: str, *, address: str = "") -> SignedIn | None:
    """The user with this name (or e-mail address) and password, recorded with its audit row; None when wrong.

    Says nothing of which was wrong, in words or in time. Raises Unavailable when too many sign in at once.
    """
    usable = bool(username) and bool(password) and "\0" not in username + password
    usable = usable and len(username) <= MAX_USERNAME and len(password) <= MAX_PASSWORD
    row = _find(store, username) if usable else None
    stored = row.password if row is not None and row.active and row.password else None
    if not _HASHING.acquire(timeout=_HASHING_WAIT_S):
        raise Unavailable("too many people are signing in at this moment", retry_after=5)
    try:
        right = check_password_hash(stored or _NOBODY, password if usable else "") and stored is not None
    finally:
        _HASHING.release()
    user_id = row.id if row is not None else 0
    _record(store, user_id, username, right, address)
    if not right or row is None:
        return None
    return SignedIn(row.id, row.username, password_stamp(row.password), first=not row.login_count)


def _find(store: Store, username: str) -> Any:
    query = (
        select(USER.c.id, USER.c.username, USER.c.password, USER.c.active, USER.c.login_count)
        .where(or_(USER.c.username == username, USER.c.email == username))
        .order_by((USER.c.username == username).desc())
        .limit(1)
    )
    with store.read() as connection:
        return connection.execute(query).first()


def _record(store: Store, user_id: int, username: str, right: bool, address: str) -> None:
    if right:
        change = {
            "login_count": func.coalesce(USER.c.login_count, 0) + 1,
            "fail_login_count": 0,
            "last_login": utc_now(),
        }
    else:
        change = {"fail_login_count": func.coalesce(USER.c.fail_login_count, 0) + 1}
    shown = "".join(c for c in username[:64] if c.isprintable())
    with store.write() as unit:
        unit.connection.execute(update(USER).where(USER.c.id == user_id).values(change))
        unit.connection.execute(
            insert(_AUDIT),
            {
                "at": unit.now,
                "actor": shown,
                "user_id": user_id,
                "action": "login",
                "outcome": "ok" if right else "refused",
                "address": address[:64],
            },
        )
