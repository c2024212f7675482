"""Amounts of cpu, memory and time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.errors import Invalid
from myapp.domain.quantities import (
    MAX_CPU_MILLI,
    MAX_MEMORY,
    BadQuantity,
    format_cpu,
    format_duration,
    format_memory,
    parse_cpu,
    parse_duration,
    parse_memory,
)


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (8, 8000),
        (0.5, 500),
        ("500m", 500),
        ("2", 2000),
        ("0.25", 250),
        (" 1 ", 1000),
        (0.1, 100),
        ("1.0005", 1001),
    ],
)
def test_cpu(value: object, milli: int) -> None:
    assert parse_cpu(value) == milli


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("32Gi", 32 * 2**30),
        ("512Mi", 512 * 2**20),
        ("2G", 2 * 10**9),
        (1024, 1024),
        ("1.5Gi", 3 * 2**29),
        ("7", 7),
        ("1Ti", 2**40),
        ("3k", 3000),
        ("3K", 3000),
        ("1GiB", 2**30),
        ("1GB", 10**9),
    ],
)
def test_memory(value: object, size: int) -> None:
    assert parse_memory(value) == size


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("500ms", 0.5),
        (5, 5),
        (0.5, 0.5),
        ("45", 45),
        (0, 0),
        ("1d2h3m4s", 93784),
        ("1.5s", 1.5),
    ],
)
def test_duration(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


BAD: list[Any] = [
    True,
    None,
    [],
    {},
    "",
    " ",
    "-1",
    -1,
    "x",
    "1e3",
    float("nan"),
    float("inf"),
    "10 Gi Gi",
    "1" * 400,
    10**5000,
    "٣",
]


@pytest.mark.parametrize(
    ("parse", "further"),
    [
        (parse_cpu, [0, "0", "5Gi", "1.5m", 10**9]),
        (parse_memory, [0, "5m", "1Xi", "2Ei", 2**61]),
        (parse_duration, ["5x", "1m1h", "h", "10Gi", "1d" * 2, 10**12]),
    ],
)
def test_bad_quantities_say_how_to_write_them(parse: object, further: list[object]) -> None:
    assert callable(parse)
    for value in [*BAD, *further]:
        with pytest.raises(BadQuantity) as caught:
            parse(value)
        assert isinstance(caught.value, Invalid)
        assert isinstance(caught.value, ValueError)
        assert caught.value.resolution
        assert len(caught.value.message) < 300


@given(st.integers(1, MAX_CPU_MILLI))
def test_cpu_round_trip(milli: int) -> None:
    assert parse_cpu(format_cpu(milli)) == milli


@given(st.integers(1, MAX_MEMORY))
def test_memory_round_trip(size: int) -> None:
    assert parse_memory(format_memory(size)) == size


@given(st.one_of(st.integers(0, 10**8).map(float), st.integers(0, 10**9).map(lambda ms: ms / 1000)))
def test_duration_round_trip(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_cpu, parse_memory, parse_duration):
        with suppress(BadQuantity):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "1m30s"), (3600, "1h"), (0.5, "0.5s"), (90061.25, "1d1h1m1.25s")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
