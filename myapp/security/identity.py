"""Who is asking: from a user's id or an API token to an `Actor`, in one query.

Nothing is cached between requests, so that a disabled user, a revoked token or a lost membership ends at once, in
every process.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, exists, or_, select

from myapp.domain.permissions import Actor, Role
from myapp.models import ProjectUser
from myapp.security.tables import ADMIN_ROLE, API_KEY, GROUP_ROLE, ROLE, USER, USER_GROUP, USER_ROLE

_ROLES = frozenset(Role)


@dataclass(frozen=True)
class Identity:
    """`stamp` changes with the password: sessions and tokens issued under another one are refused.

    `token` is the uuid of the API token used, `token_used_at` when it was last seen in use.
    """

    actor: Actor
    stamp: str
    token: str | None = None
    token_used_at: datetime | None = None


def _is_admin() -> Any:
    by_role = exists().where(
        USER_ROLE.c.user_id == USER.c.id, USER_ROLE.c.role_id == ROLE.c.id, ROLE.c.name == ADMIN_ROLE
    )
    by_group = exists().where(
        USER_GROUP.c.user_id == USER.c.id,
        GROUP_ROLE.c.group_id == USER_GROUP.c.group_id,
        GROUP_ROLE.c.role_id == ROLE.c.id,
        ROLE.c.name == ADMIN_ROLE,
    )
    return or_(by_role, by_group).label("is_admin")


def _person(*more: Any) -> Select[Any]:
    return select(
        USER.c.id,
        USER.c.username,
        USER.c.active,
        USER.c.password,
        _is_admin(),
        ProjectUser.project_id,
        ProjectUser.role,
        *more,
    )


_MEMBERSHIPS = USER.outerjoin(ProjectUser.__table__, ProjectUser.user_id == USER.c.id)
_BY_ID = _person().select_from(_MEMBERSHIPS).where(USER.c.id == bindparam("user_id"))
_BY_TOKEN = (
    _person(
        API_KEY.c.uuid,
        API_KEY.c.active.label("key_active"),
        API_KEY.c.expires_on,
        API_KEY.c.revoked_on,
        API_KEY.c.last_used_on,
    )
    .select_from(API_KEY.join(_MEMBERSHIPS, USER.c.id == API_KEY.c.user_id))
    .where(API_KEY.c.lookup_hash == bindparam("lookup"))
)


def find_user(connection: Connection, user_id: int, *, address: str = "") -> Identity | None:
    """The user with this id; None when there is none or it is disabled."""
    rows = connection.execute(_BY_ID, {"user_id": user_id}).all()
    return _identity(rows, address)


def find_token(connection: Connection, lookup: str, *, address: str = "") -> Identity | None:
    """The user whose API token hashes to `lookup`; None when unknown, revoked, expired, or the user is disabled."""
    rows = connection.execute(_BY_TOKEN, {"lookup": lookup}).all()
    if not rows:
        return None
    first = rows[0]
    expired = first.expires_on is not None and first.expires_on <= utc_now()
    if not first.key_active or first.revoked_on is not None or expired:
        return None
    return _identity(rows, address, token=first.uuid, used_at=first.last_used_on)


def _identity(
    rows: Sequence[Row[Any]], address: str, *, token: str | None = None, used_at: datetime | None = None
) -> Identity | None:
    if not rows or not rows[0].active:
        return None
    first = rows[0]
    roles = {row.project_id: Role(row.role) for row in rows if row.project_id is not None and row.role in _ROLES}
    actor = Actor(
        user_id=first.id, username=first.username, is_admin=bool(first.is_admin), roles=roles, address=address[:64]
    )
    return Identity(actor, password_stamp(first.password), token, used_at)


def password_stamp(password_hash: str | None) -> str:
    """A short fingerprint of the stored (salted) password hash: says nothing of the password."""
    return hashlib.sha256(b"cube-stamp:" + (password_hash or "").encode()).hexdigest()[:16]


def same_stamp(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


def utc_now() -> datetime:
    """Now in UTC without a time zone, as Flask-AppBuilder's tables hold it."""
    return datetime.now(UTC).replace(tzinfo=None)
