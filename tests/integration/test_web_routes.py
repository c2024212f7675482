"""Every route there is, asked by everybody: nothing is open that does not say so, nothing of another project shown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from myapp.domain.permissions import ROLE_PERMISSIONS, Permission, Role
from myapp.security.identity import password_stamp
from myapp.security.manager import open_session
from myapp.views.access import FAB_ROUTES
from myapp.views.http import Route, declared_on
from tests.integration.web_fixtures import World, document, job

# Routes of Flask-AppBuilder that exist and are refused.
FAB_REFUSED = {"LocaleView.index", "UserDBModelView.download", "RoleModelView.download", "UserGroupModelView.download"}
PUBLIC = {
    "api.get_openapi",
    "api.login",
    "site.health",
    "site.ready",
    "site.choose_language",
    "site.favicon",
    "SignInView.login",
    "static",
    "appbuilder.static",
}
TEMPLATE = {
    "apiVersion": "cube-studio.io/v1alpha1",
    "kind": "JobTemplate",
    "metadata": {"name": "mine", "project": "public"},
    "spec": {"framework": "shell", "job": {"command": ["/bin/true"]}},
}
BODIES: dict[str, Any] = {
    "post_pipeline": document("intruder"),
    "put_pipeline": document(),
    "post_pipeline_validate": document(),
    "post_job": job(),
    "post_job_template": TEMPLATE,
    "put_member": {"role": "owner"},
    "post_project": {"slug": "mine"},
    "put_schedule": {"cron": "0 2 * * *"},
    "post_token": {"name": "t"},
    "login": {"username": "x", "password": "y"},
}
MAKES_OWN = {"post_token", "login"}  # nothing of a project


def calls(world: World) -> Iterator[tuple[str, str, str, Route | None]]:
    """(endpoint, method, path, declaration) of every rule and method."""
    values = {
        "run_id": str(world.run_id),
        "pipeline_id": str(world.pipeline_id),
        "number": "1",
        "key": "load",
        "path": "page.html",
        "slug": "public",
        "username": "vera",
        "token_id": "none",
        "name": "shell",
        "lang": "zh",
        "pk": "1",
        "filename": "x",
        "locale": "zh",
        "group_by": "x",
    }
    for rule in world.app.url_map.iter_rules():
        path = re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", lambda match: values[match[1]], rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield rule.endpoint, method, path, declared_on(world.app.view_functions[rule.endpoint])


def ask(client: FlaskClient, endpoint: str, method: str, path: str, headers: dict[str, str]) -> TestResponse:
    body = BODIES.get(endpoint.rpartition(".")[2])
    headers = {**headers, "If-Match": "*"} if method == "PUT" else headers
    return client.open(
        path, method=method, headers=headers, buffered=True, **({"json": body} if body is not None else {})
    )


def test_every_route_declares_a_permission(web: World) -> None:
    undeclared = {e for e, _, _, declared in calls(web) if declared is None and e not in FAB_ROUTES}
    assert undeclared == FAB_REFUSED


def test_public_routes_are_the_ones_we_mean(web: World) -> None:
    public = {
        e
        for e, _, _, declared in calls(web)
        if (declared.permission if declared else FAB_ROUTES.get(e)) is Permission.PUBLIC
    }
    assert public == PUBLIC


def test_the_list_of_fab_routes_has_no_dead_entries(web: World) -> None:
    assert set(FAB_ROUTES) <= set(web.app.view_functions)


def test_a_route_without_a_declaration_is_refused(own_web: World) -> None:
    own_web.app.add_url_rule("/forgotten", endpoint="forgotten", view_func=lambda: "open")
    client = own_web.client()
    for headers in ({}, own_web.bearer("admin")):
        assert client.get("/forgotten", headers=headers).status_code == 404


def _expired(world: World) -> dict[str, str]:
    tokens = world.app.extensions["cube"].access_tokens
    stamp = _stamp(world, "olga")
    return {"Authorization": f"Bearer {tokens.issue(world.people.ids['olga'], stamp, now=time.time() - 10**6)}"}


def _disabled(world: World) -> dict[str, str]:
    tokens = world.app.extensions["cube"].access_tokens
    return {"Authorization": f"Bearer {tokens.issue(world.people.ids['dora'], _stamp(world, 'dora'), now=time.time())}"}


def _stamp(world: World, name: str) -> str:
    from sqlalchemy import select

    from myapp.security.tables import USER

    with world.platform.database.read() as connection:
        return password_stamp(connection.execute(select(USER.c.password).where(USER.c.username == name)).scalar_one())


def test_strangers_get_nothing(web: World) -> None:
    """No credential, an expired one, one of a disabled user, nonsense: 401, or the way to the sign-in page."""
    strangers: dict[str, dict[str, str]] = {
        "anonymous": {},
        "expired": _expired(web),
        "disabled": _disabled(web),
        "nonsense": {"Authorization": "Bearer a.b.c"},
        "unknown token": {"Authorization": "Bearer sst_" + "x" * 43},
        "basic": {"Authorization": "Basic YWRtaW46YWRtaW4="},
    }
    wrong = []
    for endpoint, method, path, declared in calls(web):
        if endpoint in PUBLIC or endpoint in FAB_REFUSED:
            continue
        for who, headers in strangers.items():
            reply = ask(web.client(), endpoint, method, path, headers)
            to_login = reply.status_code == 302 and reply.headers["Location"].startswith("/login/")
            is_page = declared is None or declared.page
            if reply.status_code != 401 and not (is_page and to_login and who == "anonymous"):
                wrong.append((who, method, path, reply.status_code))
    assert wrong == []


@pytest.mark.parametrize(("name", "role"), [("vera", Role.VIEWER), ("otto", None), ("nobody", None)])
def test_nobody_does_what_their_role_does_not_allow(web: World, name: str, role: Role | None) -> None:
    """vera may look at public, otto belongs to another project, nobody to none."""
    allowed = ROLE_PERMISSIONS[role] if role else frozenset()
    headers, wrong = web.bearer(name), []
    for endpoint, method, path, declared in calls(web):
        if declared is None or declared.page or not declared.permission.startswith(("project:", "site:")):
            continue
        reply = ask(web.client(), endpoint, method, path, headers)
        about_a_row = "<" in str(next(r.rule for r in web.app.url_map.iter_rules() if r.endpoint == endpoint))
        if declared.permission in allowed:
            fine = reply.status_code < 400 or (reply.status_code == 404 and "schedule" in path)
        elif method == "GET" and not about_a_row and declared.permission.startswith("project:"):
            fine = reply.status_code == 200 and web_free(reply)
        else:
            fine = reply.status_code in (403, 404)
        if not fine:
            wrong.append((method, path, reply.status_code, reply.get_data(as_text=True)[:200]))
    assert wrong == []


def web_free(reply: TestResponse) -> bool:
    """A list in which nothing is of the project `public`."""
    return all(row.get("project", row.get("slug")) != "public" for row in reply.get_json()["result"])


@pytest.mark.parametrize("name", ["olga", "vera", "otto"])
def test_the_administrators_pages_are_for_administrators(web: World, name: str) -> None:
    client = signed_in(web, name)
    wrong = []
    for endpoint, permission in FAB_ROUTES.items():
        if permission is not Permission.USER_MANAGE:
            continue
        for _, method, path, _ in (c for c in calls(web) if c[0] == endpoint):
            reply = client.open(path, method=method, headers={"X-CSRFToken": csrf_of(client)})
            if reply.status_code != 403:
                wrong.append((method, path, reply.status_code))
    assert wrong == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flask-AppBuilder's own
@pytest.mark.parametrize("path", ["/users/list/", "/users/add", "/users/show/1", "/roles/list/", "/groups/list/"])
def test_an_administrator_sees_the_administrators_pages(web: World, path: str) -> None:
    reply = signed_in(web, "admin").get(path)
    assert reply.status_code == 200
    policy = reply.headers["Content-Security-Policy"]
    script = next(part for part in policy.split(";") if "script-src" in part)
    assert "'unsafe-inline'" not in script
    nonce = re.search(r"'nonce-([^']+)'", script)
    assert nonce is not None
    assert all(f'nonce="{nonce[1]}"' in tag for tag in re.findall(r"<script[^>]*>", reply.get_data(as_text=True)))


def test_another_projects_rows_are_not_found(web: World) -> None:
    headers = web.bearer("dev")
    for path in (
        f"/run/{web.foreign_id}",
        f"/run/{web.foreign_id}/events",
        f"/run/{web.foreign_id}/task/hello/log",
        "/project/other",
    ):
        assert web.client().get(f"/api/v1{path}", headers=headers).status_code == 404, path
    for path in (f"/run/{web.foreign_id}/cancel", f"/run/{web.foreign_id}/retry"):
        assert web.client().post(f"/api/v1{path}", headers=headers, json={}).status_code == 404, path
    listed = web.client().get("/api/v1/run/?page_size=500", headers=headers).get_json()["result"]
    assert web.foreign_id not in [row["id"] for row in listed]
    assert web.run_id in [row["id"] for row in listed]


@pytest.mark.parametrize("path", ["/nonsense", "/run/999999", "/run/x", "/static/nosuch.js"])
@pytest.mark.parametrize(
    ("lang", "title"),
    [("en", ("There is no such page", "This run was not found")), ("zh", ("页面不存在", "未找到此运行"))],
)
def test_a_browser_is_told_in_a_page_what_is_not_there(
    web: World, path: str, lang: str, title: tuple[str, str]
) -> None:
    headers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Language": lang}
    for client in (web.client(), signed_in(web, "vera")):
        reply = client.get(path, headers=headers)
        if path == "/run/999999" and reply.status_code == 302:
            continue  # signed out: sign in first
        text = reply.get_data(as_text=True)
        assert (reply.status_code, reply.mimetype) == (404, "text/html")
        assert f'<html lang="{lang}">' in text
        assert f"<h1>{title[path == '/run/999999']}</h1>" in text
        assert 'href="/"' in text
        assert "/language/" in text
        assert "`" not in text
        assert "/api/" not in text
        assert "unsafe-inline" not in reply.headers["Content-Security-Policy"]
    assert "vera" in text


def test_another_projects_run_has_no_page(web: World) -> None:
    assert signed_in(web, "vera").get(f"/run/{web.foreign_id}").status_code == 404
    assert signed_in(web, "vera").get(f"/run/{web.run_id}").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v1/run/999999"])
def test_the_api_answers_a_browser_in_json(web: World, path: str) -> None:
    reply = signed_in(web, "vera").get(path, headers={"Accept": "text/html"})
    assert (reply.status_code, reply.mimetype) == (404, "application/json")
    assert reply.get_json()["resolution"]


def test_the_icon_may_be_shown_anywhere(web: World) -> None:
    reply = web.client().get("/favicon.ico", buffered=True)
    assert (reply.status_code, reply.mimetype) == (200, "image/svg+xml")
    assert reply.headers["Cross-Origin-Resource-Policy"] == "cross-origin"


def signed_in(world: World, name: str) -> FlaskClient:
    """A browser with a session."""
    client = world.client()
    user_id = 1 if name == "admin" else world.people.ids[name]
    with world.app.test_request_context():
        stamp = _stamp(world, name)
        open_session(user_id, stamp)
    with client.session_transaction() as session:
        session["_user_id"], session["_fresh"], session["stamp"] = str(user_id), True, stamp
    return client


def csrf_of(client: FlaskClient) -> str:
    page = client.get("/").get_data(as_text=True)
    found = re.search(r'name="csrf-token" content="([^"]+)"', page)
    assert found is not None
    return found[1]
