"""A lease's totals over all of its meters: what a receipt states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marketplace.domain.metering.kinds import Resource
from marketplace.domain.metering.merkle import merkle_root
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import NS_PER_MS, Cause


@dataclass(frozen=True, slots=True)
class Usage:
    """A lease's totals over all its devices: what a receipt states.

    *delivered_ms* holds delivered milliseconds times units by kind of resource; *lost_ms* the
    longest loss of any device by cause; *root* is the Merkle root over the meters' roots.
    """

    delivered_ms: tuple[tuple[Resource, int], ...] = ()
    lost_ms: tuple[tuple[Cause, int], ...] = ()
    energy_mj: int = 0
    cpu_ms: int = 0
    util_permille: int = 0
    memory_max_mib: int = 0
    throttled_ms: int = 0
    xids: tuple[int, ...] = ()
    readings: int = 0
    root: bytes = b""

    def unit_ms(self, resource: Resource) -> int:
        """What is billed of a lease of *resource*: GPU-milliseconds, core-milliseconds."""
        return dict(self.delivered_ms).get(resource, 0)


def usage(meters: Iterable[Meter]) -> Usage:
    """The totals of one lease's meters, in the order of their device names."""
    ordered = sorted(meters, key=lambda meter: (meter.resource, meter.device))
    lost: dict[Cause, int] = {}
    delivered: dict[Resource, int] = {}
    for meter in ordered:
        delivered[meter.resource] = delivered.get(meter.resource, 0) + meter.unit_ms
        for cause, ms in meter.lost_ms().items():
            lost[cause] = max(lost.get(cause, 0), ms)
    billed = sum(meter.billed_ns for meter in ordered)
    return Usage(
        delivered_ms=tuple(delivered.items()),
        lost_ms=tuple(sorted(lost.items())),
        energy_mj=sum(meter.summary.energy_mj for meter in ordered),
        cpu_ms=sum(meter.summary.cpu_ns for meter in ordered) // NS_PER_MS,
        util_permille=sum(m.summary.util_ns_permille for m in ordered) // billed if billed else 0,
        memory_max_mib=max((meter.summary.memory_max_mib for meter in ordered), default=0),
        throttled_ms=sum(meter.summary.throttled_ns for meter in ordered) // NS_PER_MS,
        xids=tuple(sorted({xid for meter in ordered for xid in meter.summary.xids})),
        readings=sum(meter.summary.readings for meter in ordered),
        root=merkle_root(meter.log.root for meter in ordered),
    )
