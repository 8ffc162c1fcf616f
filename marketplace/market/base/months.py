"""The months that an API key's cap counts by: calendar months, UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def month_of(ms: int) -> int:
    """``202611`` for a time in November 2026."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.year * 100 + at.month


def next_month_ms(ms: int) -> int:
    """When the month after that of *ms* begins."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    year, month = (at.year + 1, 1) if at.month == 12 else (at.year, at.month + 1)
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000
