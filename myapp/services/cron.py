"""Cron in a time zone: which moments a schedule is due.

Around a change to or from daylight saving time: a time that does not exist that day is due when the clock has jumped;
a time that occurs twice is due once, at the first. Unless the hour is a wildcard (`*` or `*/n`): then every real moment
whose wall-clock time fits is due, and no other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

from myapp.domain.errors import Problem

_AROUND = timedelta(hours=3)  # no change of offset is larger than this


def check_schedule(cron: str, timezone: str, *, field: str = "spec.schedule") -> list[Problem]:
    """What is wrong with a schedule: not five fields, never due, or an unknown time zone."""
    problems: list[Problem] = []
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        problems.append(
            Problem(
                code="unknown_timezone",
                message=f"'{timezone[:60]}' is not a time zone",
                field=f"{field}.timezone",
                resolution="use a name such as UTC, Europe/Berlin or Asia/Shanghai",
            )
        )
        zone = ZoneInfo("UTC")
    remedy = "use five fields: minute hour day-of-month month day-of-week, e.g. '30 2 * * 1-5'"
    try:
        if len(cron.split()) != 5 or any(c in cron.upper().split()[0] for c in "HR") or not croniter.is_valid(cron):
            problems.append(
                Problem(
                    code="bad_cron",
                    message=f"'{cron[:60]}' is not a cron expression",
                    field=f"{field}.cron",
                    resolution=remedy,
                )
            )
        elif not next_times(cron, zone.key, 1_700_000_000.0, 1):
            raise CroniterBadDateError
    except (CroniterBadCronError, CroniterBadDateError, ValueError, KeyError):
        problems.append(
            Problem(code="bad_cron", message=f"'{cron[:60]}' is never due", field=f"{field}.cron", resolution=remedy)
        )
    return problems


def next_times(cron: str, timezone: str, after: float, count: int, *, until: float | None = None) -> list[float]:
    """The next `count` due moments strictly after `after` and not after `until`, unix seconds, ascending. Fewer when
    there are no more.
    """
    zone = ZoneInfo(timezone)
    every_hour = cron.split()[1].startswith("*")
    local = datetime.fromtimestamp(after, UTC).astimezone(zone).replace(tzinfo=None)
    walk = croniter(cron, local - _AROUND - timedelta(seconds=1), max_years_between_matches=8)
    found: set[float] = set()
    last: datetime | None = None  # the wall time at which enough had been found, or that is late enough
    if until is not None:
        last = datetime.fromtimestamp(until, UTC).astimezone(zone).replace(tzinfo=None)
    while True:
        try:
            wall: datetime = walk.get_next(datetime)
        except CroniterBadDateError:
            break
        if last is not None and wall > last + _AROUND:
            break
        found.update(m for m in _moments(wall, zone, every_hour) if m > after)
        if len(found) >= count and (last is None or wall < last):
            last = wall
    return sorted(m for m in found if until is None or m <= until)[:count]


def _moments(wall: datetime, zone: ZoneInfo, every_hour: bool) -> list[float]:
    """The real moments of a wall-clock time."""
    first = wall.replace(tzinfo=zone, fold=0)
    second = wall.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return [first.timestamp()]
    back = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    if back != wall:  # it does not exist: the clock jumped over it
        return [] if every_hour else [_end_of_gap(wall, zone)]
    return [first.timestamp(), second.timestamp()] if every_hour else [first.timestamp()]


def _end_of_gap(wall: datetime, zone: ZoneInfo) -> float:
    """The moment the clock jumped, for a wall time inside the jump."""
    before = wall.replace(tzinfo=zone, fold=0).utcoffset()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    assert before is not None
    assert after is not None
    low, high = (wall - after).replace(tzinfo=UTC).timestamp(), (wall - before).replace(tzinfo=UTC).timestamp()
    low, high = min(low, high), max(low, high)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return float(high)
