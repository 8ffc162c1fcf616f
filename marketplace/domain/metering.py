"""From readings to usage: what a delivered millisecond is, and which milliseconds are not billed.

Pure.  A :class:`Meter` follows one device (or the cores) of one workload; :func:`integrate` folds
the next :class:`Reading` into it.  The rules are those of the metering specification:

* time is the difference of two CLOCK_BOOTTIME readings, never a count of ticks;
* a segment is billed only between two readings that are both healthy and RUNNING (or the exit);
* a fault stops billing at the *last good* reading, and the time is shown under its :class:`Cause`;
* a missed poll of at most 5 s is bridged; a longer one only with the same boot, workload and start
  time and a counter that did not go backwards (energy for a GPU, CPU time for cores);
* a host that slept delivered nothing: boot time that ran ahead of monotonic time is not billed.

The Xid split follows NVIDIA's Xid catalogue (resolution buckets):
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html

Over 400 lines: the rules of counting and the evidence for them are one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, cast

from marketplace.domain import canonical
from marketplace.domain.canonical import want_int
from marketplace.domain.errors import Malformed
from marketplace.domain.units import WHOLE, Resource

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
BRIDGE_NS: Final = 5 * NS_PER_S
"""A missed poll up to this long needs no proof of continuity."""
SLEEP_NS: Final = NS_PER_S
"""Boot time may run ahead of monotonic time by this much before the host counts as asleep."""

TENANT_XIDS: Final = frozenset({13, 31, 43, 45, 68, 69})
PROVIDER_XIDS: Final = frozenset({46, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120})
PASSING_XIDS: Final = frozenset({63, 92, 94})
"""Provider Xids after which the device still works: the segment is lost, billing may resume."""


class MeterMalformed(Malformed):
    """Bytes that should hold a meter or a reading do not."""

    code = "METER_MALFORMED"
    remedy = "the journal's row is damaged or of another version; restore the journal"


class Phase(StrEnum):
    """What the workload was doing at a reading.  Only RUNNING time is billed."""

    STARTING = "starting"  # pulling and starting
    RUNNING = "running"
    PAUSED = "paused"  # for want of a voucher
    SCRUBBING = "scrubbing"
    EXITED = "exited"


class FaultClass(StrEnum):
    """Who answers for a fault."""

    TENANT = "tenant"  # billed to the exit: the device was delivered
    PROVIDER = "provider"  # not billed past the last good tick
    UNPROVEN = "unproven"  # nobody can show what happened: not billed


class Cause(StrEnum):
    """Why a stretch of time was not billed; the invoice shows one line for each."""

    STARTING = "starting"
    SCRUBBING = "scrubbing"
    PAUSED = "paused"
    GPU_LOST = "gpu_lost"
    XID = "xid"
    ENERGY_RESET = "energy_reset"
    IDENTITY = "identity"  # another UUID, container or start time answered
    REBOOT = "reboot"
    NVML_GONE = "nvml_gone"
    UNREACHABLE = "unreachable"  # the workload's port
    SUSPENDED = "suspended"  # the host slept
    UNPROVEN = "unproven"  # a gap without proof of continuity
    CLOCK = "clock"  # boot time went backwards

    @property
    def fault_class(self) -> FaultClass | None:
        """Who answers for it; None for the free phases of a healthy lease."""
        if self in (Cause.STARTING, Cause.SCRUBBING, Cause.PAUSED):
            return None
        return FaultClass.UNPROVEN if self is Cause.UNPROVEN else FaultClass.PROVIDER


_FREE: Final = {
    Phase.STARTING: Cause.STARTING,
    Phase.PAUSED: Cause.PAUSED,
    Phase.SCRUBBING: Cause.SCRUBBING,
}


def classify_xid(xid: int) -> FaultClass | None:
    """Who answers for an Xid; None for one that is only recorded."""
    if xid in TENANT_XIDS:
        return FaultClass.TENANT
    return FaultClass.PROVIDER if xid in PROVIDER_XIDS else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the device showed at a reading: recorded, never the price.

    *energy_mj* is the driver's cumulative counter; *util_permille* is the share of the last sample
    period in which a kernel ran (None on MIG without GPM); *cpu_ns* is the cgroup's cumulative CPU.
    """

    energy_mj: int | None = None
    util_permille: int | None = None
    memory_mib: int | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttled: bool = False
    cpu_ns: int | None = None
    pids: tuple[int, ...] = ()
    strangers: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One meter sample.

    *at_ns* is CLOCK_BOOTTIME, *mono_ns* CLOCK_MONOTONIC, *wall_ms* only a label.  *workload* and
    *started_ms* are the runtime's (container id and its start time): the proof of continuity.
    *fault* is set by the reader when a call failed in a way that has a cause.
    """

    at_ns: int
    mono_ns: int
    wall_ms: int
    boot_id: str
    device: str
    workload: str
    started_ms: int
    phase: Phase
    xids: tuple[int, ...] = ()
    fault: Cause | None = None
    evidence: Evidence = Evidence()

    def leaf(self) -> bytes:
        """The 32-byte Merkle leaf: blake2b_256 of 0x00 and the reading's canonical CBOR."""
        e = self.evidence
        row = [
            self.at_ns,
            self.mono_ns,
            self.wall_ms,
            self.boot_id,
            self.device,
            self.workload,
            self.started_ms,
            self.phase.value,
            list(self.xids),
            None if self.fault is None else self.fault.value,
            [e.energy_mj, e.util_permille, e.memory_mib, e.sm_clock_mhz, e.temperature_c],
            [e.throttled, e.cpu_ns, list(e.pids), e.strangers],
        ]
        return canonical.blake2b_256(b"\x00" + canonical.encode(row))


@dataclass(frozen=True, slots=True)
class MerkleLog:
    """The root over all readings, kept in logarithmic space (RFC 9162 tree shape, blake2b_256).

    *peaks* are the roots of the perfect subtrees, largest first; their sizes are the bits of
    *size*.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def add(self, leaf: bytes) -> MerkleLog:
        """The log with one more leaf."""
        peaks, size = list(self.peaks), self.size
        node = leaf
        while size & 1:
            node = canonical.blake2b_256(b"\x01" + peaks.pop() + node)
            size >>= 1
        return MerkleLog(self.size + 1, (*peaks, node))

    @property
    def root(self) -> bytes:
        """32 bytes; of an empty log, the hash of nothing."""
        if not self.peaks:
            return canonical.blake2b_256(b"")
        node = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            node = canonical.blake2b_256(b"\x01" + peak + node)
        return node


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """The root over *leaves*, for a verifier that holds them all."""
    log = MerkleLog()
    for leaf in leaves:
        log = log.add(leaf)
    return log.root


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

    *weight* is the device's share (per-mille) for a "gpu", milli-cores held for a "core".

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
    log: MerkleLog = MerkleLog()

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


def reading_fault(reading: Reading, device: str) -> Cause | None:
    """The provider's fault that this reading alone shows, or None."""
    if reading.fault is not None:
        return reading.fault
    if reading.device != device:
        return Cause.IDENTITY
    if any(classify_xid(xid) is FaultClass.PROVIDER for xid in reading.xids):
        return Cause.XID
    return None


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
    old, new = _counter(resource, before), _counter(resource, now)
    if old is not None and new is not None and new < old:
        return Cause.ENERGY_RESET if resource == "gpu" else Cause.UNPROVEN
    if elapsed > BRIDGE_NS and (old is None or (new is None and now.phase is not Phase.EXITED)):
        return Cause.UNPROVEN
    return None


def _counter(resource: Resource, reading: Reading) -> int | None:
    return reading.evidence.energy_mj if resource == "gpu" else reading.evidence.cpu_ns


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


def meter_to_wire(meter: Meter) -> dict[str, object]:
    """A plain map for the journal: everything that :func:`integrate` needs after a restart."""
    s, last = meter.summary, meter.last
    return {
        "resource": meter.resource,
        "device": meter.device,
        "weight": meter.weight,
        "billed_ns": meter.billed_ns,
        "lost_ns": [[cause.value, ns] for cause, ns in meter.lost_ns],
        "good_ns": meter.good_ns,
        "latched": None if meter.latched is None else meter.latched.value,
        "summary": [
            s.energy_mj,
            s.cpu_ns,
            s.util_ns_permille,
            s.memory_max_mib,
            s.throttled_ns,
            list(s.xids),
            s.strangers,
            s.readings,
        ],
        "log": [meter.log.size, list(meter.log.peaks)],
        "last": None if last is None else _reading_row(last),
    }


def _reading_row(r: Reading) -> list[object]:
    head: list[object] = [r.at_ns, r.mono_ns, r.wall_ms, r.boot_id, r.device, r.workload]
    counters = [r.evidence.energy_mj, r.evidence.cpu_ns]
    fault = None if r.fault is None else r.fault.value
    return [*head, r.started_ms, r.phase.value, list(r.xids), fault, counters]


def meter_from_wire(wire: Mapping[str, object]) -> Meter:
    """The inverse of :func:`meter_to_wire`; raises :class:`MeterMalformed`."""
    try:
        size, peaks = cast("tuple[int, list[bytes]]", wire["log"])
        lost = cast("list[tuple[str, int]]", wire["lost_ns"])
        latched = cast("str | None", wire["latched"])
        row_of = cast("list[object]", wire["summary"])
        xids = [want_int(xid, "xid") for xid in cast("list[object]", row_of[5])]
        s = [want_int(value, "summary") for value in (*row_of[:5], *row_of[6:])]
        row = cast("list[object] | None", wire["last"])
        return Meter(
            resource=_resource(wire["resource"]),
            device=cast("str", wire["device"]),
            weight=cast("int", wire["weight"]),
            billed_ns=cast("int", wire["billed_ns"]),
            lost_ns=tuple((Cause(cause), ns) for cause, ns in lost),
            last=None if row is None else _reading_from(row),
            good_ns=cast("int | None", wire["good_ns"]),
            latched=None if latched is None else Cause(latched),
            summary=Summary(s[0], s[1], s[2], s[3], s[4], tuple(xids), s[5], s[6]),
            log=MerkleLog(size, tuple(peaks)),
        )
    except (KeyError, ValueError, TypeError, IndexError, Malformed) as error:
        raise MeterMalformed(f"not a meter: {error}") from error


def _resource(value: object) -> Resource:
    if value == "gpu":
        return "gpu"
    if value == "core":
        return "core"
    raise MeterMalformed(f"{value!r} is not a resource")


def _reading_from(row: list[object]) -> Reading:
    at, mono, wall, boot, device, workload, started, phase, xids, fault, counters = row
    energy, cpu = cast("list[int | None]", counters)
    return Reading(
        at_ns=cast("int", at),
        mono_ns=cast("int", mono),
        wall_ms=cast("int", wall),
        boot_id=cast("str", boot),
        device=cast("str", device),
        workload=cast("str", workload),
        started_ms=cast("int", started),
        phase=Phase(cast("str", phase)),
        xids=tuple(cast("list[int]", xids)),
        fault=None if fault is None else Cause(cast("str", fault)),
        evidence=Evidence(energy_mj=energy, cpu_ns=cpu),
    )
