"""A run as a client follows it: its events, its logs, its artifacts; from a real server where sockets matter."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import insert, select, update

from myapp.domain.permissions import PLATFORM
from myapp.models import Attempt, Run, Schedule, Transition
from myapp.services.save_schedule import save_schedule
from myapp.services.submit_job import submit_job
from myapp.services.submit_run import submit_run
from myapp.utils.clock import iso
from myapp.views.streams import Streams
from myapp.views.words import LANGUAGES, reasons, words
from tests.integration.web_fixtures import API, World, job


def add_event(world: World, run_id: int, seq: int, source: str, target: str) -> None:
    with world.platform.database.write() as unit:
        unit.connection.execute(
            insert(Transition),
            {
                "entity": "run",
                "entity_id": run_id,
                "seq": seq,
                "run_id": run_id,
                "run_seq": seq,
                "from_phase": source,
                "to_phase": target,
                "actor": "engine",
                "at": time.time(),
            },
        )
        unit.connection.execute(update(Run).where(Run.id == run_id).values(phase=target, event_seq=seq, version=seq))
    world.platform.bell.moved({run_id: seq})


def parsed(text: str) -> list[tuple[str, str, Any]]:
    """(id, event, data) of every event in a stream's text."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def test_the_events_of_an_ended_run(own_web: World) -> None:
    run_id, path = own_web.waiting_id, f"{API}/run/{own_web.waiting_id}/events"
    add_event(own_web, run_id, 1, "queued", "running")
    add_event(own_web, run_id, 2, "running", "failed")
    headers = own_web.bearer("vera")

    def ask(query: str = "", **more: str) -> list[tuple[str, str]]:
        reply = own_web.client().get(path + query, headers={**headers, **more}, buffered=True)
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        return [(cursor, event) for cursor, event, _ in parsed(reply.get_data(as_text=True))]

    whole = [("1", "transition"), ("2", "transition"), ("2", "end")]
    assert ask() == whole
    assert ask("?after=0") == whole
    assert ask("?after=1") == whole[1:]
    assert ask("", **{"Last-Event-ID": "1"}) == whole[1:]
    assert ask("?after=0", **{"Last-Event-ID": "2"}) == whole[2:]
    assert own_web.client().get(path, headers={**headers, "Last-Event-ID": "x"}).status_code == 422
    assert len(own_web.app.extensions["cube"].streams) == 0


def test_head_of_a_stream_holds_nothing(own_web: World) -> None:
    reply = own_web.client().head(
        f"{API}/run/{own_web.waiting_id}/events", headers=own_web.bearer("vera"), buffered=True
    )
    assert reply.status_code == 200
    assert len(own_web.app.extensions["cube"].streams) == 0


# --- a real server ---


SERVE = (
    "from myapp.composition import create_platform; from myapp.config import load_settings; "
    "from myapp.views.server import serve; serve(create_platform(load_settings(), durable=False))"
)


class Served:
    """The web server in a process of its own."""

    def __init__(self, world: World) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = world.platform.settings
        environment = {
            **os.environ,
            "CUBE_HOME": str(settings.home),
            "CUBE_REDIS_URL": settings.redis_url,
            "CUBE_PORT": str(self.port),
            "CUBE_WEB_THREADS": "6",
        }
        self.process = subprocess.Popen([sys.executable, "-c", SERVE], env=environment)
        self.followers: list[Follower] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def follow(self, path: str, headers: dict[str, str]) -> Follower:
        self.followers.append(Follower(self, path, headers))
        return self.followers[-1]

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def served(own_web: World) -> Iterator[Served]:
    server = Served(own_web)
    yield server
    server.stop()
    for follower in server.followers:
        follower.close()


class Follower(threading.Thread):
    """Reads a stream until it ends."""

    def __init__(self, served: Served, path: str, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.connection = served.connect()
        self.connection.request("GET", path, headers=headers)
        self.reply = self.connection.getresponse()
        self.text = ""
        self.start()

    def run(self) -> None:
        try:
            while piece := self.reply.read1(65536):
                self.text += piece.decode()
        except (OSError, http.client.HTTPException, AttributeError, ValueError):
            pass

    def close(self) -> None:
        if self.connection.sock is not None:
            with contextlib.suppress(OSError):
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(10)
        self.reply.close()
        self.connection.close()

    def until(self, wanted: str) -> None:
        deadline = time.monotonic() + 20
        while wanted not in self.text and time.monotonic() < deadline:
            time.sleep(0.01)
        assert wanted in self.text


def test_a_stream_follows_a_run_to_its_end(own_web: World, served: Served) -> None:
    run_id, headers = own_web.waiting_id, own_web.bearer("dev")
    follower = served.follow(f"{API}/run/{run_id}/events", headers)
    assert follower.reply.status == 200
    follower.until("retry:")
    add_event(own_web, run_id, 1, "queued", "running")
    follower.until('"to":"running"')
    add_event(own_web, run_id, 2, "running", "succeeded")
    follower.join(20)
    assert [(cursor, kind) for cursor, kind, _ in parsed(follower.text)] == [
        ("1", "transition"),
        ("2", "transition"),
        ("2", "end"),
    ]


def test_streams_are_bounded_and_given_back(own_web: World, served: Served) -> None:
    path = f"{API}/run/{own_web.waiting_id}/events"
    mine = [served.follow(path, own_web.bearer("dev")) for _ in range(2)]  # 4 in all, 2 of one user
    assert [f.reply.status for f in mine] == [200, 200]
    refused = served.follow(path, own_web.bearer("dev"))
    assert (refused.reply.status, refused.reply.headers["Retry-After"]) == (503, "10")
    other = served.follow(path, own_web.bearer("vera"))
    assert other.reply.status == 200
    for follower in mine:
        follower.close()
    deadline, status = time.monotonic() + 40, 503
    while status == 503 and time.monotonic() < deadline:  # noticed at the next keep-alive
        time.sleep(0.5)
        status = served.follow(path, own_web.bearer("dev")).reply.status
    assert status == 200


def test_a_stream_ends_when_its_user_may_no_longer_look(own_web: World, served: Served) -> None:
    follower = served.follow(f"{API}/run/{own_web.waiting_id}/events", own_web.bearer("vera"))
    follower.until("retry:")
    reply = own_web.client().delete(f"{API}/project/public/member/vera", headers=own_web.bearer("olga"))
    assert reply.status_code == 204
    follower.join(30)
    assert not follower.is_alive()


def test_the_server_stops_in_order_with_streams_open(own_web: World, served: Served) -> None:
    follower = served.follow(f"{API}/run/{own_web.waiting_id}/events", own_web.bearer("vera"))
    follower.until("retry:")
    assert served.stop() == 0
    follower.join(10)
    assert not follower.is_alive()


def test_a_kept_connection_answers_again_and_again(own_web: World, served: Served) -> None:
    connection, headers = served.connect(), own_web.bearer("vera")
    for _ in range(30):
        connection.request("GET", f"{API}/run/?page_size=50", headers=headers)
        reply = connection.getresponse()
        assert (reply.status, reply.will_close) == (200, False)
        assert json.loads(reply.read())["count"] >= 1
    server = reply.headers["Server"]
    assert not any(c.isdigit() for c in server)
    connection.close()


def test_a_body_without_a_length_is_bounded_too(own_web: World, served: Served) -> None:
    connection = served.connect()

    def pieces() -> Iterator[bytes]:
        for _ in range(6 * 16):
            yield b" " * 65536

    headers = {**own_web.bearer("dev"), "Content-Type": "application/json"}
    try:
        connection.request("POST", f"{API}/job/", body=pieces(), headers=headers, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_who_sends_far_too_much_gets_to_read_the_answer(own_web: World, served: Served, chunked: bool) -> None:
    connection, data = served.connect(), b" " * 10_000_000
    headers = {**own_web.bearer("dev"), "Content-Type": "application/yaml"}
    connection.request("POST", f"{API}/pipeline/", body=iter([data]) if chunked else data, headers=headers)
    reply = connection.getresponse()
    assert (reply.status, json.load(reply)["code"]) == (413, "too_large")
    connection.close()


BROKEN_BODY = b"POST /api/v1/security/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("body", [b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", b'Content-Length: 500\r\n\r\n{"a"'])
def test_a_body_that_is_not_http_is_the_client_s_fault(served: Served, body: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(BROKEN_BODY + body)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_half_a_document_is_not_taken_for_a_whole_one(own_web: World, served: Served) -> None:
    whole = json.dumps({"slug": "half"}).encode()
    head = f"POST {API}/project/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
    bearer = own_web.bearer("admin")["Authorization"]
    head += f"Authorization: {bearer}\r\nContent-Length: {len(whole) + 9}\r\n".encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(head + b"\r\n" + whole)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert own_web.client().get(f"{API}/project/half", headers=own_web.bearer("admin")).status_code == 404


def test_clients_that_never_finish_do_not_keep_others_from_being_answered(served: Served) -> None:
    """They are more than there are threads: without the cut-off nobody would be answered again."""
    with contextlib.ExitStack() as held:
        for rest in (b'Content-Length: 500\r\n\r\n{"a"', b"X-Slow: ") * 8:
            slow = held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            slow.sendall(BROKEN_BODY + rest)
        connection = served.connect()
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()


# --- waking ---


def test_waiters_are_woken_by_redis(web_redis: str) -> None:
    streams, redis = Streams(web_redis, 4), Redis.from_url(web_redis)
    waiter = streams.reserve(77, 1)
    deadline = time.monotonic() + 10
    while not streams.listening and time.monotonic() < deadline:
        time.sleep(0.01)
    waiter.event.clear()
    redis.publish("cube:run:77", 3)
    assert waiter.event.wait(10)
    waiter.event.clear()
    redis.publish("cube:run:78", 3)
    late = streams.reserve(78, 2)
    while not late.event.is_set() and time.monotonic() < deadline + 10:
        redis.publish("cube:run:78", 4)
        time.sleep(0.02)
    assert late.event.is_set()
    assert not waiter.event.is_set()
    streams.release(waiter)
    streams.release(waiter)
    streams.release(late)
    assert len(streams) == 0
    streams.close()
    redis.close()


def test_without_redis_nobody_waits_longer_than_a_poll(tmp_path: Path) -> None:
    streams = Streams(f"unix://{tmp_path / 'none.sock'}", 4)
    waiter = streams.reserve(1, 1)
    began = time.monotonic()
    waiter.wait(60)
    assert time.monotonic() - began < 30
    streams.close()


# --- logs and artifacts ---


def test_a_log_in_pieces(web: World) -> None:
    path = f"{API}/run/{web.run_id}/task/load/log"
    whole = web.client().get(path, headers=web.bearer("vera")).get_json()["result"]
    assert whole["text"].startswith("first line\n")
    assert "\0" not in whole["text"]
    assert whole["text"].endswith("你\n")
    assert (whole["eof"], whole["attempt"], whole["size"]) == (True, 1, whole["next_offset"])
    tail = web.client().get(f"{path}?offset=-5", headers=web.bearer("vera")).get_json()["result"]
    assert tail["next_offset"] == whole["size"]
    assert (
        web.client()
        .get(f"{path}?attempt=1&rank=0&offset=10", headers=web.bearer("vera"))
        .get_json()["result"]["offset"]
        == 10
    )


def test_a_run_tells_its_ranks_and_each_has_a_log(own_web: World) -> None:
    world, now = own_web, time.time()
    ranks = [{"role": "worker", "index": i, "rank": i, "state": "failed", "exit_code": 137} for i in (0, 1)]
    with world.platform.database.write() as unit:
        unit.connection.execute(
            update(Attempt)
            .where(Attempt.run_id == world.run_id, Attempt.object_name == f"test-{world.run_id}-load")
            .values(
                ranks=ranks, phase="failed", message="was interrupted because the platform stopped", finished_at=now
            )
        )
    folder = world.platform.settings.root / "logs" / "public" / str(world.run_id) / "load" / "1"
    (folder / "rank-1.log").write_bytes(b"of the second rank\n")
    headers = world.bearer("vera")
    run = world.client().get(f"{API}/run/{world.run_id}", headers=headers).get_json()["result"]
    attempt = next(t for t in run["tasks"] if t["key"] == "load")["attempts"][0]
    assert [(r["rank"], r["role"], r["index"], r["state"]) for r in attempt["ranks"]] == [
        (0, "worker", 0, "failed"),
        (1, "worker", 1, "failed"),
    ]
    assert (attempt["no"], attempt["phase"]) == (1, "failed")
    assert attempt["message"] == "was interrupted because the platform stopped"
    texts = [
        world.client().get(f"{API}/run/{world.run_id}/task/load/log?rank={rank}", headers=headers).get_json()["result"]
        for rank in (0, 1)
    ]
    assert [t["text"].splitlines()[0] for t in texts] == ["first line", "of the second rank"]
    page = world.client().get(f"/run/{world.run_id}", headers=headers).get_data(as_text=True)
    assert 'id="log-rank"' in page


def test_the_list_tells_jobs_and_scheduled_runs(own_web: World) -> None:
    context = own_web.platform.context
    save_schedule(context, PLATFORM, own_web.pipeline_id, {"cron": "0 2 * * *"})
    with own_web.platform.database.read() as connection:
        schedule_id = connection.execute(select(Schedule.id)).scalar_one()
    due = 1_760_000_400.0
    by_schedule = submit_run(
        context, PLATFORM, pipeline_id=own_web.pipeline_id, schedule_id=schedule_id, scheduled_at=due
    )
    a_job = submit_job(context, PLATFORM, job("digits"))
    listed = own_web.client().get(f"{API}/run/", headers=own_web.bearer("vera")).get_json()["result"]
    rows = {row["id"]: row for row in listed}
    assert rows[a_job.run_id]["name"] == rows[own_web.run_id]["name"] == "digits"
    assert (rows[a_job.run_id]["kind"], rows[own_web.run_id]["kind"]) == ("job", "pipeline")
    assert rows[by_schedule.run_id]["schedule_id"] == schedule_id
    assert rows[by_schedule.run_id]["scheduled_at"] == iso(due)
    assert rows[own_web.run_id]["schedule_id"] is None


_SCRIPTS = sorted((Path(__file__).parents[2] / "myapp" / "static" / "cube").glob("*.js"))


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda path: path.name)
def test_scripts_of_the_pages_keep_to_the_policy_and_know_their_words(script: Path) -> None:
    """No markup from text, no styles inline; every word they use is there, in every language."""
    text = script.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\.style\b|\beval\b", text)
    used = set(re.findall(r"\bwords\.([a-z_]+)", text))
    for lang in LANGUAGES:
        assert used <= set(words(lang))


def test_reasons_are_told_in_chinese() -> None:
    pairs = [(re.compile(pattern), shown) for pattern, shown in reasons("zh")]
    for summary in ("was interrupted because the platform stopped", "ended with exit code 3", "waits for task load"):
        assert any(pattern.fullmatch(summary) for pattern, _ in pairs), summary
    assert reasons("en") == ()


def artifact(world: World, path: str, **headers: str) -> Any:
    url = f"{API}/run/{world.run_id}/artifact/{path}"
    return world.client().get(url, headers={**world.bearer("vera"), **headers}, buffered=True)


def test_what_a_job_wrote_is_never_run_by_a_browser(web: World) -> None:
    reply = artifact(web, "load/page.html")
    assert reply.data == b"<script>alert(1)</script>"
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Disposition"].startswith("attachment;")
    assert "sandbox" in reply.headers["Content-Security-Policy"]
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_a_picture_is_shown(web: World) -> None:
    reply = artifact(web, "load/picture.png")
    assert reply.headers["Content-Type"] == "image/png"
    assert reply.headers["Content-Disposition"].startswith("inline;")
    policy = reply.headers["Content-Security-Policy"]
    assert "sandbox; script-src 'none'" in policy
    assert "default-src" not in policy  # it would block the styles of the browser's own document around the picture
    part = artifact(web, "load/picture.png", Range="bytes=1-3")
    assert (part.status_code, part.data) == (206, b"PNG")
    assert artifact(web, "load/picture.png", Range="bytes=9999-").status_code == 416


def test_a_folder(web: World) -> None:
    assert artifact(web, "load/folder/inner/a.txt").data == b"inside"
    listed = artifact(web, "load/folder?list=true").get_json()["result"]
    assert listed["entries"] == [{"path": "inner/a.txt", "size": 6}]
    packed = artifact(web, "load/folder")
    assert packed.data[:2] == b"PK"
    assert packed.headers["Content-Disposition"].startswith('attachment; filename="folder.zip"')


@pytest.mark.parametrize(
    "path",
    [
        "load/nosuch",
        "nosuch/page.html",
        "load/folder/../page.html",
        "load/folder/..%2f..%2fload%2fpage.html",
        "load/..",
        "load/%2e%2e/%2e%2e/%2e%2e/cube.db",
        "load/folder//etc/passwd",
        "load/%2fetc%2fpasswd",
        "load/folder/%00",
        "load/accuracy",
        "../load/page.html",
        "load/folder/inner",
        "load/page.html/x",
        "load/folder/inner/a.txt/..",
        "load/folder/./inner/a.txt",
    ],
)
def test_artifacts_lead_nowhere_else(web: World, path: str) -> None:
    reply = artifact(web, path)
    assert reply.status_code in (404, 422), reply.data[:200]
    assert b"root:" not in reply.data


def test_head_of_an_artifact(web: World) -> None:
    url = f"{API}/run/{web.run_id}/artifact/load/picture.png"
    reply = web.client().head(url, headers=web.bearer("vera"), buffered=True)
    assert (reply.status_code, reply.data, reply.content_length) == (200, b"", 208)
