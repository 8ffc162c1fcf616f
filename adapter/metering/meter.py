"""The meter's hands: takes readings of running workloads.

The arithmetic is ``marketplace.domain.metering.meter``, and ``adapter.core.ticks`` folds the
readings in; here are the polls.  One visit to NVML's thread reads every device of the host; process
lists are asked for every 10 s; nothing is asked more than twice a second.  Call
:meth:`Metering.poll` on the tick, and once more at every change of phase, so that the last good
reading lies next to the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from adapter.devices.nvml.faults import DeviceLost, DeviceUnknown, NvmlFault
from adapter.devices.nvml.nvml import GpuProcess, Nvml
from adapter.devices.nvml.sampler import Sample
from adapter.host.cgroup import Cgroups
from adapter.host.clock import Clock
from adapter.host.processes import Attribution
from marketplace.domain.metering.meter import BRIDGE_NS
from marketplace.domain.metering.reading import NS_PER_MS, Cause, Evidence, Phase, Reading

PROCESSES_EVERY_NS: Final = 10_000_000_000
CORES: Final = "cores"
"""The device name of a lease's cores."""
VOLUME: Final = "volume"
"""That of a lease's disk."""


class Devices(Protocol):
    """What the meter needs of NVML."""

    def samples(self, uuids: Iterable[str]) -> dict[str, Sample]:
        """The cheap readings of these devices."""
        ...

    def processes(self, uuid: str) -> list[GpuProcess]:
        """What runs on a device."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload to be metered.

    *devices* are GPU UUIDs (empty for a CPU lease), *cgroup* its control group, *workload* and
    *started_ms* its identity for continuity.  *finished_ms* is set when it has exited.  *fault* is
    what the adapter knows beyond the device: UNPROVEN, where it fell with its runtime, or why a
    relay does not serve. *tip* is evidence: a relay's, as it says. *volume*: it is a lease of disk,
    to whose file system *written_kib* were written in all.
    """

    lease: str
    workload: str
    started_ms: int
    phase: Phase
    devices: tuple[str, ...] = ()
    cgroup: str = ""
    finished_ms: int | None = None
    fault: Cause | None = None
    tip: tuple[int, bytes] | None = None
    volume: bool = False
    written_kib: int | None = None


class Metering:
    """Takes readings.  *devices* is None on a host without GPUs."""

    def __init__(
        self,
        clock: Clock,
        devices: Devices | Nvml | None = None,
        cgroups: Cgroups | None = None,
        attribution: Attribution | None = None,
    ) -> None:
        self._clock = clock
        self._devices = devices
        self._cgroups = cgroups or Cgroups()
        self._attribution = attribution or Attribution()
        self._listed: dict[str, int] = {}
        self._owners: dict[str, tuple[tuple[int, ...], int]] = {}
        self._silent: dict[str, int] = {}
        self._cpu: dict[str, int] = {}

    def poll(self, subjects: Iterable[Subject]) -> dict[str, list[Reading]]:
        """One reading for each device of each subject, by lease.

        A poll that failed for a reason that may pass (a slow NVML) gives no reading at all, until
        it has failed for 5 s: then the reading says NVML_GONE.  Blocks at most NVML's deadline.
        """
        wanted = list(subjects)
        uuids = {uuid for one in wanted for uuid in one.devices}
        samples = self._samples(uuids)
        return {one.lease: self._readings(one, samples) for one in wanted}

    def _samples(self, uuids: set[str]) -> Mapping[str, Sample]:
        if not uuids:
            return {}
        if self._devices is None:
            absent = NvmlFault("this host has no NVML")
            return {uuid: Sample(uuid, error=absent) for uuid in uuids}
        try:
            return self._devices.samples(sorted(uuids))
        except NvmlFault as fault:
            return {uuid: Sample(uuid, error=fault) for uuid in uuids}

    def _readings(self, subject: Subject, samples: Mapping[str, Sample]) -> list[Reading]:
        if subject.volume:
            seen = Evidence(written_kib=subject.written_kib)
            return [replace(self._base(subject, VOLUME), evidence=seen)]
        if not subject.devices:
            return [self._core_reading(subject)]
        found = [self._gpu_reading(subject, samples[uuid]) for uuid in subject.devices]
        return [reading for reading in found if reading is not None]

    def _base(self, subject: Subject, device: str) -> Reading:
        """A reading without evidence, at now or at the workload's recorded end."""
        now, wall = self._clock.boot_ns(), self._clock.wall_ms()
        back = 0
        if subject.phase is Phase.EXITED and subject.finished_ms is not None:
            back = max(0, wall - subject.finished_ms) * NS_PER_MS
        return Reading(
            at_ns=now - back,
            mono_ns=self._clock.mono_ns() - back,
            wall_ms=wall - back // NS_PER_MS,
            boot_id=self._clock.boot_id(),
            device=device,
            workload=subject.workload,
            started_ms=subject.started_ms,
            phase=subject.phase,
            fault=subject.fault,
            evidence=Evidence(tip=subject.tip),
        )

    def _core_reading(self, subject: Subject) -> Reading:
        reading = self._base(subject, CORES)
        found = self._cgroups.usage(subject.cgroup) if subject.cgroup else None
        if found is not None:
            self._cpu[subject.lease] = found.cpu_ns
        elif subject.phase is not Phase.EXITED:
            return reading  # no counter: a long gap around this poll cannot be proven
        cpu = found.cpu_ns if found is not None else self._cpu.get(subject.lease)
        memory = None if found is None else found.memory_mib
        seen = replace(reading.evidence, cpu_ns=cpu, memory_mib=memory)
        return replace(reading, evidence=seen)

    def _gpu_reading(self, subject: Subject, sample: Sample) -> Reading | None:
        reading = self._base(subject, sample.uuid)
        reading = replace(reading, xids=sample.xids)
        if sample.error is not None:
            return self._failed(reading, sample)
        self._silent.pop(sample.uuid, None)
        pids, strangers = self._processes(subject, sample.uuid)
        cpu = self._cgroups.usage(subject.cgroup) if subject.cgroup else None
        evidence = replace(
            sample.evidence,
            cpu_ns=None if cpu is None else cpu.cpu_ns,
            pids=pids,
            strangers=strangers,
            tip=subject.tip,
        )
        return replace(reading, evidence=evidence)

    def _failed(self, reading: Reading, sample: Sample) -> Reading | None:
        if isinstance(sample.error, DeviceLost):
            return replace(reading, fault=Cause.GPU_LOST)
        if isinstance(sample.error, DeviceUnknown):
            return replace(reading, fault=Cause.IDENTITY)
        since = self._silent.setdefault(sample.uuid, self._clock.boot_ns())
        if reading.phase is Phase.EXITED or sample.xids or reading.fault is not None:
            return reading
        if self._clock.boot_ns() - since > BRIDGE_NS:
            return replace(reading, fault=Cause.NVML_GONE)
        return None

    def _processes(self, subject: Subject, uuid: str) -> tuple[tuple[int, ...], int]:
        now = self._clock.boot_ns()
        last = self._listed.get(uuid)
        fresh = last is not None and now - last < PROCESSES_EVERY_NS
        if self._devices is None or fresh:
            return self._owners.get(uuid, ((), 0))
        self._listed[uuid] = now
        try:
            pids = [process.pid for process in self._devices.processes(uuid)]
        except NvmlFault:
            return self._owners.get(uuid, ((), 0))  # evidence only; billing does not rest on it
        self._owners[uuid] = self._attribution.split(pids, subject.workload)
        return self._owners[uuid]

    def relist(self, uuid: str) -> None:
        """Ask for the device's processes at the next poll: at a workload's start and stop."""
        self._listed.pop(uuid, None)

    def forget(self, subject: Subject) -> None:
        """Drop what was remembered for a lease that is over."""
        self._cpu.pop(subject.lease, None)
        for uuid in subject.devices:
            self._listed.pop(uuid, None)
            self._owners.pop(uuid, None)
            self._silent.pop(uuid, None)
