"""Making users: with a role, a password that holds, and an audit row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask_appbuilder.exceptions import PasswordComplexityValidationError
from sqlalchemy import insert, or_, select
from sqlalchemy.exc import IntegrityError
from werkzeug.security import generate_password_hash

from myapp.domain.errors import Conflict, Invalid, Unavailable
from myapp.domain.permissions import Actor, Permission
from myapp.models import Audit
from myapp.security.bootstrap import USER_ROLE_NAME
from myapp.security.identity import utc_now
from myapp.security.manager import check_password_strength
from myapp.security.tables import ADMIN_ROLE, ROLE, USER, Store


@dataclass(frozen=True)
class NewUser:
    """`email` may be empty: then it is `<username>@localhost`. `admin`: of the whole platform."""

    username: str
    password: str
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    admin: bool = False


def create_user(store: Store, actor: Actor, new: NewUser) -> int:
    """The new user's id. Raises Forbidden, Invalid (a weak password), Conflict (name or e-mail address are taken)."""
    from flask_appbuilder.security.sqla.models import User, assoc_user_role

    actor.require(Permission.USER_MANAGE)
    try:
        check_password_strength(new.password)
    except PasswordComplexityValidationError as error:
        raise Invalid(f"password: {str(error).rstrip('.')}", code="weak_password") from None
    email = new.email or f"{new.username}@localhost"
    hashed = generate_password_hash(new.password)
    role = ADMIN_ROLE if new.admin else USER_ROLE_NAME
    row: dict[str, Any] = {
        "first_name": new.first_name or new.username[:64],
        "last_name": new.last_name,
        "username": new.username,
        "email": email,
        "password": hashed,
        "active": True,
        "login_count": 0,
        "fail_login_count": 0,
        "created_on": utc_now(),
        "changed_on": utc_now(),
    }
    taken = Conflict(
        f"there is a user {new.username} or with the e-mail address {email} already", code="user_exists"
    )
    with store.write() as unit:
        connection = unit.connection
        # A sign-in takes either, so that no one's name may be another's address.
        both = (new.username, email)
        query = select(USER.c.id).where(or_(USER.c.username.in_(both), USER.c.email.in_(both))).limit(1)
        if connection.execute(query).first() is not None:
            raise taken
        role_id = connection.execute(select(ROLE.c.id).where(ROLE.c.name == role)).scalar_one_or_none()
        if role_id is None:
            raise Unavailable(f"there is no role {role} yet", resolution="Run `cube db upgrade`.")
        try:
            connection.execute(insert(User.__table__), row)
        except IntegrityError:
            raise taken from None
        user_id = int(connection.execute(select(USER.c.id).where(USER.c.username == new.username)).scalar_one())
        connection.execute(insert(assoc_user_role), {"user_id": user_id, "role_id": role_id})
        connection.execute(
            insert(Audit.__table__),  # type: ignore[arg-type]
            {
                "at": unit.now,
                "actor": actor.username[:64],
                "user_id": actor.user_id,
                "action": "user.create",
                "target": new.username[:128],
                "outcome": "ok",
                "address": actor.address,
                "detail": {"role": role},
            },
        )
    return user_id
