"""What a program shows instead of a password: short-lived access tokens (JWT) and API tokens kept as hashes."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from sqlalchemy import func, select, update

from myapp.domain.errors import Conflict, NotFound
from myapp.models import Audit
from myapp.security.identity import utc_now
from myapp.security.tables import API_KEY, Reader, Store

API_TOKEN_PREFIX = "sst_"  # noqa: S105  what Flask-AppBuilder's begin with
MAX_TOKENS = 100
_ALGORITHM = "HS256"
_AUDIENCE = "cube-studio"
_USED_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class AccessToken:
    """The claims of a valid access token."""

    user_id: int
    stamp: str


class AccessTokens:
    """Issues and reads access tokens. `lifetime` in seconds."""

    def __init__(self, secret: str, lifetime: float) -> None:
        self._key = hashlib.sha256(b"cube-access-token:" + secret.encode()).digest()
        self.lifetime = lifetime

    def issue(self, user_id: int, stamp: str, *, now: float) -> str:
        claims = {
            "sub": str(user_id),
            "aud": _AUDIENCE,
            "iat": int(now),
            "exp": int(now + self.lifetime),
            "jti": secrets.token_hex(8),
            "stamp": stamp,
        }
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def read(self, token: str) -> AccessToken | None:
        """The claims, or None for a token that is not ours, was changed, or has expired."""
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": ["sub", "exp", "iat", "stamp"]},
            )
            return AccessToken(int(claims["sub"]), str(claims["stamp"]))
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None


def lookup_hash(token: str) -> str:
    """What is stored of an API token. Its 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(b"cube-api-token:" + token.encode("utf-8", "surrogatepass")).hexdigest()


def create_token(
    store: Store, user_id: int, username: str, name: str, *, days: float | None, address: str = ""
) -> dict[str, Any]:
    """Make an API token; the reply's `token` is shown this once and never stored.

    Raises Conflict when the user has too many or one of that name in use.
    """
    from flask_appbuilder.security.sqla.models import ApiKey

    token = API_TOKEN_PREFIX + secrets.token_urlsafe(32)
    lookup = lookup_hash(token)
    made_at = utc_now()
    expires = made_at + timedelta(days=days) if days is not None else None
    row = {
        "uuid": str(uuid.uuid4()),
        "name": name,
        "key_hash": f"lookup${lookup}",
        "lookup_hash": lookup,
        "key_prefix": token[:12],
        "user_id": user_id,
        "active": True,
        "created_on": made_at,
        "expires_on": expires,
    }
    with store.write() as unit:
        live = (API_KEY.c.user_id == user_id, API_KEY.c.revoked_on.is_(None))
        if unit.connection.execute(select(func.count()).select_from(API_KEY).where(*live)).scalar_one() >= MAX_TOKENS:
            raise Conflict(f"you have {MAX_TOKENS} API tokens already", resolution="Revoke one that is no longer used.")
        if unit.connection.execute(select(API_KEY.c.id).where(*live, API_KEY.c.name == name).limit(1)).first():
            raise Conflict(
                f"you have an API token called {name!r} already", resolution="Revoke it, or choose another name."
            )
        unit.connection.execute(ApiKey.__table__.insert(), row)
        unit.connection.execute(
            Audit.__table__.insert(),  # type: ignore[attr-defined]
            {
                "at": unit.now,
                "actor": username[:64],
                "user_id": user_id,
                "action": "token.create",
                "target": row["uuid"],
                "outcome": "ok",
                "address": address,
            },
        )
    return {**_shown(row), "token": token}


def list_tokens(reader: Reader, user_id: int) -> list[dict[str, Any]]:
    """The user's tokens that are not revoked, newest first; never the token itself."""
    columns = (
        API_KEY.c.uuid,
        API_KEY.c.name,
        API_KEY.c.key_prefix,
        API_KEY.c.created_on,
        API_KEY.c.expires_on,
        API_KEY.c.last_used_on,
    )
    query = (
        select(*columns)
        .where(API_KEY.c.user_id == user_id, API_KEY.c.revoked_on.is_(None))
        .order_by(API_KEY.c.id.desc())
    )
    with reader.read() as connection:
        return [_shown(dict(row._mapping)) for row in connection.execute(query)]


def revoke_token(store: Store, user_id: int, username: str, token_uuid: str, *, address: str = "") -> None:
    """End one of the user's own tokens at once. Raises NotFound for any other."""
    with store.write() as unit:
        changed = unit.connection.execute(
            update(API_KEY)
            .where(API_KEY.c.uuid == token_uuid, API_KEY.c.user_id == user_id, API_KEY.c.revoked_on.is_(None))
            .values(revoked_on=utc_now(), active=False)
        ).rowcount
        if changed != 1:
            raise NotFound("this API token was not found", resolution="List yours with GET /api/v1/security/token/.")
        unit.connection.execute(
            Audit.__table__.insert(),  # type: ignore[attr-defined]
            {
                "at": unit.now,
                "actor": username[:64],
                "user_id": user_id,
                "action": "token.revoke",
                "target": token_uuid,
                "outcome": "ok",
                "address": address,
            },
        )


def note_use(store: Store, token_uuid: str, last_used: datetime | None) -> None:
    """Remember that a token is in use, at most once in ten minutes."""
    now = utc_now()
    if last_used is not None and now - last_used < _USED_EVERY:
        return
    with store.write() as unit:
        unit.connection.execute(update(API_KEY).where(API_KEY.c.uuid == token_uuid).values(last_used_on=now))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    moments: Sequence[str] = ("created_on", "expires_on", "last_used_on")
    times = {name: _iso(row.get(name)) for name in moments}
    return {"id": row["uuid"], "name": row["name"], "prefix": row["key_prefix"], **times}


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
