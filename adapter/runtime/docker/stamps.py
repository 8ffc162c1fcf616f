"""Docker's stamps of time."""

from __future__ import annotations

import re
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
