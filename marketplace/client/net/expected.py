"""What a start is expected to take, as the market says it, and in words."""

from __future__ import annotations

from typing import Final, TypedDict

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_KB, _MB, _GB = 10**3, 10**6, 10**9


class ExpectedStartAnswer(TypedDict):
    """*ms* until the workload runs; *pull_bytes*: what the host lacks of the image, packed, None
    where nobody knows; *bytes_s*: its last pulls' rate, 0 where it told of none.
    """

    ms: int
    here: bool
    pull_bytes: int | None
    bytes_s: int


def start_words(expected: ExpectedStartAnswer | None) -> str:
    """``4 s, image here`` or ``about 90 s, 6 GB to pull at 70 MB/s``; empty where nobody can
    say.
    """
    if expected is None:
        return ""
    took = _time(expected["ms"])
    if expected["here"]:
        return f"{took}, image here"
    if expected["pull_bytes"] is None:
        return f"about {took}, the whole image to pull"
    at = f" at {_size(expected['bytes_s'])}/s" if expected["bytes_s"] else ""
    return f"about {took}, {_size(expected['pull_bytes'])} to pull{at}"


def _time(ms: int) -> str:
    if ms < 10 * _SECOND:
        tenths = max(1, (ms + 50) // 100)
        return f"{_tenths(tenths)} s"
    if ms < 3 * _MINUTE:
        return f"{(ms + 500) // _SECOND} s"
    return f"{(ms + _MINUTE // 2) // _MINUTE} min"


def _size(count: int) -> str:
    for unit, name in ((_GB, "GB"), (_MB, "MB"), (_KB, "kB")):
        if count >= unit:
            return f"{_tenths((count * 10 + unit // 2) // unit)} {name}"
    return f"{count} B"


def _tenths(count: int) -> str:
    return f"{count // 10}.{count % 10}" if count % 10 else str(count // 10)
