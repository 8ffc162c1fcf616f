"""Money, time and size as integers, and the words people write them in.

Money is lovelace (or the smallest unit of the channel's one asset), rates are micro-lovelace per
GPU-second or core-second, time is milliseconds, memory is MiB, CPU is milli-cores, share is
per-mille of a device.
"""

from __future__ import annotations

import re
from typing import Final

from marketplace.domain.errors import Malformed

LOVELACE_PER_ADA: Final = 1_000_000
MICRO: Final = 1_000_000
SECONDS_AN_HOUR: Final = 3600
WHOLE: Final = 1000

_DURATION: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_MIB: Final = {
    "MB": 1, "MIB": 1, "GB": 1024, "GIB": 1024, "TB": 1024 * 1024, "TIB": 1024 * 1024,
}  # fmt: skip


def unit_ms(held_ms: int, units_milli: int) -> int:
    """Delivered device- or core-milliseconds: time held x share of devices (or cores), floored.

    *units_milli* is devices x per-mille share, or milli-cores; constant within a lease.
    """
    return held_ms * units_milli // WHOLE


def owed(unit_ms_total: int, rate_micro: int) -> int:
    """Lovelace for a lease's total: ``floor(ms x rate / 10^9)``, so the error is under one."""
    return unit_ms_total * rate_micro // 1_000_000_000


def most_owed(duration_ms: int, units_milli: int, rate_micro: int) -> int:
    """Lovelace that a run of at most *duration_ms* can come to, rounded up."""
    return owed(unit_ms(duration_ms, units_milli), rate_micro) + 1


def parse_duration_ms(text: str) -> int:
    """``90s``, ``15m``, ``6h``, ``2d`` in milliseconds."""
    match = re.fullmatch(r"\s*(\d{1,12})\s*(ms|s|m|h|d)\s*", text)
    if match is None:
        raise Malformed(f"{text!r} is not a duration such as 90s, 15m, 6h or 2d")
    return int(match[1]) * _DURATION[match[2]]


def parse_size_mib(text: str) -> int:
    """``512MB``, ``24GB``, ``1TB`` in MiB (powers of two)."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*([A-Za-z]{2,3})\s*", text)
    if match is None or match[2].upper() not in _SIZE_MIB:
        raise Malformed(f"{text!r} is not a size such as 512MB, 24GB or 1TB")
    return int(match[1]) * _SIZE_MIB[match[2].upper()]


def parse_money(text: str) -> int:
    """``40 ADA``, ``1.5 ADA``, ``2000 lovelace`` in lovelace; never by way of a float."""
    match = re.fullmatch(r"\s*(\d{1,12})(?:\.(\d{1,6}))?\s*(ADA|ada|₳|lovelace)\s*", text)
    if match is None:
        raise Malformed(f"{text!r} is not an amount such as 40 ADA or 2000 lovelace")
    whole, part, unit = int(match[1]), match[2] or "", match[3]
    if unit == "lovelace":
        if part:
            raise Malformed(f"{text!r}: a lovelace is not divisible")
        return whole
    return whole * LOVELACE_PER_ADA + int(part.ljust(6, "0") or "0")


def parse_rate_micro(text: str) -> int:
    """``2000 lovelace``, ``1900.5 lovelace`` or ``0.002 ADA`` a second, in micro-lovelace."""
    match = re.fullmatch(r"\s*(\d{1,9})(?:\.(\d{1,6}))?\s*lovelace\s*", text)
    if match is not None:
        return int(match[1]) * MICRO + int((match[2] or "").ljust(6, "0") or "0")
    return parse_money(text) * MICRO


def four_digits(lovelace: int) -> int:
    """The amount to four significant digits, half away from zero: what people compare."""
    unit = 10 ** max(0, len(str(abs(lovelace))) - 4)
    rounded = (abs(lovelace) + unit // 2) // unit * unit
    return -rounded if lovelace < 0 else rounded


def hourly(rate_micro: int) -> int:
    """Lovelace an hour of a rate in micro-lovelace a second, floored."""
    return rate_micro * SECONDS_AN_HOUR // MICRO


def show_ada(lovelace: int) -> str:
    """``1.234567 ADA``; exact."""
    sign = "-" if lovelace < 0 else ""
    whole, part = divmod(abs(lovelace), LOVELACE_PER_ADA)
    return f"{sign}{whole}.{part:06d} ADA"


def show_duration(ms: int) -> str:
    """``1h 2m 3s``, the two largest parts; ``850 ms`` below a second."""
    if ms < 1000:
        return f"{ms} ms"
    seconds, parts = ms // 1000, list[str]()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2])
