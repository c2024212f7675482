"""Lets few reading requests compute at once: more would only take the interpreter's lock from each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

PLACES = 2  # one computes while another waits for the disk or the network
WAIT_S = 0.05


class Turnstile:
    """WSGI middleware. Whoever has waited WAIT_S goes in anyway: those inside may be waiting for something slow.

    Only GET and HEAD pass one by one: a request with a body is read inside, at the pace of its client. A reply that is
    streamed is sent after the place is free again.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], places: int = PLACES, wait_s: float = WAIT_S) -> None:
        self._app = app
        self._places = threading.Semaphore(places)
        self._wait_s = wait_s

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return self._app(environ, start_response)
        placed = self._places.acquire(timeout=self._wait_s)
        try:
            return self._app(environ, start_response)
        finally:
            if placed:
                self._places.release()
