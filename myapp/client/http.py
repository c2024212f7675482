"""Requests to `/api/v1`, over one kept connection of the standard library."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from myapp.client.errors import DENIED, FAILED, UNREACHABLE, ClientError

TIMEOUT_S = 60.0
_BUSY_TRIES = 5
_BLOCK = 256 * 1024
_IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body; None when it is empty."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError:
            raise ClientError(
                "the server's answer is not JSON", "Check that the URL is that of Cube Studio.", exit_code=UNREACHABLE
            ) from None


class Api:
    """`renew` is asked for a new token, once, when the server no longer takes the one in use.

    `token_from` names the variable that holds the token, where one does.
    """

    def __init__(
        self, url: str, token: str = "", renew: Callable[[], str | None] | None = None, *, token_from: str = ""
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(f"{url} is not the URL of a server", "Write it like http://localhost:8080", exit_code=2)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/") + "/api/v1"
        self.token = token
        self._renew = renew
        self._token_from = token_from
        self._connection: http.client.HTTPConnection | None = None

    # --- requests ---

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, query=query).json()

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("POST", path, body=body, headers=headers).json()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        authorised: bool = True,
    ) -> Reply:
        """The reply of a request that succeeded. Raises ClientError with what the server says otherwise."""
        known = {k: v for k, v in (query or {}).items() if v is not None}
        target = self._prefix + path + (f"?{urlencode(known)}" if known else "")
        sent = {"Accept": "application/json", **{k.replace("_", "-"): v for k, v in (headers or {}).items()}}
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = content_type
        safe_again = method in _IDEMPOTENT or "Idempotency-Key" in sent
        renewed = False
        for trial in range(_BUSY_TRIES):
            if authorised and self.token:
                sent["Authorization"] = f"Bearer {self.token}"
            reply = self._send(method, target, data, sent, again=safe_again)
            if reply.status == 401 and authorised and self._renew and not renewed:
                renewed = True
                token = self._renew()
                if token:
                    self.token = token
                    continue
            if reply.status == 503 and safe_again and trial + 1 < _BUSY_TRIES:
                time.sleep(_seconds(reply.headers.get("retry-after"), default=0.2 * 2**trial))
                continue
            break
        if reply.status >= 400:
            raise self._refusal(reply)
        return reply

    def _send(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str], *, again: bool) -> Reply:
        kept = self._connection is not None
        connection = self._connection or self.connect()
        self._connection = connection
        try:
            connection.request(method, target, body=data, headers=dict(headers))
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept and again:  # a kept connection that the server has closed meanwhile
                return self._send(method, target, data, headers, again=False)
            raise unreachable(self.url, error) from error
        except BaseException:
            self.close()
            raise
        if reply.will_close:
            self.close()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, body)

    def _refusal(self, reply: Reply) -> ClientError:
        return refusal(reply, self.url, self._token_from)

    def connect(self, timeout: float = TIMEOUT_S) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def download(self, path: str, write: Callable[[bytes], object]) -> Mapping[str, str]:
        """A body of any size, in blocks to `write`; the reply's headers (in lower case). Raises ClientError."""
        renewed = False
        while True:
            connection = self.connect()
            try:
                headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
                connection.request("GET", self._prefix + path, headers=headers)
                reply = connection.getresponse()
                if reply.status == 401 and self._renew and not renewed:
                    renewed = True
                    if token := self._renew():
                        self.token = token
                        continue
                if reply.status >= 400:
                    raise self._refusal(Reply(reply.status, {}, reply.read()))
                said = {name.lower(): value for name, value in reply.getheaders()}
                size = 0
                while block := reply.read(_BLOCK):
                    write(block)
                    size += len(block)
                if size != int(said.get("content-length", size)):
                    raise ConnectionError("the connection broke off")
                return said
            except (OSError, http.client.HTTPException) as error:
                raise unreachable(self.url, error) from error
            finally:
                connection.close()

    # --- server-sent events ---

    def events(self, path: str, after: str = "", *, silence_s: float = 45.0) -> Iterator[tuple[str, str, str]]:
        """(id, event, data) as they come; ends when the server closes, or says nothing for `silence_s` seconds."""
        connection = self.connect(timeout=silence_s)
        try:
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            if after:
                headers["Last-Event-ID"] = after
            connection.request("GET", self._prefix + path, headers=headers)
            with connection.getresponse() as reply:
                if reply.status != 200 or "event-stream" not in reply.getheader("Content-Type", ""):
                    raise self._refusal(Reply(reply.status, {}, reply.read()))
                yield from _parse_events(reply, after)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def _parse_events(lines: Iterable[bytes], after: str) -> Iterator[tuple[str, str, str]]:
    """The events of a stream; one that was cut off is none."""
    fields: dict[str, str] = {}
    for raw in lines:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if not line:
            if "data" in fields or "event" in fields:
                after = fields.get("id", after)
                yield after, fields.get("event", "message"), fields.get("data", "")
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and "data" in fields else value


def segment(value: object) -> str:
    """A value as one segment of a path."""
    return quote(str(value), safe="")


def refusal(reply: Reply, url: str, token_from: str = "") -> ClientError:
    """What the server's error says, as an exception. `token_from`: the variable that held the token, if one did."""
    try:
        said = json.loads(reply.body)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = said.get("message") or said.get("msg") or f"the server answers {reply.status}"
    if not isinstance(message, str):
        message = json.dumps(message)
    resolution = said.get("resolution")
    if reply.status == 401 and token_from:
        message = f"the token in {token_from} is not accepted: {message}"
        resolution = f"Set {token_from} to a token that is valid, or unset it and sign in."
    elif reply.status == 401:
        resolution = resolution or f"Sign in: cube login {url}"
    return ClientError(
        message,
        resolution,
        exit_code=DENIED if reply.status in (401, 403) else FAILED,
        status=reply.status,
        detail=said.get("detail"),
    )


def unreachable(url: str, error: Exception) -> ClientError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ClientError(
        f"{url} cannot be reached: {reason}",
        "Is it running (make run), and is the URL right (--url, CUBE_URL or cube login)?",
        exit_code=UNREACHABLE,
    )


def _seconds(value: str | None, *, default: float) -> float:
    try:
        return min(10.0, max(0.05, float(value or "")))
    except ValueError:
        return default
