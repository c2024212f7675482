"""What no client should send: each a clear 4xx that names what is wrong, none a 500, none leaves anything behind."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest
from sqlalchemy import func, select

from myapp.domain.permissions import Permission
from myapp.models import Pipeline, Run
from myapp.views.http import Route, declare
from tests.integration.web_fixtures import API, World, document, job

YAML = "application/yaml"
JSON = "application/json"
DEEP_JSON = b'{"apiVersion":' + b"[" * 3000 + b"]" * 3000 + b"}"
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
CYCLE = "apiVersion: cube-studio.io/v1alpha1\nkind: Pipeline\nmetadata: &m {name: x, labels: *m}\nspec: {tasks: []}\n"


def wide(count: int) -> bytes:
    tasks = [{"name": f"t{i}", "template": "shell", "args": {"command": "true"}} for i in range(count)]
    return orjson.dumps({**document("wide"), "spec": {"tasks": tasks}})


def changed(path: str, value: Any) -> bytes:
    data: Any = document("odd")
    steps = path.split(".")
    here = data
    for step in steps[:-1]:
        here = here[int(step)] if step.isdigit() else here[step]
    here[int(steps[-1]) if steps[-1].isdigit() else steps[-1]] = value
    return orjson.dumps(data)


DOCUMENTS: dict[str, tuple[str | None, bytes, set[int]]] = {
    "nothing": (JSON, b"", {422}),
    "blank": (YAML, b"  \n", {422}),
    "no content type": (None, b"{}", {415}),
    "a form": ("application/x-www-form-urlencoded", b"a=b", {415}),
    "xml": ("text/xml", b"<a/>", {415}),
    "broken json": (JSON, b'{"a":', {422}),
    "not utf-8 json": (JSON, b'{"a": "\xff"}', {422}),
    "lone surrogate": (JSON, b'{"a": "\\ud800"}', {422}),
    "nan": (JSON, b'{"a": NaN}', {422}),
    "a list": (JSON, b"[]", {422}),
    "a number": (JSON, b"7", {422}),
    "null": (JSON, b"null", {422}),
    "deep json": (JSON, DEEP_JSON, {422}),
    "nul in json": (JSON, changed("metadata.title", "a\0b"), {422}),
    "nul in a key": (JSON, b'{"a\\u0000": 1}', {422}),
    "huge number": (JSON, changed("spec.timeout", 10**18), {422}),
    "negative timeout": (JSON, changed("spec.timeout", -1), {422}),
    "broken yaml": (YAML, b"a: [1, 2", {422}),
    "not utf-8 yaml": (YAML, b"a: \xff", {422}),
    "yaml bomb": (YAML, BOMB.encode(), {422}),
    "yaml cycle": (YAML, CYCLE.encode(), {422}),
    "yaml python tag": (YAML, b"!!python/object/apply:os.system ['id']", {422}),
    "yaml set tag": (YAML, b"a: !!set {b, c}", {422}),
    "yaml merge of nothing": (YAML, b"<<: 1", {422}),
    "deep yaml": (YAML, b"[" * 5000, {422}),
    "two documents": (YAML, b"a: 1\n---\na: 2\n", {422}),
    "duplicate keys": (YAML, b"a: 1\na: 2\n", {422}),
    "unknown field": (JSON, changed("spec.taskz", []), {422}),
    "wrong type": (JSON, changed("spec.tasks", "load"), {422}),
    "unknown template": (JSON, changed("spec.tasks.0.template", "sehll"), {422}),
    "traversal in a name": (JSON, changed("metadata.name", "../../etc/passwd"), {422}),
    "traversal in a task": (JSON, changed("spec.tasks.0.name", "../x"), {422}),
    "traversal in a project": (JSON, changed("metadata.project", "../x"), {422}),
    "a project that is not": (JSON, changed("metadata.project", "nosuch"), {404}),
    "another's project": (JSON, changed("metadata.project", "other"), {404}),
    "python in a template": (JSON, changed("spec.tasks.0.args.command", "{{ ''.__class__.__mro__ }}"), {422}),
    "a call in a template": (JSON, changed("spec.tasks.0.args.command", "{{ params.seed.__init__() }}"), {422}),
    "a secret in a template": (JSON, changed("spec.tasks.0.args.command", "{{ env.CUBE_SECRET_KEY }}"), {422}),
    "a cycle": (JSON, changed("spec.tasks.0.dependsOn", ["train"]), {422}),
    "a pattern that never ends": (
        JSON,
        changed("spec.params", [{"name": "p", "type": "str", "pattern": "(a+)+$", "default": "a" * 40 + "!"}]),
        {422},
    ),
    "ten thousand and one tasks": (JSON, wide(10_001), {422}),
    "an AIJob": (JSON, orjson.dumps(job()), {422}),
    "too large": (JSON, b'"' + b"x" * (6 * 1024 * 1024) + b'"', {413}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bad_documents(web: World, name: str) -> None:
    kind, body, statuses = DOCUMENTS[name]
    before = rows(web)
    headers = {**web.bearer("dev"), **({"Content-Type": kind} if kind else {})}
    reply = web.client().post(f"{API}/pipeline/", data=body, headers=headers)
    assert reply.status_code in statuses, reply.get_data(as_text=True)[:500]
    answer = reply.get_json()
    assert set(answer) == {"code", "message", "detail", "resolution"}
    assert answer["message"]
    assert "Traceback" not in str(answer)
    assert rows(web) == before


def rows(world: World) -> tuple[int, int]:
    with world.platform.database.read() as connection:
        return (
            connection.execute(select(func.count()).select_from(Pipeline)).scalar_one(),
            connection.execute(select(func.count()).select_from(Run)).scalar_one(),
        )


def test_a_problem_in_yaml_names_its_line(web: World) -> None:
    text = (
        "apiVersion: cube-studio.io/v1alpha1\nkind: Pipeline\nmetadata: {name: x}\nspec:\n  tasks:\n"
        "    - name: one\n      template: shell\n      args: {command: 'true'}\n      dependOn: []\n"
    )
    reply = web.client().post(f"{API}/pipeline/", data=text, headers={**web.bearer("dev"), "Content-Type": YAML})
    problem = reply.get_json()["detail"][0]
    assert (problem["field"], problem["line"]) == ("spec.tasks[0].dependOn", 9)
    assert "dependsOn" in problem["resolution"]


def test_every_problem_is_told_at_once(web: World) -> None:
    data = document("bad")
    data["spec"]["tasks"][0]["template"] = "sehll"
    data["spec"]["tasks"][1]["dependsOn"] = ["nosuch"]
    reply = web.client().post(f"{API}/pipeline/validate", json=data, headers=web.bearer("vera"))
    assert reply.status_code == 200
    result = reply.get_json()["result"]
    assert result["valid"] is False
    assert {p["node"] for p in result["problems"]} == {"load", "train"}


QUERIES = [
    ("/run/?page=-1", 422),
    ("/run/?page=1.5", 422),
    ("/run/?page=1e3", 422),
    ("/run/?page_size=0", 422),
    ("/run/?page_size=100000", 422),
    ("/run/?page=99999999999999999999", 422),
    ("/run/?phase=nosuch", 422),
    ("/run/?nosuch=1", 422),
    ("/run/?page=1&page=2", 422),
    ("/run/?phase=run%00ning", 422),
    ("/run/?before=x", 422),
    ("/run/?q=((((", 422),
    ("/run/?q=!!", 422),
    ("/run/?q=(filters:!((col:phase,opr:gt,value:a)))", 422),
    ("/run/?q=(filters:x)", 422),
    ("/run/?q=(columns:!(id))", 422),
    ("/run/?q=" + "(" * 3000, 422),
    ("/run/?q=(order_column:name)", 422),
    ("/run/0", 404),
    ("/run/-1", 404),
    ("/run/1%00", 404),
    ("/run/01", 404),
    ("/run/9223372036854775808", 404),
    ("/run/999999999999999999", 404),
    ("/run/abc", 404),
    ("//run/", 404),
    ("/run/1/task/..%2f..%2fetc/log", 404),
    ("/run/1/task/nosuch/log", 404),
    ("/run/1/task/load/log?rank=-1", 422),
    ("/run/1/task/load/log?offset=99999999999999999999", 422),
    ("/run/1/task/load/log?limit=1", 422),
    ("/run/1/task/load/log?attempt=0", 422),
    ("/run/1/task/load/log?attempt=7", 404),
    ("/run/1/events?after=-1", 422),
    ("/pipeline/1/version/99", 404),
    ("/pipeline/1/version/x", 404),
    ("/pipeline/?contains=%25", 200),
    ("/job_template/nosuch", 404),
    ("/project/..", 404),
    ("/project/%2e%2e%2f", 404),
    ("/nosuch", 404),
    ("/run/?q=(page:0,page_size:1,filters:!((col:phase,opr:eq,value:succeeded)))", 200),
    ("/run?q=", 200),
    ("/run/1/task/load/log?offset=-5", 200),
    ("/pipeline/1/schedule/next?count=0", 422),
]


@pytest.mark.parametrize(("path", "status"), QUERIES)
def test_odd_addresses(web: World, path: str, status: int) -> None:
    reply = web.client().get(API + path, headers=web.bearer("dev"))
    assert reply.status_code == status, reply.get_data(as_text=True)[:300]
    if status >= 400:
        assert set(reply.get_json()) == {"code", "message", "detail", "resolution"}


BODIES: list[tuple[str, str, Any, int]] = [
    ("POST", "/pipeline/1/run", {"params": {"seed": "x"}}, 422),
    ("POST", "/pipeline/1/run", {"params": {"seed": 101}}, 422),
    ("POST", "/pipeline/1/run", {"params": {"sede": 1}}, 422),
    ("POST", "/pipeline/1/run", {"params": []}, 422),
    ("POST", "/pipeline/1/run", {"param": {}}, 422),
    ("POST", "/pipeline/1/run", {"version": 10**30}, 422),
    ("POST", "/pipeline/1/run", {"version": 77}, 404),
    ("POST", "/pipeline/1/run", {"priority": "urgent"}, 422),
    ("POST", "/pipeline/1/run", [], 422),
    ("POST", "/pipeline/999/run", {}, 404),
    ("POST", "/run/999/cancel", {}, 404),
    ("POST", "/run/1/retry", {}, 409),
    ("POST", "/run/3/cancel", {}, 409),
    ("POST", "/run/3/retry", {"mode": "failed"}, 409),
    ("POST", "/run/3/retry", {"mode": "some"}, 422),
    ("POST", "/run/3/retry", {"mode": "failed", "params": {"seed": 1}}, 422),
    ("POST", "/run/3/cancel", {"reason": "x" * 501}, 422),
    ("POST", "/run/3/cancel", {"reason": "a\0"}, 422),
    ("PUT", "/pipeline/1/schedule", {"cron": "every day"}, 422),
    ("PUT", "/pipeline/1/schedule", {"cron": "0 0 31 2 *"}, 422),
    ("PUT", "/pipeline/1/schedule", {"cron": "0 2 * * *", "timezone": "../etc/passwd"}, 422),
    ("PUT", "/pipeline/1/schedule", {"cron": "0 2 * * *", "params": {"seed": 999}}, 422),
    ("POST", "/pipeline/1/schedule/pause", None, 404),
    ("DELETE", "/pipeline/1/schedule", None, 404),
    ("PUT", "/project/public/member/vera", {"role": "king"}, 422),
    ("PUT", "/project/public/member/nosuch", {"role": "dev"}, 404),
    ("DELETE", "/project/public/member/olga", None, 409),
    ("POST", "/security/token/", {"name": ""}, 422),
    ("POST", "/security/token/", {"name": "a\nb"}, 422),
    ("POST", "/security/token/", {"name": "x", "days": -1}, 422),
    ("POST", "/security/token/", {"name": "x", "days": 1e300}, 422),
    ("POST", "/run/", {}, 405),
    ("PATCH", "/run/1", {}, 405),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), BODIES)
def test_odd_bodies(web: World, method: str, path: str, body: Any, status: int) -> None:
    sent = {} if body is None else {"json": body}
    reply = web.client().open(API + path, method=method, headers=web.bearer("olga"), **sent)
    assert reply.status_code == status, reply.get_data(as_text=True)[:300]
    assert set(reply.get_json()) == {"code", "message", "detail", "resolution"}


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 129, "\x7f", "ü"])
def test_bad_idempotency_keys(web: World, key: str) -> None:
    headers = {**web.bearer("dev"), "Idempotency-Key": key}
    assert web.client().post(f"{API}/pipeline/1/run", json={}, headers=headers).status_code == 422


def test_the_same_key_is_the_same_run(web: World) -> None:
    headers = {**web.bearer("dev"), "Idempotency-Key": "nightly-7"}
    replies = [web.client().post(f"{API}/pipeline/1/run", json={}, headers=headers) for _ in range(3)]
    assert [r.status_code for r in replies] == [202] * 3
    assert len({r.get_json()["id"] for r in replies}) == 1
    assert [r.get_json()["created"] for r in replies] == [True, False, False]
    other = web.client().post(f"{API}/pipeline/1/run", json={"params": {"seed": 5}}, headers=headers)
    assert other.status_code == 409


def test_a_submit_without_a_trailing_slash_is_not_redirected(web: World) -> None:
    for path in ("/job", "/job/"):
        assert web.client().post(API + path, json=job(), headers=web.bearer("dev")).status_code == 202


def test_etags(web: World) -> None:
    client, headers = web.client(), web.bearer("dev")
    made = client.post(f"{API}/pipeline/", json=document("etag"), headers=headers)
    assert made.status_code == 201
    path = made.headers["Location"]
    tag = client.get(path, headers=headers).headers["ETag"]
    assert client.get(path, headers={**headers, "If-None-Match": tag}).status_code == 304
    newer = document("etag", command="echo changed")
    assert client.put(path, json=newer, headers=headers).status_code == 428
    saved = client.put(path, json=newer, headers={**headers, "If-Match": tag})
    assert (saved.status_code, saved.get_json()["version"]) == (200, 2)
    assert client.put(path, json=document("etag"), headers={**headers, "If-Match": tag}).status_code == 412
    assert (
        client.put(path, json=document("other"), headers={**headers, "If-Match": saved.headers["ETag"]}).status_code
        == 409
    )
    assert client.put(path, json=document("etag"), headers={**headers, "If-Match": "soon"}).status_code == 422
    assert client.delete(path, headers=headers).status_code == 204
    assert client.get(path, headers=headers).status_code == 404


def test_a_database_that_is_away_is_503(own_web: World) -> None:
    headers = own_web.bearer("dev")
    database, file = own_web.platform.database, own_web.platform.settings.root / "cube.db"
    database.dispose()
    for part in file.parent.glob("cube.db*"):
        part.unlink()
    file.mkdir()
    for path in ("/run/", "/me"):
        reply = own_web.client().get(API + path, headers=headers)
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
        assert "cube.db" not in reply.get_data(as_text=True)
    assert own_web.client().get("/ready").get_json()["database"] == "away"
    assert own_web.client().get("/health").status_code == 200


def test_a_bug_is_a_500_that_says_nothing_but_its_number(own_web: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise KeyError("a secret detail")

    declare(broken, Route(Permission.SELF))
    own_web.app.add_url_rule(f"{API}/broken", endpoint="broken", view_func=broken)
    with caplog.at_level(logging.ERROR):
        reply = own_web.client().get(f"{API}/broken", headers=own_web.bearer("dev"))
    assert reply.status_code == 500
    incident = reply.get_json()["detail"]["incident"]
    assert "secret detail" not in reply.get_data(as_text=True)
    assert incident in caplog.text
    assert "a secret detail" in caplog.text


def test_headers_of_every_kind_of_reply(web: World) -> None:
    paths = ("/login/", "/health", f"{API}/run/", f"{API}/nosuch", "/nosuch", "/static/cube/style.css", f"{API}/me")
    for path in paths:
        reply = web.client().get(path, headers=web.bearer("dev"), buffered=True)
        assert reply.headers["X-Content-Type-Options"] == "nosniff", path
        assert reply.headers["X-Frame-Options"] == "DENY", path
        assert reply.headers["Referrer-Policy"] == "same-origin", path
        assert "unsafe" not in reply.headers["Content-Security-Policy"], path
