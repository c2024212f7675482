"""The HTTP client against a real socket: errors, retries, renewed tokens, broken event streams."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from myapp.client import follow
from myapp.client.errors import ClientError
from myapp.client.http import Api

Script = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers by a script, one step per request; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Script] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.clients: list[Api] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def client(self, token: str = "", renew: Callable[[], str | None] | None = None) -> Api:
        """A client of this server, closed with it."""
        self.clients.append(Api(self.url, token, renew))
        return self.clients[-1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path, dict(self.headers), body))
        server.script.pop(0)(self)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        return


def says(status: int, body: Any, **headers: str) -> Script:
    def step(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return step


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def streams(*lines: str) -> Script:
    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write("".join(f"{line}\n" for line in lines).encode())
        handler.close_connection = True

    return step


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    for api in made.clients:
        api.close()
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_refusal_carries_what_the_server_says(server: Server) -> None:
    server.script = [says(422, {"code": "x", "message": "bad", "detail": [{"message": "m"}], "resolution": "do"})]
    with pytest.raises(ClientError) as caught:
        server.client().get("/run/", page=1, phase=None)
    error = caught.value
    assert (error.message, error.resolution, error.status, error.exit_code) == ("bad", "do", 422, 1)
    assert error.detail == [{"message": "m"}]
    assert server.asked[0][1] == "/api/v1/run/?page=1"


@pytest.mark.parametrize(
    ("status", "body", "message", "exit_code"),
    [
        (500, b"<html>", "the server answers 500", 1),
        (401, {"msg": "expired"}, "expired", 4),
        (403, {"message": "no"}, "no", 4),
        (404, {"message": {"a": 1}}, '{"a": 1}', 1),
        (400, [1], "the server answers 400", 1),
    ],
)
def test_other_servers_errors(server: Server, status: int, body: Any, message: str, exit_code: int) -> None:
    server.script = [says(status, body)]
    with pytest.raises(ClientError) as caught:
        server.client().get("/run/")
    assert (caught.value.message, caught.value.exit_code) == (message, exit_code)


def test_a_page_that_is_not_json(server: Server) -> None:
    server.script = [says(200, b"<html>")]
    with pytest.raises(ClientError, match="not JSON"):
        server.client().get("/run/")


def test_a_busy_server_is_asked_again_only_where_that_is_safe(server: Server) -> None:
    api = server.client()
    server.script = [says(503, {}, Retry_After="0"), says(200, {"id": 1})]
    assert api.post("/pipeline/1/run", {}, Idempotency_Key="k") == {"id": 1}
    assert [headers["Idempotency-Key"] for _, _, headers, _ in server.asked] == ["k", "k"]
    server.script = [says(503, {"message": "busy"})]
    with pytest.raises(ClientError, match="busy"):
        api.post("/run/1/cancel", {})


def test_a_kept_connection_that_was_closed_is_opened_again(server: Server) -> None:
    api = server.client()
    server.script = [says(200, 1), hangs_up, says(200, 2)]
    assert [api.get("/a"), api.get("/b")] == [1, 2]
    server.script = [hangs_up]
    api.close()
    with pytest.raises(ClientError, match="cannot be reached") as caught:
        api.get("/c")
    assert caught.value.exit_code == 3


def test_an_expired_token_is_renewed_once(server: Server) -> None:
    renewed: list[str] = []

    def renew() -> str:
        renewed.append("x")
        return "fresh"

    server.script = [says(401, {}), says(200, 1), says(401, {"message": "no"}), says(401, {"message": "no"})]
    api = server.client("stale", renew)
    assert api.get("/a") == 1
    assert [h.get("Authorization") for _, _, h, _ in server.asked] == ["Bearer stale", "Bearer fresh"]
    with pytest.raises(ClientError, match="no"):
        api.get("/b")
    assert len(renewed) == 2


def test_a_run_is_followed_over_broken_streams(server: Server) -> None:
    """The second stream goes on after the last event of the first; the run is read when a stream ends."""

    def event(seq: int, **data: Any) -> list[str]:
        return [f"id: {seq}", f"data: {json.dumps({'seq': seq, **data})}", ""]

    server.script = [
        streams(": hello", "", *event(1, entity="task", task="a", to="active"), "id: 2", "data: cut"),
        says(200, {"result": {"phase": "running"}}),
        hangs_up,
        says(503, {}),
        says(200, {"result": {"phase": "running"}}),
        streams(*event(2, entity="run", to="succeeded", final=True), *event(3, entity="never")),
        says(200, {"result": {"phase": "succeeded", "id": 7}}),
    ]
    seen: list[Any] = []
    assert follow.await_run(server.client(), 7, lambda e: seen.append(e["seq"]))["id"] == 7
    assert seen == [1, 2]
    cursors = [h.get("Last-Event-ID") for _, path, h, _ in server.asked if path.endswith("/events")]
    assert cursors == [None, "1", "1"]


def test_a_run_that_may_not_be_seen_is_not_waited_for(server: Server) -> None:
    server.script = [says(404, {"message": "run 7 was not found"})]
    with pytest.raises(ClientError, match="not found"):
        follow.await_run(server.client(), 7)


def test_a_log_is_followed_over_attempts(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def piece(text: str, offset: int, *, eof: bool, attempt: int) -> Script:
        return says(
            200, {"result": {"text": text, "next_offset": offset, "eof": eof, "attempt": attempt, "size": offset}}
        )

    def run(phase: str, attempts: int) -> Script:
        task = {"key": "a", "phase": phase, "attempts": [{"no": n + 1} for n in range(attempts)]}
        return says(200, {"result": {"phase": "running", "tasks": [task]}})

    server.script = [
        piece("one\n", 4, eof=False, attempt=1),
        piece("", 4, eof=False, attempt=1),
        piece("end\n", 8, eof=True, attempt=1),
        run("active", 2),
        piece("two\n", 4, eof=True, attempt=2),
        run("succeeded", 2),
    ]
    follow.follow_log(server.client(), 7, "a", attempt=None, rank=0, follow=True, raw=False)
    assert capsys.readouterr().out == "one\nend\ntwo\n"
    asked = [path.partition("?")[2] for _, path, _, _ in server.asked if "/log" in path]
    assert [("attempt=1" in q, "attempt=2" in q) for q in asked] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
    ]
