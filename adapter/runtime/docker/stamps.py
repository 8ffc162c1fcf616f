"""Docker's stamps of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime


def milliseconds(stamp: object) -> int | None:
    """Docker's RFC 3339 stamp with nanoseconds as milliseconds; None for its zero time."""
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", str(stamp or "")
    )
    if match is None or match[1].startswith("0001"):
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    whole = datetime.fromisoformat(match[1] + zone).astimezone(UTC)
    return int(whole.timestamp()) * 1000 + int((match[2] or "0").ljust(9, "0")[:3])


def ran(state: Mapping[str, object], begun_ms: int) -> tuple[int, int | None]:
    """When a container began and ended, by its ``State``; *begun_ms* where that says no start.
    It ends no sooner than it begins: Docker writes the start down once the program runs, and a
    short one may be over by then.
    """
    started = milliseconds(state.get("StartedAt")) or begun_ms
    finished = milliseconds(state.get("FinishedAt"))
    return started, None if finished is None else max(started, finished)
