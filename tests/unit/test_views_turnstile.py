"""Few readers inside at once, nobody kept out for long, writers not held up."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from myapp.views.turnstile import Turnstile


class App:
    """Counts who is inside; everybody stays until told to go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.came = threading.Semaphore(0)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.came.release()
        self.go.wait(10)
        with self.lock:
            self.inside -= 1
        return [b"done"]


def send(turnstile: Turnstile, method: str, count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=turnstile, args=({"REQUEST_METHOD": method}, None)) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_no_more_than_its_places_are_inside_at_once() -> None:
    app = App()
    threads = send(Turnstile(app, places=2, wait_s=30), "GET", 6)
    for _ in range(2):
        assert app.came.acquire(timeout=10)
    assert not app.came.acquire(timeout=0.2)
    app.go.set()
    for thread in threads:
        thread.join(10)
    assert (app.most, app.inside) == (2, 0)


@pytest.mark.parametrize(("method", "wait_s"), [("GET", 0.01), ("POST", 30.0)])
def test_nobody_waits_long_and_writers_not_at_all(method: str, wait_s: float) -> None:
    app = App()
    threads = send(Turnstile(app, places=1, wait_s=wait_s), method, 4)
    for _ in range(4):
        assert app.came.acquire(timeout=10)
    app.go.set()
    for thread in threads:
        thread.join(10)
    assert (app.most, app.inside) == (4, 0)


def test_a_place_is_free_again_after_a_failure() -> None:
    def fails(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise ValueError

    turnstile = Turnstile(fails, places=1, wait_s=30)
    for _ in range(3):
        with pytest.raises(ValueError):
            turnstile({"REQUEST_METHOD": "GET"}, None)
