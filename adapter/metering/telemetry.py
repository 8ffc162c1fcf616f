"""Evidence for charts: what a lease's devices showed last.  Never the price."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from adapter.core.state import Lease
from marketplace.domain.metering.reading import Reading
from marketplace.domain.metering.usage import usage
from marketplace.domain.protocol import wire

SPARK: Final = 60


def telemetry(lease: Lease, readings: Iterable[Reading]) -> dict[str, int]:
    """Plain numbers: per-mille, MiB, mJ, ms; a value that no device gave is left out."""
    rows = list(readings)
    util = [r.evidence.util_permille for r in rows if r.evidence.util_permille is not None]
    memory = [r.evidence.memory_mib for r in rows if r.evidence.memory_mib is not None]
    heat = [r.evidence.temperature_c for r in rows if r.evidence.temperature_c is not None]
    totals = usage(lease.meters)
    values = {
        "unit_ms": totals.unit_ms(lease.terms.resource),
        "energy_mj": totals.energy_mj,
        "cpu_ms": totals.cpu_ms,
        "throttled_ms": totals.throttled_ms,
    }
    if tips := [r.evidence.tip for r in rows if r.evidence.tip is not None]:
        values["tip_slot"] = tips[0][0]
    if util:
        values["util_permille"] = sum(util) // len(util)
    if memory:
        values["memory_mib"] = sum(memory)
    if heat:
        values["temperature_c"] = max(heat)
    return values


@dataclass
class Gauges:
    """The last minute of each lease, for the status table and the metrics."""

    latest: dict[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    spark: dict[str, deque[int]] = field(default_factory=dict[str, deque[int]])
    looked: dict[str, wire.RelayLooked] = field(default_factory=dict[str, wire.RelayLooked])

    def note(self, lease: str, values: Mapping[str, int]) -> None:
        """Remember one look."""
        self.latest[lease] = values
        row = self.spark.setdefault(lease, deque(maxlen=SPARK))
        row.append(values.get("util_permille", 0))

    def forget(self, lease: str) -> None:
        """It is over."""
        self.latest.pop(lease, None)
        self.spark.pop(lease, None)
        self.looked.pop(lease, None)
