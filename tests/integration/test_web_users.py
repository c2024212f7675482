"""Administrators make users, over REST and on Flask-AppBuilder's form; nobody has to think of a role."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import select

from myapp.security.tables import ROLE, USER, USER_ROLE
from tests.integration.test_web_routes import signed_in
from tests.integration.web_fixtures import API, World

USERS = f"{API}/security/user/"
SECRET = "long-and-different-1"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flask-AppBuilder's own


def roles_of(world: World, username: str) -> list[str]:
    query = (
        select(ROLE.c.name)
        .join(USER_ROLE, USER_ROLE.c.role_id == ROLE.c.id)
        .join(USER, USER.c.id == USER_ROLE.c.user_id)
        .where(USER.c.username == username)
    )
    with world.platform.database.read() as connection:
        return list(connection.execute(query).scalars())


def make(world: World, who: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
    sent = {"username": "ada", "password": SECRET, **body}
    return world.client().post(USERS, headers=headers or world.bearer(who), json=sent)


def test_a_user_is_made_and_signs_in(own_web: World) -> None:
    reply = make(own_web, "admin", email="ada@example.org", first_name="Ada")
    assert (reply.status_code, reply.get_json()["username"]) == (201, "ada")
    assert roles_of(own_web, "ada") == ["User"]
    signed = own_web.client().post(f"{API}/security/login", json={"username": "ada@example.org", "password": SECRET})
    token = signed.get_json()["access_token"]
    me = own_web.client().get(f"{API}/me/", headers={"Authorization": f"Bearer {token}"}).get_json()["result"]
    assert (me["username"], me["is_admin"]) == ("ada", False)
    assert [(p["slug"], p["role"]) for p in me["projects"]] == [("public", "dev")]
    assert make(own_web, "admin").status_code == 409
    assert make(own_web, "admin", username="other", email="ada@example.org").status_code == 409
    assert make(own_web, "admin", username="ada@example.org").status_code == 409


@pytest.mark.parametrize(
    "body",
    [{"password": "short"}, {"password": "aaaaaaaaaaaaaaa"}, {"username": ""}, {"username": "a/b"}, {"username": "a b"},
     {"username": "x" * 65}, {"email": "nobody"}, {"first_name": "a\nb"}, {"roles": ["Admin"]}, {"admin": "yes"}],
)
def test_what_makes_no_user(web: World, body: dict[str, Any]) -> None:
    reply = make(web, "admin", username=body.pop("username", "eve"), **body)
    assert reply.status_code == 422
    assert roles_of(web, "eve") == []


def test_only_administrators_make_users(web: World) -> None:
    assert make(web, "dev", username="eve").status_code == 403
    assert web.client().post(USERS, json={"username": "eve", "password": SECRET}).status_code == 401


def test_an_api_token_makes_users_but_no_administrators(own_web: World) -> None:
    made = own_web.client().post(f"{API}/security/token/", headers=own_web.bearer("admin"), json={"name": "ci"})
    token = {"Authorization": f"Bearer {made.get_json()['result']['token']}"}
    assert make(own_web, "", token, username="eve", admin=True).status_code == 403
    assert make(own_web, "", token, username="bob").status_code == 201
    assert make(own_web, "admin", username="ann", admin=True).status_code == 201
    assert (roles_of(own_web, "eve"), roles_of(own_web, "bob"), roles_of(own_web, "ann")) == ([], ["User"], ["Admin"])


def test_the_form_needs_no_role(own_web: World) -> None:
    client = signed_in(own_web, "admin")
    page = client.get("/users/add").get_data(as_text=True)
    token = re.search(r'name="csrf_token"[^>]* value="([^"]+)"', page)
    assert token is not None
    form = {"first_name": "G", "last_name": "G", "username": "gus", "active": "y", "email": "gus@example.org",
            "password": SECRET, "conf_password": SECRET, "csrf_token": token[1]}
    assert client.post("/users/add", data=form).status_code == 302
    assert roles_of(own_web, "gus") == ["User"]
    with own_web.platform.database.read() as connection:
        user_id = connection.execute(select(USER.c.id).where(USER.c.username == "gus")).scalar_one()
        admin = connection.execute(select(ROLE.c.id).where(ROLE.c.name == "Admin")).scalar_one()
    edited = {k: v for k, v in form.items() if "password" not in k}
    assert client.post(f"/users/edit/{user_id}", data={**edited, "roles": str(admin)}).status_code == 302
    assert roles_of(own_web, "gus") == ["Admin"]
    assert client.post(f"/users/edit/{user_id}", data=edited).status_code == 302
    assert roles_of(own_web, "gus") == ["User"]
