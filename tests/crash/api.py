"""A REST client that counts every status it was answered, for many threads at once."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ENDED = ("succeeded", "failed", "stopped")


class Api:
    """`url` may change (a restart on another port); the token lasts. Unreachable: OSError or HTTPException."""

    def __init__(self, url: str, home: Path, timeout: float = 60.0) -> None:
        self.url = url
        self.home = home
        self.timeout = timeout
        self.statuses: Counter[int] = Counter()
        self.token = ""
        self._local = threading.local()
        self._opened: list[http.client.HTTPConnection] = []
        self._count = threading.Lock()

    def login(self) -> Api:
        password = (self.home / "admin-password").read_text().strip()
        body = {"username": "admin", "password": password, "provider": "db"}
        status, answer = self.call("POST", "/security/login", body)
        assert status == 200, answer
        self.token = answer["access_token"]
        return self

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """One request over this thread's connection: the status and the decoded body."""
        connection = self._connection()
        sent = {"Accept": "application/json", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, "/api/v1" + path, json.dumps(body) if body is not None else None, sent)
            reply = connection.getresponse()
            data = reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._local.connection = None
            raise
        with self._count:
            self.statuses[reply.status] += 1
        return reply.status, json.loads(data) if data else None

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        made: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if made is None or (made.host, made.port) != (parts.hostname, parts.port):
            made = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=self.timeout)
            self._local.connection = made
            self._opened.append(made)
        return made

    def patiently(self, method: str, path: str, body: Any = None, *, seconds: float = 60.0, **headers: str) -> Any:
        """The answer of a request repeated while nobody answers, or with 503: as a good client does."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                status, answer = self.call(method, path, body, **headers)
                if status != 503:
                    assert 200 <= status < 300, f"{method} {path}: {status} {answer}"
                    return answer
            except (OSError, http.client.HTTPException) as error:
                answer = repr(error)
            assert time.monotonic() < deadline, f"{method} {path}: no answer, last: {answer}"
            time.sleep(0.1)

    def close(self) -> None:
        """Every thread's connection."""
        for connection in self._opened:
            connection.close()
        self._opened.clear()
        self._local = threading.local()

    def server_errors(self) -> dict[int, int]:
        return {status: count for status, count in self.statuses.items() if status >= 500}

    # --- what the tests do with it ---

    def publish(self, document: dict[str, Any]) -> int:
        return int(self.patiently("POST", "/pipeline/", document)["id"])

    def start(self, pipeline_id: int, key: str, **options: float) -> int:
        """Submit under an Idempotency-Key: repeated until answered, still one run."""
        body: dict[str, Any] = {}
        return int(
            self.patiently("POST", f"/pipeline/{pipeline_id}/run", body, Idempotency_Key=key, **options)["id"]  # type: ignore[arg-type]
        )

    def run(self, run_id: int, **options: float) -> dict[str, Any]:
        found: dict[str, Any] = self.patiently("GET", f"/run/{run_id}", **options)["result"]  # type: ignore[arg-type]
        return found

    def ended(self, run_id: int, seconds: float = 120.0) -> dict[str, Any]:
        """The run when it has ended; fails with what it is waiting for."""
        deadline = time.monotonic() + seconds
        while True:
            run = self.run(run_id)
            if run["phase"] in ENDED:
                return run
            assert time.monotonic() < deadline, f"run {run_id} has not ended: {stuck(run)}"
            time.sleep(0.2)

    def text(self, run_id: int, task: str) -> str:
        """The whole log of a task's newest attempt."""
        offset, text = 0, ""
        while True:
            path = f"/run/{run_id}/task/{task}/log?offset={offset}&limit=1048576"
            piece = self.patiently("GET", path)["result"]
            text += piece["text"]
            if piece["eof"] or piece["next_offset"] == offset:
                return text
            offset = piece["next_offset"]


def stuck(run: dict[str, Any]) -> str:
    """What of a run has not ended, in short."""
    rows = []
    for t in run["tasks"]:
        if t["phase"] not in (*ENDED, "skipped"):
            attempts = [(a["no"], a["phase"], a["message"]) for a in t["attempts"]]
            rows.append(f"{t['key']} {t['phase']} ({t['waiting'] or t['reason']}) {attempts}")
    return f"{run['phase']}, {len(rows)} open tasks: " + "; ".join(rows[:8])
