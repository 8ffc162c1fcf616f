"""A lease's totals over all of its meters: what a receipt states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marketplace.domain.metering.merkle import merkle_root
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import NS_PER_MS, Cause
from marketplace.domain.units import Resource


@dataclass(frozen=True, slots=True)
class Usage:
    """A lease's totals over all its devices: what a receipt states.

    *gpu_ms* and *core_ms* are delivered milliseconds times share or cores; *lost_ms* holds the
    longest loss of any device by cause; *root* is the Merkle root over the meters' roots.
    """

    gpu_ms: int = 0
    core_ms: int = 0
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
        """What is billed: GPU-milliseconds of a GPU lease, core-milliseconds of a CPU lease."""
        return self.gpu_ms if resource == "gpu" else self.core_ms


def usage(meters: Iterable[Meter]) -> Usage:
    """The totals of one lease's meters, in the order of their device names."""
    ordered = sorted(meters, key=lambda meter: (meter.resource, meter.device))
    lost: dict[Cause, int] = {}
    for meter in ordered:
        for cause, ms in meter.lost_ms().items():
            lost[cause] = max(lost.get(cause, 0), ms)
    gpus = [meter for meter in ordered if meter.resource == "gpu"]
    billed = sum(meter.billed_ns for meter in gpus)
    return Usage(
        gpu_ms=sum(meter.unit_ms for meter in gpus),
        core_ms=sum(meter.unit_ms for meter in ordered if meter.resource == "core"),
        lost_ms=tuple(sorted(lost.items())),
        energy_mj=sum(meter.summary.energy_mj for meter in ordered),
        cpu_ms=sum(meter.summary.cpu_ns for meter in ordered) // NS_PER_MS,
        util_permille=sum(m.summary.util_ns_permille for m in gpus) // billed if billed else 0,
        memory_max_mib=max((meter.summary.memory_max_mib for meter in ordered), default=0),
        throttled_ms=sum(meter.summary.throttled_ns for meter in ordered) // NS_PER_MS,
        xids=tuple(sorted({xid for meter in ordered for xid in meter.summary.xids})),
        readings=sum(meter.summary.readings for meter in ordered),
        root=merkle_root(meter.log.root for meter in ordered),
    )
