from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from myapp.backends.local.ports import PortBook
from myapp.domain.ports import Transient


def free_span(size: int) -> tuple[int, int]:
    """A range of ports with nobody in it just now."""
    for first in range(21000 + os.getpid() % 200 * 40, 32000, size):
        try:
            for port in range(first, first + size):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first, first + size - 1
        except OSError:
            continue
    raise AssertionError("no free range")


@pytest.fixture
def book(tmp_path: Path) -> PortBook:
    return PortBook(str(tmp_path / "run"), str(tmp_path / "jobs"), free_span(8))


def test_none_asked_none_given(book: PortBook, tmp_path: Path) -> None:
    assert book.reserve("a", ()) == {}
    assert not (tmp_path / "run").exists()


def test_stable_extended_and_released(book: PortBook) -> None:
    first = book.reserve("a", ("x", "y"))
    assert book.reserve("a", ("x",)) == {"x": first["x"]}
    more = book.reserve("a", ("x", "y", "z"))
    assert {name: more[name] for name in first} == first
    for number in range(5):
        book.reserve(f"b{number}", ("p",))
    with pytest.raises(Transient, match="no port is free"):
        book.reserve("c", ("p",))
    book.release("a")
    book.release("a")
    assert book.reserve("c", ("p", "q", "r"))


def test_a_failed_reservation_keeps_nothing(book: PortBook) -> None:
    with pytest.raises(Transient):
        book.reserve("greedy", tuple(f"p{n}" for n in range(9)))
    assert len(book.reserve("modest", tuple(f"p{n}" for n in range(8)))) == 8


def test_many_askers(book: PortBook) -> None:
    with ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: book.reserve("a", ("x", "y")), range(8)))
    assert all(answer == same[0] for answer in same)
    with ThreadPoolExecutor(6) as pool:
        others = list(pool.map(lambda n: book.reserve(f"o{n}", ("x",))["x"], range(6)))
    assert len({*others, *same[0].values()}) == 8


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    first, last = free_span(2)
    with socket.socket() as s:
        s.bind(("127.0.0.1", first))
        s.listen()
        assert PortBook(str(tmp_path), str(tmp_path), (first, last)).reserve("a", ("x",)) == {"x": last}


def test_ports_of_the_forgotten_are_taken_back(book: PortBook, tmp_path: Path) -> None:
    book.reserve("kept", tuple(f"p{n}" for n in range(4)))
    book.reserve("forgotten", tuple(f"p{n}" for n in range(4)))
    (tmp_path / "jobs/kept").mkdir(parents=True)
    for path in (tmp_path / "run/ports").iterdir():
        os.utime(path, (1, 1))
    with pytest.raises(Transient):
        book.reserve("new", ("x",))        # finds and frees them
    assert len(book.reserve("new", tuple(f"p{n}" for n in range(4)))) == 4
