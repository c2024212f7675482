"""Due moments in time zones, around changes of the clock, against a walk over every real minute."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myapp.services.cron import check_schedule, next_times

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "UTC"]


def at(text: str) -> float:
    """A moment given in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def utc(moments: list[float]) -> list[str]:
    return [datetime.fromtimestamp(m, UTC).strftime("%m-%d %H:%M") for m in moments]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # no change of the clock
        ("30 2 * * *", "UTC", "2025-03-29T00:00", ["03-29 02:30", "03-30 02:30", "03-31 02:30"]),
        ("0 9 * * *", "Asia/Shanghai", "2025-03-29T00:00", ["03-29 01:00", "03-30 01:00"]),
        ("0 0 29 2 *", "UTC", "2025-01-01T00:00", ["02-29 00:00", "02-29 00:00"]),
        ("*/20 9-10 * * 1-5", "UTC", "2025-03-28T10:30", ["03-28 10:40", "03-31 09:00"]),
        # Berlin, 2025-03-30: 02:00 CET (01:00 UTC) becomes 03:00 CEST
        ("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00", ["03-30 01:00", "03-31 00:30"]),
        ("0 3 * * *", "Europe/Berlin", "2025-03-29T12:00", ["03-30 01:00", "03-31 01:00"]),
        ("0 2 * * *", "Europe/Berlin", "2025-03-30T00:00", ["03-30 01:00", "03-31 00:00"]),
        ("*/15 2 * * *", "Europe/Berlin", "2025-03-30T00:00", ["03-30 01:00", "03-31 00:00"]),
        ("15 * * * *", "Europe/Berlin", "2025-03-30T00:00", ["03-30 00:15", "03-30 01:15", "03-30 02:15"]),
        ("0 */2 * * *", "Europe/Berlin", "2025-03-29T22:30", ["03-29 23:00", "03-30 02:00", "03-30 04:00"]),
        (
            "30 0-4 * * *",
            "Europe/Berlin",
            "2025-03-30T00:00",
            ["03-30 00:30", "03-30 01:00", "03-30 01:30", "03-30 02:30"],
        ),
        # Berlin, 2025-10-26: 03:00 CEST (01:00 UTC) becomes 02:00 CET
        ("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00", ["10-26 00:30", "10-27 01:30"]),
        ("0 3 * * *", "Europe/Berlin", "2025-10-25T12:00", ["10-26 02:00", "10-27 02:00"]),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2025-10-25T23:00",
            ["10-25 23:30", "10-26 00:30", "10-26 01:30", "10-26 02:30"],
        ),
        ("*/30 2 * * *", "Europe/Berlin", "2025-10-25T23:59", ["10-26 00:00", "10-26 00:30", "10-27 01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2025-10-26T00:30", ["10-27 01:30"]),
        # New York, 2025-03-09 07:00 UTC and 2025-11-02 06:00 UTC
        ("30 2 * * *", "America/New_York", "2025-03-08T12:00", ["03-09 07:00", "03-10 06:30"]),
        ("30 1 * * *", "America/New_York", "2025-11-01T12:00", ["11-02 05:30", "11-03 06:30"]),
        ("30 * * * *", "America/New_York", "2025-11-02T05:00", ["11-02 05:30", "11-02 06:30", "11-02 07:30"]),
        # Lord Howe: half an hour. 2025-04-05 15:00 UTC: 02:00 becomes 01:30; 2025-10-04 15:30 UTC: 02:00 becomes 02:30
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T00:00", ["04-05 14:45", "04-06 15:15"]),
        ("45 * * * *", "Australia/Lord_Howe", "2025-04-05T14:00", ["04-05 14:45", "04-05 15:15", "04-05 16:15"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T00:00", ["10-04 15:30", "10-05 15:15"]),
        ("30 2 * * *", "Australia/Lord_Howe", "2025-10-04T00:00", ["10-04 15:30", "10-05 15:30"]),
        ("15 * * * *", "Australia/Lord_Howe", "2025-10-04T14:00", ["10-04 14:45", "10-04 16:15"]),
    ],
)
def test_around_changes_of_the_clock(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert utc(next_times(cron, zone, at(after), len(expected))) == expected


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_schedule_is_due_once_on_every_day_of_the_year(zone: str) -> None:
    for cron in ("30 2 * * *", "45 1 * * *", "0 0 * * *", "59 23 * * *"):
        moments = next_times(cron, zone, at("2024-12-31T00:00"), 365)
        days = [datetime.fromtimestamp(m, ZoneInfo(zone)).date() for m in moments]
        assert len(set(days)) == 365
        assert (days[-1] - days[0]).days == 364


def numbers(text: str, first: int, last: int) -> set[int]:
    """The values of one field: `*`, `*/n`, `a`, `a-b` and lists of them."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = (f"{first}-{last}" if span == "*" else span).partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


def brute_force(cron: str, zone: ZoneInfo, after: float, until: float) -> list[float]:
    """Every real minute whose wall-clock time fits: what a schedule with a wildcard hour means.

    At most one of the two fields for days may be other than `*`.
    """
    minute, hour, day, month, weekday = cron.split()
    wanted = (
        numbers(minute, 0, 59),
        numbers(hour, 0, 23),
        numbers(day, 1, 31),
        numbers(month, 1, 12),
        numbers(weekday, 0, 6),
    )
    found, moment = [], (int(after) // 60 + 1) * 60
    while moment <= until:
        wall = datetime.fromtimestamp(moment, zone)
        if all(
            value in values
            for value, values in zip(
                (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7), wanted, strict=True
            )
        ):
            found.append(float(moment))
        moment += 60
    return found


CHANGES = {
    "Europe/Berlin": ["2025-03-30T01:00", "2025-10-26T01:00"],
    "America/New_York": ["2025-03-09T07:00", "2025-11-02T06:00"],
    "Australia/Lord_Howe": ["2025-04-05T15:00", "2025-10-04T15:30"],
    "Asia/Shanghai": ["2025-06-01T00:00"],
    "UTC": ["2025-06-01T00:00"],
}
changes = st.sampled_from([(zone, at(change)) for zone, all_ in CHANGES.items() for change in all_])
minutes = st.sampled_from(["*", "*/15", "*/7", "0", "15", "30", "45", "59", "0,30", "10-20"])
hours = st.sampled_from(["*", "*/2", "*/3", "0", "1", "2", "3", "1-3", "2,14", "0-23"])
days = st.sampled_from(["* * *", "* * 0", "* * 6,0", "30 * *", "*/2 * *", "26 10 *"])
offsets = st.integers(-6 * 3600, 6 * 3600)


@settings(max_examples=100, deadline=None)
@given(changes, minutes, st.sampled_from(["*", "*/2", "*/3"]), days, offsets)
def test_a_wildcard_hour_is_every_real_minute_that_fits(
    change: tuple[str, float], minute: str, hour: str, day: str, offset: int
) -> None:
    zone, moment = change
    cron, after = f"{minute} {hour} {day}", moment + offset
    expected = brute_force(cron, ZoneInfo(zone), after, after + 12 * 3600)
    found = [m for m in next_times(cron, zone, after, len(expected) + 1) if m <= after + 12 * 3600]
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(changes, minutes, hours, days, offsets, st.integers(1, 40))
def test_they_ascend_after_the_given_moment_and_do_not_depend_on_where_one_starts(
    change: tuple[str, float], minute: str, hour: str, day: str, offset: int, count: int
) -> None:
    zone, moment = change
    cron, after = f"{minute} {hour} {day}", moment + offset
    found = next_times(cron, zone, after, count)
    assert len(found) == count
    assert found[0] > after
    assert all(a < b for a, b in pairwise(found))
    middle = count // 2
    assert next_times(cron, zone, found[middle], count - middle - 1 or 1)[: count - middle - 1] == found[middle + 1 :]
    one_by_one, last = [], after
    for _ in range(min(count, 6)):
        [last] = next_times(cron, zone, last, 1)
        one_by_one.append(last)
    assert one_by_one == found[:6]


@settings(max_examples=80, deadline=None)
@given(changes, minutes, st.sampled_from(["0", "1", "2", "3", "1-3", "2,14"]), offsets)
def test_a_named_hour_is_due_once_for_each_wall_clock_time_of_the_day(
    change: tuple[str, float], minute: str, hour: str, offset: int
) -> None:
    """Against the walk: what exists is due at its first real moment, what does not exist when the clock has jumped."""
    zone, moment = change
    cron, after, until = f"{minute} {hour} * * *", moment + offset - 86400, moment + 86400
    seen: set[str] = set()
    expected: set[float] = set()
    for real in brute_force(cron, ZoneInfo(zone), after - 4 * 3600, until):
        wall = datetime.fromtimestamp(real, ZoneInfo(zone)).strftime("%m-%d %H:%M")
        if wall not in seen:
            seen.add(wall)
            expected.add(real)
    found = next_times(cron, zone, after, 600)
    extra = {m for m in found if m <= until} - expected
    assert extra <= {moment}
    assert {m for m in expected if m > after} <= set(found)


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *"])
def test_what_is_never_due(cron: str) -> None:
    assert next_times(cron, "UTC", 1_700_000_000.0, 3) == []
    [problem] = check_schedule(cron, "UTC")
    assert (problem.code, problem.field) == ("bad_cron", "spec.schedule.cron")
    assert "never due" in problem.message


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "*",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "x * * * *",
        "@daily",
        "@reboot",
        "H * * * *",
        "R(0-59) * * * *",
        "* H * * *",
        "* * H * *",
        "*/0 * * * *",
        "5-1/0 * * * *",
        "-1 * * * *",
        "* * * * * * *",
        "0 0 * * mon-fri-sun",
        "1,,2 * * * *",
        "٣ * * * *",
        "*\x00 * * * *",
    ],
)
def test_what_is_not_a_cron_expression(cron: str) -> None:
    [problem] = check_schedule(cron, "UTC")
    assert (problem.code, problem.field) == ("bad_cron", "spec.schedule.cron")
    assert problem.resolution


@pytest.mark.parametrize("cron", ["* * * * *", "*/5 0-6 1,15 jan-jun mon-fri", "0 0 29 2 *", "0 12 * * 7", "0 0 l * *"])
def test_what_is_one(cron: str) -> None:
    assert check_schedule(cron, "Europe/Berlin") == []


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "UTC\x00", "x" * 500]
)
def test_what_is_not_a_time_zone(zone: str) -> None:
    [problem] = check_schedule("0 0 * * *", zone, field="schedule")
    assert (problem.code, problem.field) == ("unknown_timezone", "schedule.timezone")
    assert len(problem.message) < 120


def test_both_wrong_are_both_named() -> None:
    assert [p.code for p in check_schedule("nonsense", "nowhere")] == ["unknown_timezone", "bad_cron"]
