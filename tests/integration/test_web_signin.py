"""Coming in: passwords, sessions, tokens, forged forms, and how fast it all ends."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from sqlalchemy import delete, func, select, text, update

from myapp.composition import create_platform
from myapp.config import Settings
from myapp.domain.errors import Limited
from myapp.models import Audit, ProjectUser
from myapp.persistence import schema
from myapp.security.bootstrap import ensure_admin, sync_permissions
from myapp.security.secret import load_secret_key
from myapp.security.tables import API_KEY, USER
from myapp.security.throttle import LoginThrottle, Rate
from tests.integration.test_web_routes import csrf_of, signed_in
from tests.integration.web_fixtures import ADMIN_PASSWORD, API, PASSWORD, World, add_user, make_world

LOGIN = f"{API}/security/login"


def test_login_gives_a_token_that_works(web: World) -> None:
    reply = web.client().post(LOGIN, json={"username": "dev", "password": PASSWORD, "provider": "db", "refresh": True})
    assert reply.status_code == 200
    token = reply.get_json()["access_token"]
    me = web.client().get(f"{API}/me", headers={"Authorization": f"Bearer {token}"}).get_json()["result"]
    assert me == {
        "id": web.people.ids["dev"],
        "username": "dev",
        "is_admin": False,
        "projects": [{"id": 1, "slug": "public", "role": "dev"}],
    }
    assert "Set-Cookie" not in reply.headers


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("dev", "wrong"),
        ("nosuch", PASSWORD),
        ("dora", PASSWORD),
        ("dev", ""),
        ("", PASSWORD),
        ("dev\0", PASSWORD),
        ("dev", PASSWORD + "\0"),
        ("DEV ", PASSWORD),
        ("' OR 1=1 --", "x"),
    ],
)
def test_a_wrong_login_says_only_that(web: World, username: str, password: str) -> None:
    reply = web.client().post(LOGIN, json={"username": username, "password": password})
    assert reply.status_code in (401, 422)
    if reply.status_code == 401:
        assert reply.get_json()["message"] == "the user name or the password is wrong"


def test_the_first_login_makes_a_member_of_public(own_web: World) -> None:
    user_id = add_user(own_web.platform, "fresh")
    with own_web.platform.database.write() as unit:
        unit.connection.execute(update(USER).where(USER.c.id == user_id).values(login_count=0))
    own_web.bearer("fresh")
    me = own_web.client().get(f"{API}/me", headers=own_web.bearer("fresh")).get_json()["result"]
    assert [(p["slug"], p["role"]) for p in me["projects"]] == [("public", "dev")]
    with own_web.platform.database.write() as unit:
        unit.connection.execute(delete(ProjectUser).where(ProjectUser.user_id == user_id))
    own_web.tokens.clear()
    me = own_web.client().get(f"{API}/me", headers=own_web.bearer("fresh")).get_json()["result"]
    assert me["projects"] == []  # an owner took them out: signing in again does not bring them back


def test_logins_are_audited_without_passwords(own_web: World) -> None:
    own_web.bearer("dev")
    own_web.client().post(LOGIN, json={"username": "dev", "password": "secret-guess"})
    with own_web.platform.database.read() as connection:
        rows = connection.execute(
            select(Audit.actor, Audit.outcome).where(Audit.action == "login").order_by(Audit.id)
        ).all()
        whole = str(connection.execute(select(Audit.detail, Audit.target)).all())
    assert [tuple(row) for row in rows] == [("dev", "ok"), ("dev", "refused")]
    assert "secret-guess" not in whole


# --- how often ---


def limited(world: World, tries: int, *, form: bool) -> list[int]:
    client = world.client()
    codes = []
    for _ in range(tries):
        if form:
            token = csrf_of_login(client)
            reply = client.post("/login/", data={"username": "dev", "password": "no", "csrf_token": token})
        else:
            reply = client.post(LOGIN, json={"username": "dev", "password": "no"})
        codes.append(reply.status_code)
        if reply.status_code == 429:
            assert 1 <= int(reply.headers["Retry-After"]) <= 60
    return codes


def csrf_of_login(client: FlaskClient) -> str:
    page = client.get("/login/").get_data(as_text=True)
    return page.split('name="csrf_token" value="')[1].split('"')[0]


@pytest.mark.parametrize("first_by_form", [True, False])
def test_failed_logins_are_limited_over_form_and_api_together(
    web_redis: str, tmp_path: Path, first_by_form: bool
) -> None:
    worlds = make_world(web_redis, tmp_path, login_rate="3 per minute")
    world = next(worlds)
    assert limited(world, 2, form=first_by_form) == [401, 401]
    assert limited(world, 2, form=not first_by_form) == [401, 429]
    right = world.client().post(LOGIN, json={"username": "dev", "password": PASSWORD})
    assert right.status_code == 429  # guessing does not go on unseen
    assert world.client().post(LOGIN, json={"username": "vera", "password": PASSWORD}).status_code == 200
    worlds.close()


def test_successful_logins_are_not_limited(web_redis: str, tmp_path: Path) -> None:
    worlds = make_world(web_redis, tmp_path, login_rate="2 per minute")
    world = next(worlds)
    for _ in range(5):
        assert world.client().post(LOGIN, json={"username": "dev", "password": PASSWORD}).status_code == 200
    worlds.close()


def test_the_limit_holds_in_each_process_when_redis_is_away(tmp_path: Path) -> None:
    from redis import Redis

    now = [0.0]
    redis = Redis.from_url(f"unix://{tmp_path / 'none.sock'}")
    throttle = LoginThrottle(redis, Rate.parse("2 per minute"), clock=lambda: now[0])

    def tries(count: int, user: str = "dev") -> int:
        done = 0
        for _ in range(count):
            try:
                throttle.enter(user, "10.0.0.1")
                done += 1
            except Limited:
                pass
        return done

    assert tries(5) == 2
    assert tries(5, "other") == 2
    now[0] += 61
    assert tries(5) == 2
    redis.close()


@pytest.mark.parametrize(
    ("text", "rate"), [("10 per minute", (10, 60)), ("5/20 second", (5, 20)), ("3 per 2 hours", (3, 7200))]
)
def test_rates(text: str, rate: tuple[int, int]) -> None:
    parsed = Rate.parse(text)
    assert (parsed.count, parsed.seconds) == rate


@pytest.mark.parametrize("text", ["", "ten per minute", "0 per minute", "5 per fortnight", "-1 per minute"])
def test_bad_rates(text: str) -> None:
    with pytest.raises(ValueError, match="CUBE_LOGIN_RATE"):
        Rate.parse(text)


# --- sessions and forged forms ---


def test_the_form_signs_in_and_out(web: World) -> None:
    client = web.client()
    assert client.get("/").headers["Location"] == "/login/"
    reply = client.post(
        "/login/?next=/run/1", data={"username": "vera", "password": PASSWORD, "csrf_token": csrf_of_login(client)}
    )
    assert (reply.status_code, reply.headers["Location"]) == (302, "/run/1")
    cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert client.get("/").status_code == 200
    assert client.get(f"{API}/run/").status_code == 200
    assert client.get("/logout/").status_code == 405  # a link signs nobody out
    assert client.post("/logout/").status_code == 400
    assert client.post("/logout/", data={"csrf_token": csrf_of(client)}).status_code == 302
    assert client.get(f"{API}/run/").status_code == 401


def lang_of(client: FlaskClient, path: str) -> str:
    found = re.search(r'<html lang="([a-z]+)"', client.get(path).get_data(as_text=True))
    assert found is not None
    return found[1]


@pytest.mark.parametrize(("browser", "other"), [("en-US,en", "zh"), ("zh-CN,zh", "en")])
def test_the_language_link_works_signed_out_and_stays(web: World, browser: str, other: str) -> None:
    client = web.client()
    client.environ_base["HTTP_ACCEPT_LANGUAGE"] = browser
    own = browser[:2]
    assert lang_of(client, "/login/") == own
    for wanted in (other, own, other):
        address = re.search(
            rf'href="(/language/{wanted}[^"]*)"', client.get("/login/?next=/run/1").get_data(as_text=True)
        )
        assert address is not None
        reply = client.get(address[1].replace("&amp;", "&"))
        assert (reply.status_code, reply.headers["Location"]) == (302, "/login/?next=/run/1")
        assert "HttpOnly" in reply.headers["Set-Cookie"]
        assert lang_of(client, "/login/") == wanted
    assert client.get("/").status_code == 302  # sent to sign in, which ends a session
    assert lang_of(client, "/login/") == other
    data = {"username": "vera", "password": PASSWORD, "csrf_token": csrf_of_login(client)}
    assert client.post("/login/", data=data).status_code == 302
    assert lang_of(client, "/") == other
    assert lang_of(client, f"/run/{web.run_id}") == other
    client.post("/logout/", data={"csrf_token": csrf_of(client)})
    assert lang_of(client, "/login/") == other


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/run/1?x=1", "/run/1?x=1"),
        ("/login/", "/login/"),
        ("/login/?next=//evil.example", "/login/"),
        ("//evil.example", "/"),
        ("//[", "/"),
        ("https://evil.example/login/", "/"),
        ("/login/../evil", "/"),
        ("", "/"),
    ],
)
def test_the_language_link_leads_back_and_nowhere_else(web: World, wanted: str, place: str) -> None:
    reply = web.client().get("/language/zh", query_string={"next": wanted})
    assert (reply.status_code, reply.headers["Location"]) == (302, place)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flask-AppBuilder's own
def test_the_administrators_pages_speak_the_chosen_language(web: World) -> None:
    client = signed_in(web, "admin")
    for lang, word in (("zh", "用户列表"), ("en", "List Users")):
        client.get(f"/language/{lang}")
        page = client.get("/users/list/").get_data(as_text=True)
        assert word in page
        assert '<a class="to-runs" href="/">' in page


def test_cookies_are_secure_behind_https(web_redis: str, tmp_path: Path) -> None:
    worlds = make_world(web_redis, tmp_path, public_url="https://cube.example.org")
    world = next(worlds)
    reply = world.client().get(
        "/login/", headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "cube.example.org"}
    )
    assert "Secure" in reply.headers["Set-Cookie"]
    assert "Strict-Transport-Security" in reply.headers
    worlds.close()


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/api/v1/me",
        "/logout/",
        "\x01/",
    ],
)
def test_the_form_leads_nowhere_else(web: World, wanted: str) -> None:
    client = web.client()
    reply = client.post(
        "/login/",
        query_string={"next": wanted},
        data={"username": "vera", "password": PASSWORD, "csrf_token": csrf_of_login(client)},
    )
    assert reply.headers["Location"] == "/"


def test_a_form_without_its_token_is_refused(web: World) -> None:
    client = web.client()
    assert client.post("/login/", data={"username": "vera", "password": PASSWORD}).status_code == 400
    assert client.get("/").status_code == 302


def test_a_session_needs_the_csrf_token_for_every_change(web: World) -> None:
    client = signed_in(web, "dev")
    path = f"{API}/pipeline/{web.pipeline_id}/run"
    refused = client.post(path, json={})
    assert (refused.status_code, refused.get_json()["code"]) == (400, "csrf")
    other = signed_in(web, "vera")
    for header in ("X-CSRFToken", "X-CSRF-Token"):
        assert client.post(path, json={}, headers={header: "wrong"}).status_code == 400
        assert client.post(path, json={}, headers={header: csrf_of(other)}).status_code == 400
        assert client.post(path, json={}, headers={header: csrf_of(client)}).status_code == 202


def test_a_bearer_needs_no_csrf_token_even_beside_a_cookie(web: World) -> None:
    client = signed_in(web, "vera")
    path = f"{API}/pipeline/{web.pipeline_id}/run"
    assert client.post(path, json={}, headers=web.bearer("dev")).status_code == 202
    assert client.post(path, json={}, headers={"Authorization": "Bearer nonsense"}).status_code == 401


# --- how it ends ---


def test_disabling_a_user_ends_everything_at_once(own_web: World) -> None:
    client, headers = signed_in(own_web, "dev"), own_web.bearer("dev")
    key = {"Authorization": f"Bearer {make_token(own_web, 'dev')}"}
    assert [
        c.get(f"{API}/me", headers=h).status_code
        for c, h in ((client, {}), (own_web.client(), headers), (own_web.client(), key))
    ] == [200] * 3
    with own_web.platform.database.write() as unit:
        unit.connection.execute(update(USER).where(USER.c.username == "dev").values(active=False))
    assert [
        c.get(f"{API}/me", headers=h).status_code
        for c, h in ((client, {}), (own_web.client(), headers), (own_web.client(), key))
    ] == [401] * 3


def test_a_new_password_ends_sessions_and_logins(own_web: World) -> None:
    client, headers = signed_in(own_web, "dev"), own_web.bearer("dev")
    with own_web.platform.database.write() as unit:
        unit.connection.execute(update(USER).where(USER.c.username == "dev").values(password="scrypt:2:1:1$a$b"))
    assert client.get(f"{API}/me").status_code == 401
    assert own_web.client().get(f"{API}/me", headers=headers).status_code == 401


def test_a_lost_membership_ends_at_once(own_web: World) -> None:
    headers = own_web.bearer("dev")
    path = f"{API}/run/{own_web.run_id}"
    assert own_web.client().get(path, headers=headers).status_code == 200
    reply = own_web.client().delete(f"{API}/project/public/member/dev", headers=own_web.bearer("olga"))
    assert reply.status_code == 204
    assert own_web.client().get(path, headers=headers).status_code == 404


# --- API tokens ---


def make_token(world: World, name: str, **body: object) -> str:
    reply = world.client().post(f"{API}/security/token/", json={"name": "ci", **body}, headers=world.bearer(name))
    assert reply.status_code == 201
    token = reply.get_json()["result"]["token"]
    assert isinstance(token, str)
    return token


def test_the_life_of_an_api_token(own_web: World) -> None:
    token = make_token(own_web, "dev")
    key, client = {"Authorization": f"Bearer {token}"}, own_web.client()
    assert client.get(f"{API}/run/", headers=key).status_code == 200
    assert client.post(f"{API}/pipeline/{own_web.pipeline_id}/run", json={}, headers=key).status_code == 202
    assert client.post(f"{API}/security/token/", json={"name": "more"}, headers=key).status_code == 403
    again = client.post(f"{API}/security/token/", json={"name": "ci"}, headers=own_web.bearer("dev"))
    assert again.status_code == 409
    listed = client.get(f"{API}/security/token/", headers=own_web.bearer("dev")).get_json()["result"]
    assert [(t["name"], t["prefix"]) for t in listed] == [("ci", token[:12])]
    assert token not in str(listed)
    assert listed[0]["last_used_on"] is not None
    with own_web.platform.database.read() as connection:
        assert token not in str(connection.execute(select(API_KEY)).all())
    path = f"{API}/security/token/{listed[0]['id']}"
    assert client.delete(path, headers=own_web.bearer("vera")).status_code == 404
    assert client.delete(path, headers=own_web.bearer("dev")).status_code == 204
    assert client.get(f"{API}/run/", headers=key).status_code == 401
    assert client.delete(path, headers=own_web.bearer("dev")).status_code == 404


def test_an_api_token_expires(own_web: World) -> None:
    key = {"Authorization": f"Bearer {make_token(own_web, 'dev', days=1)}"}
    assert own_web.client().get(f"{API}/me", headers=key).status_code == 200
    with own_web.platform.database.write() as unit:
        unit.connection.execute(update(API_KEY).values(expires_on=func.datetime("now", "-1 second")))
    assert own_web.client().get(f"{API}/me", headers=key).status_code == 401


# --- what is made at the start ---


def test_the_first_admin_has_a_random_password_kept_private(tmp_path: Path) -> None:
    platform = create_platform(Settings(home=tmp_path), ringing=False)
    schema.upgrade(platform.settings.database)
    password = ensure_admin(platform)
    file = tmp_path / "admin-password"
    assert password is not None
    assert len(password) >= 16
    assert file.read_text().strip() == password
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ensure_admin(platform) is None
    assert file.read_text().strip() == password
    platform.database.dispose()


def test_a_given_admin_password_is_written_nowhere(web: World) -> None:
    assert not (web.platform.settings.root / "admin-password").exists()
    reply = web.client().post(LOGIN, json={"username": "admin", "password": ADMIN_PASSWORD})
    assert reply.status_code == 200


def test_the_secret_key_is_made_once(tmp_path: Path) -> None:
    key = load_secret_key(tmp_path)
    assert load_secret_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
    assert load_secret_key(tmp_path, "g" * 40) == "g" * 40
    with pytest.raises(ValueError, match="CUBE_SECRET_KEY"):
        load_secret_key(tmp_path, "short")


def test_permissions_are_synchronised_once(own_web: World) -> None:
    assert sync_permissions(own_web.app) is False


def test_a_user_with_the_role_user_changes_their_own_password(own_web: World) -> None:
    with own_web.platform.database.write() as unit:
        unit.connection.execute(
            text("INSERT INTO ab_user_role (user_id, role_id) SELECT :user, id FROM ab_role WHERE name = 'User'"),
            {"user": own_web.people.ids["vera"]},
        )
    client = signed_in(own_web, "vera")
    page = client.get("/resetmypassword/form")
    assert page.status_code == 200
    token = re.search(r'name="csrf_token"[^>]* value="([^"]+)"', page.get_data(as_text=True))
    assert token is not None
    for new, works in (("short", False), ("a-much-longer-word", True)):
        client.post("/resetmypassword/form", data={"password": new, "conf_password": new, "csrf_token": token[1]})
        reply = own_web.client().post(LOGIN, json={"username": "vera", "password": new})
        assert (reply.status_code == 200) is works
    assert client.get(f"{API}/me").status_code == 401
    assert signed_in(own_web, "vera").get("/users/list/").status_code == 403
