"""From readings to delivered time: which milliseconds are billed, and why others are not.

Pure.  A :class:`Meter` follows one device (or the cores) of one workload; :func:`integrate` folds
the next :class:`Reading` into it.  The rules are those of the metering specification:

* time is the difference of two CLOCK_BOOTTIME readings, never a count of ticks;
* a segment is billed only between two readings that are both healthy and RUNNING (or the exit);
* a fault stops billing at the *last good* reading, and the time is shown under its :class:`Cause`;
* a missed poll of at most 5 s is bridged; a longer one only with the same boot, workload and start
  time and a counter that did not go backwards (energy for a GPU, CPU time for cores), and never
  for a relay, of which no counter shows that it served;
* a host that slept delivered nothing: boot time that ran ahead of monotonic time is not billed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from marketplace.domain.metering.kinds import KINDS, Resource
from marketplace.domain.metering.merkle import MerkleLog
from marketplace.domain.metering.reading import (
    NS_PER_MS,
    NS_PER_S,
    PASSING_XIDS,
    PROVIDER_XIDS,
    Cause,
    Phase,
    Reading,
    reading_fault,
)
from marketplace.domain.units import WHOLE

BRIDGE_NS: Final = 5 * NS_PER_S
"""A missed poll up to this long needs no proof of continuity."""
SLEEP_NS: Final = NS_PER_S
"""Boot time may run ahead of monotonic time by this much before the host counts as asleep."""

_FREE: Final = {
    Phase.PAUSED: Cause.PAUSED,
    Phase.ASSEMBLING: Cause.ASSEMBLING,
    Phase.STALLED: Cause.GROUP_STALLED,
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Evidence over a meter's life: totals and extremes that go into a receipt."""

    energy_mj: int = 0
    cpu_ns: int = 0
    util_ns_permille: int = 0  # integral of utilisation over billed time
    memory_max_mib: int = 0
    throttled_ns: int = 0
    xids: tuple[int, ...] = ()
    strangers: int = 0
    readings: int = 0


@dataclass(frozen=True, slots=True)
class Meter:
    """The account of one device of one workload, or of its cores.

    *weight* is the share (per-mille) of a device, else the thousandths of a unit that are held.

    *billed_ns* is delivered time before the weight; *lost_ns* is what was not billed, by cause.
    *latched* is a fault that only a new workload clears.
    """

    resource: Resource
    device: str
    weight: int
    billed_ns: int = 0
    lost_ns: tuple[tuple[Cause, int], ...] = ()
    last: Reading | None = None
    good_ns: int | None = None
    latched: Cause | None = None
    summary: Summary = Summary()
    log: MerkleLog = field(default_factory=MerkleLog)

    @property
    def unit_ms(self) -> int:
        """Delivered milliseconds times weight: GPU-milliseconds, or core-milliseconds."""
        return self.billed_ns * self.weight // (WHOLE * NS_PER_MS)

    @property
    def delivered_ms(self) -> int:
        """Delivered milliseconds, before the weight."""
        return self.billed_ns // NS_PER_MS

    @property
    def fault(self) -> Cause | None:
        """The cause that stands now, if the last reading was not a good one."""
        if self.latched is not None or self.last is None:
            return self.latched
        return reading_fault(self.last, self.device)

    def lost_ms(self) -> dict[Cause, int]:
        """Milliseconds not billed, by cause."""
        return {cause: ns // NS_PER_MS for cause, ns in self.lost_ns if ns >= NS_PER_MS}


def _discontinuity(resource: Resource, before: Reading, now: Reading) -> Cause | None:
    """Why the time between two healthy readings cannot be billed, or None."""
    if now.boot_id != before.boot_id:
        return Cause.REBOOT
    elapsed = now.at_ns - before.at_ns
    if elapsed < 0:
        return Cause.CLOCK
    if (now.workload, now.started_ms) != (before.workload, before.started_ms):
        return Cause.IDENTITY
    if elapsed - (now.mono_ns - before.mono_ns) > SLEEP_NS:
        return Cause.SUSPENDED
    counter = KINDS[resource].counter
    old, new = counter(before.evidence), counter(now.evidence)
    if old is not None and new is not None and new < old:
        return KINDS[resource].fell
    if elapsed > BRIDGE_NS and now.evidence.tip is not None:
        return Cause.UNPROVEN  # a counter shows that a relay ran, and not that it served
    if elapsed > BRIDGE_NS and (old is None or (new is None and now.phase is not Phase.EXITED)):
        return Cause.UNPROVEN
    return None


def _verdict(meter: Meter, before: Reading, now: Reading) -> Cause | None:
    """Why the segment before → now is not billed; None means that it is."""
    gap = _discontinuity(meter.resource, before, now)
    if gap in (Cause.REBOOT, Cause.CLOCK):
        return gap
    standing = meter.latched or reading_fault(before, meter.device)
    fresh = reading_fault(now, meter.device)
    if standing is not None or fresh is not None:
        return standing or fresh
    if before.phase in _FREE:
        return _FREE[before.phase]
    if now.phase in _FREE:  # the change came between two readings: only the last good one counts
        return _FREE[now.phase]
    return gap


def integrate(meter: Meter, now: Reading) -> Meter:
    """The meter after one more reading.

    A repeated or older reading of the same boot changes nothing but the log's CLOCK line: the
    high-water mark stays, so no instant is ever billed twice.  After EXITED nothing is billed.
    """
    before = meter.last
    log = meter.log.add(now.leaf())
    fault = reading_fault(now, meter.device)
    latched = meter.latched or _latch(now, fault)
    if before is None:
        good = now.at_ns if fault is None and now.phase is Phase.RUNNING else None
        summary = _summarise(meter.summary, None, now, 0)
        return replace(meter, last=now, good_ns=good, latched=latched, summary=summary, log=log)
    if before.phase is Phase.EXITED:
        return replace(meter, log=log)
    cause = _verdict(meter, before, now)
    if cause is Cause.CLOCK and now.phase is Phase.EXITED:  # it ended before the last poll saw it
        ended = replace(now, at_ns=before.at_ns, mono_ns=before.mono_ns)
        return replace(meter, last=ended, log=log)
    if cause is Cause.CLOCK:
        return replace(meter, log=log, lost_ns=_lose(meter.lost_ns, Cause.CLOCK, 0))
    elapsed = 0 if cause is Cause.REBOOT else now.at_ns - before.at_ns
    billed = elapsed if cause is None else 0
    lost = meter.lost_ns if cause is None else _lose(meter.lost_ns, cause, elapsed)
    return replace(
        meter,
        billed_ns=meter.billed_ns + billed,
        lost_ns=lost,
        last=now,
        good_ns=now.at_ns if fault is None and latched is None else meter.good_ns,
        latched=latched,
        summary=_summarise(meter.summary, before, now, billed),
        log=log,
    )


def _latch(now: Reading, fault: Cause | None) -> Cause | None:
    """A device that fell off the bus stays fallen, however healthy a hung driver looks."""
    if fault is Cause.XID:
        grave = set(now.xids) & (PROVIDER_XIDS - PASSING_XIDS)
        return Cause.XID if grave else None
    return fault if fault in (Cause.GPU_LOST, Cause.IDENTITY) else None


def _lose(
    lost: tuple[tuple[Cause, int], ...], cause: Cause, elapsed: int
) -> tuple[tuple[Cause, int], ...]:
    table = dict(lost)
    table[cause] = table.get(cause, 0) + elapsed
    return tuple(sorted(table.items()))


def _summarise(old: Summary, before: Reading | None, now: Reading, billed: int) -> Summary:
    e = now.evidence
    energy = cpu = 0
    if before is not None and now.boot_id == before.boot_id:
        energy = _growth(before.evidence.energy_mj, e.energy_mj)
        cpu = _growth(before.evidence.cpu_ns, e.cpu_ns)
    return Summary(
        energy_mj=old.energy_mj + energy,
        cpu_ns=old.cpu_ns + cpu,
        util_ns_permille=old.util_ns_permille + billed * (e.util_permille or 0),
        memory_max_mib=max(old.memory_max_mib, e.memory_mib or 0),
        throttled_ns=old.throttled_ns + (billed if e.throttled else 0),
        xids=tuple(sorted({*old.xids, *now.xids})),
        strangers=old.strangers + e.strangers,
        readings=old.readings + 1,
    )


def _growth(old: int | None, new: int | None) -> int:
    return 0 if old is None or new is None else max(0, new - old)
