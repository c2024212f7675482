"""Quantities as people write them: cpu, memory, durations.

Parsers take a number or text and return one unit each (millicores, bytes, seconds); formatters write the shortest
text that parses back to the same quantity. A bad one raises `BadQuantity`, which says what is accepted.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from myapp.domain.errors import Invalid
from myapp.domain.naming import shown

MAX_CPU_MILLI = 100_000_000          # 100,000 cores
MAX_MEMORY = 2**60                   # 1 EiB
MAX_DURATION = 3650 * 86400.0        # ten years

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_MEMORY = re.compile(r"\A([0-9]{1,20}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|Pi|[kKMGTP])?B?\Z")
_CPU = re.compile(r"\A(?:([0-9]{1,12})m|([0-9]{1,9}(?:\.[0-9]{1,9})?))\Z")
_NUMBER = re.compile(r"\A[0-9]{1,12}(?:\.[0-9]{1,9})?\Z")
_DURATION = re.compile(
    r"\A(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,12}(?:\.\d{1,9})?)s)?(?:(\d{1,12})ms)?\Z", re.A
)
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


class BadQuantity(Invalid, ValueError):
    """A quantity that cannot be read. Also a ValueError, so that pydantic reports it with its field."""

    code = "bad_quantity"


def parse_cpu(value: object) -> int:
    """Cores (`8`, `0.5`, `"2"`) or millicores (`"500m"`) -> millicores, at least 1. Raises BadQuantity."""
    remedy = "write cores as a number (2, 0.5) or millicores as text (500m)"
    if isinstance(value, str):
        match = _CPU.match(value.strip())
        if not match:
            raise BadQuantity(f"{shown(value)} is not an amount of cpu: {remedy}", resolution=remedy)
        milli = Decimal(match[1]) if match[1] is not None else Decimal(match[2]) * 1000
    else:
        milli = _number(value, "an amount of cpu", remedy) * 1000
    amount = math.ceil(milli)
    if not 1 <= amount <= MAX_CPU_MILLI:
        message = f"{shown(value)} of cpu is out of range: from 1m to {MAX_CPU_MILLI // 1000} cores"
        raise BadQuantity(message, resolution=remedy)
    return amount


def parse_memory(value: object) -> int:
    """`32Gi`, `512Mi`, `2G`, `1.5Gi` or a number of bytes -> bytes, at least 1. Raises BadQuantity."""
    remedy = "write a number with a unit such as 512Mi, 32Gi or 2G (a bare number is bytes)"
    if isinstance(value, str):
        match = _MEMORY.match(value.strip())
        if not match:
            raise BadQuantity(f"{shown(value)} is not an amount of memory: {remedy}", resolution=remedy)
        amount = Decimal(match[1]) * (_BINARY.get(match[2] or "") or _DECIMAL.get(match[2] or "") or 1)
    else:
        amount = _number(value, "an amount of memory", remedy)
    size = math.ceil(amount)
    if not 1 <= size <= MAX_MEMORY:
        raise BadQuantity(f"{shown(value)} of memory is out of range: from 1 byte to 1024Pi", resolution=remedy)
    return size


def parse_duration(value: object) -> float:
    """`90s`, `10m`, `2h`, `1d`, `1h30m`, `500ms` or a number of seconds -> seconds, at least 0. Raises BadQuantity."""
    remedy = "write a number with a unit such as 90s, 10m, 2h or 1d (a bare number is seconds)"
    if isinstance(value, str):
        text = value.strip()
        match = _DURATION.match(text)
        if _NUMBER.match(text):
            seconds = Decimal(text)
        elif match and text:
            d, h, m, s, ms = (Decimal(part or 0) for part in match.groups())
            seconds = d * 86400 + h * 3600 + m * 60 + s + ms / 1000
        else:
            raise BadQuantity(f"{shown(value)} is not a duration: {remedy}", resolution=remedy)
    else:
        seconds = _number(value, "a duration", remedy)
    if not 0 <= seconds <= MAX_DURATION:
        raise BadQuantity(f"{shown(value)} is out of range for a duration: from 0s to 3650d", resolution=remedy)
    return float(seconds)


def format_cpu(milli: int) -> str:
    """Millicores -> `8` or `500m`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_memory(size: int) -> str:
    """Bytes -> the largest binary unit that holds them exactly (`32Gi`), else bytes."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size and size % _BINARY[unit] == 0:
            return f"{size // _BINARY[unit]}{unit}"
    return str(size)


def format_duration(seconds: float) -> str:
    """Seconds -> `2h`, `1h30m`, `90s` written as `1m30s`, `0.5s`."""
    whole = int(seconds)
    rest = Decimal(repr(seconds)) - whole if isinstance(seconds, float) else Decimal(0)
    out = ""
    for size, unit in _STEPS:
        if whole >= size:
            out += f"{whole // size}{unit}"
            whole %= size
    fraction = Decimal(whole) + rest
    if fraction or not out:
        text = f"{fraction:f}"
        out += (text.rstrip("0").rstrip(".") if "." in text else text) + "s"
    return out


def _number(value: object, what: str, remedy: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:   # NaN included
        raise BadQuantity(f"{shown(value)} is not {what}: {remedy}", resolution=remedy)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
