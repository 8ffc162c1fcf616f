"""One look at a device or at the cores: what was seen, and the fault that it alone shows.

The Xid split follows NVIDIA's Xid catalogue (resolution buckets):
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from marketplace.domain import canonical

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
TENANT_XIDS: Final = frozenset({13, 31, 43, 45, 68, 69})
PROVIDER_XIDS: Final = frozenset({46, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120})
PASSING_XIDS: Final = frozenset({63, 92, 94})
"""Provider Xids after which the device still works: the segment is lost, billing may resume."""


class Phase(StrEnum):
    """What the workload was doing at a reading.  Only RUNNING time is billed."""

    RUNNING = "running"
    PAUSED = "paused"  # for want of a voucher
    ASSEMBLING = "assembling"  # a cluster's member before its first order to run
    STALLED = "stalled"  # one that its consumer holds
    EXITED = "exited"


class FaultClass(StrEnum):
    """Who answers for a fault."""

    TENANT = "tenant"  # billed to the exit: the device was delivered
    PROVIDER = "provider"  # not billed past the last good tick
    UNPROVEN = "unproven"  # nobody can show what happened: not billed


class Cause(StrEnum):
    """Why a stretch of time was not billed; the invoice shows one line for each."""

    PULLING = "pulling"  # before the workload ran
    STARTING = "starting"
    PAUSED = "paused"
    GPU_LOST = "gpu_lost"
    XID = "xid"
    ENERGY_RESET = "energy_reset"
    IDENTITY = "identity"  # another UUID, container or start time answered
    REBOOT = "reboot"
    NVML_GONE = "nvml_gone"
    SUSPENDED = "suspended"  # the host slept
    UNPROVEN = "unproven"  # a gap without proof of continuity
    CLOCK = "clock"  # boot time went backwards
    SYNCING = "syncing"  # a relay, before it was first at the tip
    LAGGING = "lagging"  # a relay whose tip is older than agreed
    UNREACHABLE = "unreachable"  # a relay that does not answer
    NOT_A_RELAY = "not_a_relay"  # it answers what no relay of its network does
    ASSEMBLING = "assembling"  # a cluster's member, before its consumer had all of them run
    GROUP_STALLED = "group_stalled"  # one that its consumer held

    @property
    def off_tip(self) -> bool:
        """Whether it says of a relay that it does not serve: the device is well."""
        return self in (Cause.SYNCING, Cause.LAGGING, Cause.UNREACHABLE, Cause.NOT_A_RELAY)

    @property
    def of_group(self) -> bool:
        """Whether it says of a cluster's member that it waits for others, unbilled."""
        return self in (Cause.ASSEMBLING, Cause.GROUP_STALLED)

    @property
    def fault_class(self) -> FaultClass | None:
        """Who answers for it; None for the free phases of a healthy lease."""
        if self in (Cause.PULLING, Cause.STARTING, Cause.PAUSED) or self.off_tip or self.of_group:
            return None
        return FaultClass.UNPROVEN if self is Cause.UNPROVEN else FaultClass.PROVIDER


def classify_xid(xid: int) -> FaultClass | None:
    """Who answers for an Xid; None for one that is only recorded."""
    if xid in TENANT_XIDS:
        return FaultClass.TENANT
    return FaultClass.PROVIDER if xid in PROVIDER_XIDS else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the device showed at a reading: recorded, never the price.

    *energy_mj* is the driver's cumulative counter; *util_permille* is the share of the last sample
    period in which a kernel ran (None on MIG without GPM); *cpu_ns* is the cgroup's cumulative CPU;
    *tip* is the slot and the hash of a relay's last block, as it says; *written_kib* what was ever
    written to a volume's file system, as that counts it.
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
    tip: tuple[int, bytes] | None = None
    written_kib: int | None = None


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
            *([] if e.tip is None else [list(e.tip)]),
            *([] if e.written_kib is None else [e.written_kib]),
        ]
        return canonical.blake2b_256(b"\x00" + canonical.encode(row))


def reading_fault(reading: Reading, device: str) -> Cause | None:
    """The provider's fault that this reading alone shows, or None."""
    if reading.fault is not None:
        return reading.fault
    if reading.device != device:
        return Cause.IDENTITY
    if any(classify_xid(xid) is FaultClass.PROVIDER for xid in reading.xids):
        return Cause.XID
    return None
