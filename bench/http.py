"""A keep-alive JSON client on loopback that costs little of the CPU it is there to measure."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 120.0


class HttpError(RuntimeError):
    def __init__(self, request: str, status: int, body: bytes) -> None:
        super().__init__(f"{request}: {status} {body[:400]!r}")
        self.status = status


class Client:
    """One connection; not thread-safe."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        address = urlsplit(url)
        self._host, self._port, self._prefix = address.hostname or "127.0.0.1", address.port or 80, address.path
        self.headers = dict(headers or {})
        self._socket: socket.socket | None = None
        self._rest = b""

    def get(self, path: str) -> Any:
        return json.loads(self.request("GET", path))

    def post(self, path: str, data: Any) -> Any:
        body = self.request("POST", path, json.dumps(data).encode())
        return json.loads(body) if body else None

    def request(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """The body of the answer. Raises HttpError from status 400 on, OSError."""
        for last in (False, True):
            try:
                self._send(method, path, data)
                status, headers = self._head()
                break
            except (ConnectionError, EOFError):  # the server closed an idle connection
                self.close()
                if last:
                    raise
        body = self._body(headers)
        if status >= 400:
            raise HttpError(f"{method} {path}", status, body)
        return body

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """(event, data) of a stream of server-sent events, on a connection of its own."""
        self._send("GET", path, None)
        status, headers = self._head()
        if status != 200:
            raise HttpError(f"GET {path}", status, self._body(headers))
        pending = b""
        for chunk in self._chunks() if "chunked" in headers.get("transfer-encoding", "") else self._until_closed():
            pending += chunk
            *whole, pending = pending.split(b"\n\n")
            for block in whole:
                fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if ": " in line)
                if "data" in fields:
                    yield fields.get("event", "message"), json.loads(fields["data"])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _send(self, method: str, path: str, data: bytes | None) -> None:
        if self._socket is None:
            self._socket = socket.create_connection((self._host, self._port), timeout=TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._host}:{self._port}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if data is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + (data or b""))

    def _head(self) -> tuple[int, dict[str, str]]:
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        return int(head[0].split()[1]), headers

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b"".join(self._chunks())
        elif "content-length" in headers:
            body = self._exactly(int(headers["content-length"]))
        else:
            body = b"".join(self._until_closed())
        if headers.get("connection", "").lower() == "close":
            self.close()
        return body

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            yield self._exactly(size)
            self._until(b"\r\n")
        self._until(b"\r\n")

    def _until_closed(self) -> Iterator[bytes]:
        while True:
            block, self._rest = self._rest, b""
            if not block and not (block := self._receive()):
                return
            yield block

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            block = self._receive()
            if not block:
                raise EOFError("the server closed the connection")
            self._rest += block
        found, _, self._rest = self._rest.partition(mark)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            block = self._receive()
            if not block:
                raise EOFError("the server closed the connection")
            self._rest += block
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _receive(self) -> bytes:
        assert self._socket is not None
        return self._socket.recv(1 << 18)


def percentile(values: list[float], percent: float) -> float:
    """Of at least one value; between two ranks, the nearer."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def load(
    url: str, headers: Mapping[str, str], method: str, path: str, data: Any, *, requests: int, clients: int
) -> list[float]:
    """Milliseconds of each of `requests` requests, sent by `clients` connections, each one after the other."""
    body = None if data is None else json.dumps(data).encode()
    times: list[float] = []
    problems: list[BaseException] = []

    def work(count: int) -> None:
        client = Client(url, headers)
        try:
            for _ in range(count):
                started = time.perf_counter()
                client.request(method, path, body)
                times.append((time.perf_counter() - started) * 1e3)
        except BaseException as error:
            problems.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=work, args=(requests // clients,)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return times
