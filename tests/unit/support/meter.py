"""A meter against its workload's own times."""

from __future__ import annotations

from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import NS_PER_MS


def off_by_ms(meter: Meter, started_ms: int, finished_ms: int) -> int:
    """How much more or less than the workload's life the meter saw, billed or not."""
    seen = meter.billed_ns + sum(ns for _cause, ns in meter.lost_ns)
    return seen // NS_PER_MS - (finished_ms - started_ms)
