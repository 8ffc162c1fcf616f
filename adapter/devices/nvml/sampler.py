"""The cheap readings of devices: energy, utilisation, memory, clocks, temperature and Xids.

Every method asks NVML, so it runs in :class:`~adapter.devices.nvml.thread.NvmlThread`.
"""

from __future__ import annotations

from collections.abc import ItemsView
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from adapter.devices.nvml.describe import memory_mib, optional
from adapter.devices.nvml.faults import DeviceUnknown, NvmlFault, map_nvml
from marketplace.domain.metering.reading import Evidence

_HARDWARE_SLOWDOWN: Final = (
    pynvml.nvmlClocksEventReasonHwSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One poll of one device; *error* is set, and evidence empty, when it could not be read."""

    uuid: str
    evidence: Evidence = field(default_factory=Evidence)
    xids: tuple[int, ...] = ()
    error: NvmlFault | None = None


class Handles:
    """NVML's handles of devices by UUID, as far as they were asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def of(self, uuid: str) -> Any:
        """The device's handle; pynvml's error where no device has this UUID."""
        found = self._known.get(uuid)
        if found is None:
            found = self._known[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return found

    def items(self) -> ItemsView[str, Any]:
        """(UUID, handle) of every device that was asked for."""
        return self._known.items()

    def forget(self, uuid: str) -> None:
        """Ask again for this device."""
        self._known.pop(uuid, None)

    def clear(self) -> None:
        """Ask again for every device: MIG or the library changed."""
        self._known.clear()


class Sampler:
    """Takes samples, and keeps what lies between two of them: waiting Xids and GPM samples."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._events: Any = None
        self._pending: dict[str, list[int]] = {}
        self._gpm: dict[str, list[Any]] = {}

    def register(self) -> None:
        """Ask for Xid events; they are optional, a driver without them only loses that evidence."""
        try:
            events = pynvml.nvmlEventSetCreate()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                wanted = pynvml.nvmlEventTypeXidCriticalError
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            self._events = events
        except pynvml.NVMLError:
            self._events = None

    def forget_slices(self) -> None:
        """A slice is gone: its GPM samples mean nothing to the next one."""
        self._gpm.clear()

    def samples(self, uuids: tuple[str, ...]) -> dict[str, Sample]:
        """One sample of each device, with the Xids since its last one."""
        self._collect_xids()
        return {uuid: self._sample(uuid) for uuid in uuids}

    def _sample(self, uuid: str) -> Sample:
        xids = tuple(self._pending.pop(uuid, ()))
        try:
            with map_nvml(uuid):
                handle = self._handles.of(uuid)
                found = pynvml.nvmlDeviceGetUUID(handle)
                if found != uuid:
                    raise DeviceUnknown(f"{uuid}: {found} answers in its place")
                return Sample(uuid, self._evidence(uuid, handle), xids)
        except NvmlFault as fault:
            self._handles.forget(uuid)
            return Sample(uuid, xids=xids, error=fault)

    def _evidence(self, uuid: str, handle: Any) -> Evidence:
        parent = handle
        if uuid.startswith("MIG-"):
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        energy = optional(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(parent))
        memory = optional(lambda: memory_mib(handle)[1])
        clock = optional(lambda: pynvml.nvmlDeviceGetClockInfo(parent, pynvml.NVML_CLOCK_SM))
        reasons = optional(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(parent))
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return Evidence(
            energy_mj=energy,
            util_permille=self._utilisation(uuid, handle, parent),
            memory_mib=memory,
            sm_clock_mhz=clock,
            temperature_c=optional(lambda: pynvml.nvmlDeviceGetTemperature(parent, sensor)),
            throttled=bool((reasons or 0) & _HARDWARE_SLOWDOWN),
        )

    def _utilisation(self, uuid: str, handle: Any, parent: Any) -> int | None:
        if not uuid.startswith("MIG-"):
            rate = optional(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            return None if rate is None else int(rate) * 10
        return optional(lambda: self._gpm_utilisation(uuid, handle, parent))

    def _gpm_utilisation(self, uuid: str, handle: Any, parent: Any) -> int | None:
        """SM utilisation between this sample and the last (Hopper and later), per mille."""
        pair = self._gpm.get(uuid)
        if pair is None:
            if not pynvml.nvmlGpmQueryDeviceSupport(parent).isSupportedDevice:
                return None
            pair = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        instance = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        old, new = pair
        pynvml.nvmlGpmMigSampleGet(parent, instance, new)
        first = uuid not in self._gpm
        self._gpm[uuid] = [new, old]
        if first:
            return None
        wanted: Any = pynvml.c_nvmlGpmMetricsGet_t()
        wanted.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics = 1
        wanted.sample1, wanted.sample2 = old, new
        wanted.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
        found: Any = pynvml.nvmlGpmMetricsGet(wanted)
        return int(found.metrics[0].value * 10)

    def _collect_xids(self) -> None:
        while self._events is not None:
            try:
                event: Any = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
            except pynvml.NVMLError:
                return  # Timeout: no event is waiting
            part = int(event.gpuInstanceId)
            for name in self._affected(uuid, part):
                self._pending.setdefault(name, []).append(int(event.eventData))

    def _affected(self, uuid: str, part: int) -> list[str]:
        """The device itself, or its known slices: one of them, or all for a whole-GPU event."""
        names = [uuid]
        for name, handle in self._handles.items():
            if not name.startswith("MIG-"):
                continue
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            if pynvml.nvmlDeviceGetUUID(parent) != uuid:
                continue
            if part in (0xFFFFFFFF, pynvml.nvmlDeviceGetGpuInstanceId(handle)):
                names.append(name)
        return names
