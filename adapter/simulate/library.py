"""The simulated NVML library: what ``CDLL("libnvidia-ml.so.1")`` would be on a machine with GPUs.

It sits *below* unmodified pynvml: it exports C-shaped functions that write through ``byref`` and
return NVML's codes, so the binding, its struct handling and its errors are the real ones.  A
function that is not here is a missing symbol, as with an old driver.

Over 400 lines: one function per exported symbol, kept in one place like the header that it mirrors.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

from adapter.simulate.host import FaultKind, SimGpu, SimHost, SimSlice

_NO_INSTANCE: Final = 0xFFFFFFFF
_SLOT: Final = 1 << 32
_MARK: Final = 1 << 56
_PROFILES: Final = 17
"""Numbers of slice profiles that driver 580 knows; pynvml goes on to those of later ones."""

Call = Callable[..., int]


def _put(reference: Any, value: int) -> None:
    """Write a number where ``byref`` points."""
    reference._obj.value = value


def _put_handle(reference: Any, number: int) -> None:
    """Write an opaque handle where ``byref`` points."""
    ctypes.cast(ctypes.byref(reference._obj), ctypes.POINTER(ctypes.c_void_p))[0] = number


def _number(argument: Any) -> int:
    """A number, or the address that an opaque handle holds."""
    if isinstance(argument, int):
        return argument
    value = getattr(argument, "value", None)
    if isinstance(value, int):
        return value
    return ctypes.cast(argument, ctypes.c_void_p).value or 0


class SimulatedNvml:
    """The library object.  Handles are numbers: mark + device slot + slice slot."""

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.calls = 0
        self._profiles: dict[int, tuple[int, int]] = {}

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("nvml"):
            return value

        def entered(*arguments: Any) -> int:
            return self._enter(name, value, arguments)

        return entered

    def _enter(self, name: str, function: Call, arguments: tuple[Any, ...]) -> int:
        self.calls += 1
        host = self.host
        host.advance_script()
        while host.active(FaultKind.HANG) is not None:
            time.sleep(0.01)
        if name not in ("nvmlInitWithFlags", "nvmlErrorString"):
            if host.active(FaultKind.NVML_GONE):
                return pynvml.NVML_ERROR_UNINITIALIZED
            if host.active(FaultKind.MISSED):
                return pynvml.NVML_ERROR_UNKNOWN
        with host.lock:
            try:
                return function(*arguments)
            except _NvmlCode as stop:
                return stop.code

    def _gpu(self, handle: Any) -> SimGpu:
        number = _number(handle)
        place = (number & (_MARK - 1)) // _SLOT - 1
        if not number & _MARK or not 0 <= place < len(self.host.gpus):
            raise _NvmlCode(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if self.host.active(FaultKind.GPU_LOST, place):
            raise _NvmlCode(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.host.gpus[place]

    def _slice(self, handle: Any) -> SimSlice | None:
        part = _number(handle) % _SLOT
        if not part:
            return None
        for one in self._gpu(handle).slices:
            if one.id == part:
                return one
        raise _NvmlCode(pynvml.NVML_ERROR_NOT_FOUND)

    def _handle(self, gpu: SimGpu, part: int = 0) -> int:
        return _MARK + (gpu.index + 1) * _SLOT + part

    # -- the library ---------------------------------------------------------------------------

    def nvmlInitWithFlags(self, _flags: Any) -> int:
        gone = self.host.active(FaultKind.NVML_GONE)
        return pynvml.NVML_ERROR_DRIVER_NOT_LOADED if gone else pynvml.NVML_SUCCESS

    def nvmlShutdown(self) -> int:
        return pynvml.NVML_SUCCESS

    def nvmlSystemGetDriverVersion(self, buffer: Any, _length: Any) -> int:
        buffer.value = self.host.driver.encode()
        return pynvml.NVML_SUCCESS

    def nvmlSystemGetCudaDriverVersion_v2(self, version: Any) -> int:
        _put(version, 13000)
        return pynvml.NVML_SUCCESS

    # -- devices -------------------------------------------------------------------------------

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        _put(count, len(self.host.gpus))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        place = _number(index)
        if place >= len(self.host.gpus):
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        if self.host.active(FaultKind.GPU_LOST, place):
            return pynvml.NVML_ERROR_GPU_IS_LOST
        _put_handle(device, self._handle(self.host.gpus[place]))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetHandleByUUID(self, text: Any, device: Any) -> int:
        wanted = text.value.decode()
        for gpu in self.host.gpus:
            if gpu.uuid == wanted:
                self._gpu(self._handle(gpu))
                _put_handle(device, self._handle(gpu))
                return pynvml.NVML_SUCCESS
            for part in gpu.slices:
                if part.uuid == wanted and part.compute:
                    _put_handle(device, self._handle(gpu, part.id))
                    return pynvml.NVML_SUCCESS
        return pynvml.NVML_ERROR_NOT_FOUND

    def nvmlDeviceGetName(self, device: Any, buffer: Any, _length: Any) -> int:
        gpu, part = self._gpu(device), self._slice(device)
        buffer.value = (gpu.name + (f" MIG {part.profile.name}" if part else "")).encode()
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetUUID(self, device: Any, buffer: Any, _length: Any) -> int:
        gpu, part = self._gpu(device), self._slice(device)
        buffer.value = (part.uuid if part else gpu.uuid).encode()
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetPciInfo_v3(self, device: Any, info: Any) -> int:
        gpu = self._gpu(device)
        info._obj.busId = gpu.bus_id.encode()
        info._obj.bus = gpu.index + 1
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetCudaComputeCapability(self, device: Any, major: Any, minor: Any) -> int:
        _put(major, self._gpu(device).model.compute[0])
        _put(minor, self._gpu(device).model.compute[1])
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetMaxPcieLinkGeneration(self, device: Any, value: Any) -> int:
        _put(value, self._gpu(device).model.pcie[0])
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetMaxPcieLinkWidth(self, device: Any, value: Any) -> int:
        _put(value, self._gpu(device).model.pcie[1])
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetNvLinkState(self, device: Any, _link: Any, active: Any) -> int:
        if not self._gpu(device).model.nvlink:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        _put(active, int(len(self.host.gpus) > 1))
        return pynvml.NVML_SUCCESS

    # -- evidence ------------------------------------------------------------------------------

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        gpu, part = self._gpu(device), self._slice(device)
        held = sum(p.memory_mib for p in gpu.processes if part and p.slice_id == part.id)
        total = part.profile.memory_mib if part else gpu.model.vram_mib
        used = held if part else gpu.used_mib
        info = memory._obj
        info.total, info.used, info.free = total << 20, used << 20, (total - used) << 20
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> int:
        gpu = self._gpu(device)
        if gpu.mig:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        rates._obj.gpu = gpu.load
        rates._obj.memory = gpu.load // 2
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, energy: Any) -> int:
        gpu = self._gpu(device)
        gpu.settle(self.host.clock.boot_ns())
        _put(energy, gpu.energy_uj // 1000)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetPowerUsage(self, device: Any, power: Any) -> int:
        _put(power, self._gpu(device).power_w * 1000)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetClockInfo(self, device: Any, _kind: Any, clock: Any) -> int:
        gpu = self._gpu(device)
        slow = self.host.active(FaultKind.THROTTLE, gpu.index)
        _put(clock, gpu.model.clock_mhz // (2 if slow else 1) if gpu.load else 210)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetTemperature(self, device: Any, _sensor: Any, value: Any) -> int:
        _put(value, 32 + self._gpu(device).load * 45 // 100)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: Any, reasons: Any) -> int:
        slow = self.host.active(FaultKind.THROTTLE, self._gpu(device).index)
        _put(reasons, pynvml.nvmlClocksEventReasonHwSlowdown if slow else 0)
        return pynvml.NVML_SUCCESS

    # -- processes -----------------------------------------------------------------------------

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, rows: Any) -> int:
        gpu, part = self._gpu(device), self._slice(device)
        found = [p for p in gpu.processes if part is None or p.slice_id == part.id]
        room = count._obj.value
        _put(count, len(found))
        if not found:
            return pynvml.NVML_SUCCESS
        if rows is None or room < len(found):
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for row, process in zip(rows, found, strict=False):
            row.pid, row.usedGpuMemory = process.pid, process.memory_mib << 20
            row.gpuInstanceId = process.slice_id
            row.computeInstanceId = 0 if process.slice_id != _NO_INSTANCE else _NO_INSTANCE
        return pynvml.NVML_SUCCESS

    # -- events --------------------------------------------------------------------------------

    def nvmlEventSetCreate(self, events: Any) -> int:
        _put_handle(events, _MARK)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceRegisterEvents(self, device: Any, _types: Any, _events: Any) -> int:
        self._gpu(device)
        return pynvml.NVML_SUCCESS

    def nvmlEventSetWait_v2(self, _events: Any, data: Any, _timeout: Any) -> int:
        if not self.host.events:
            return pynvml.NVML_ERROR_TIMEOUT
        gpu, xid = self.host.events.pop(0)
        slot = ctypes.cast(ctypes.byref(data._obj), ctypes.POINTER(ctypes.c_void_p))
        slot[0] = self._handle(gpu)
        data._obj.eventType = pynvml.nvmlEventTypeXidCriticalError
        data._obj.eventData = xid
        data._obj.gpuInstanceId = _NO_INSTANCE
        data._obj.computeInstanceId = _NO_INSTANCE
        return pynvml.NVML_SUCCESS

    def nvmlEventSetFree(self, _events: Any) -> int:
        return pynvml.NVML_SUCCESS

    # -- GPM: utilisation between two samples, the only one that MIG has --------------------------

    def nvmlGpmQueryDeviceSupport(self, device: Any, support: Any) -> int:
        support._obj.isSupportedDevice = int(self._gpu(device).model.gpm)
        return pynvml.NVML_SUCCESS

    def nvmlGpmSampleAlloc(self, sample: Any) -> int:
        number = _MARK + len(self._profiles) + 1
        self._profiles[number] = (0, 0)
        _put_handle(sample, number)
        return pynvml.NVML_SUCCESS

    def nvmlGpmSampleFree(self, _sample: Any) -> int:
        return pynvml.NVML_SUCCESS

    def nvmlGpmSampleGet(self, device: Any, sample: Any) -> int:
        self._profiles[_number(sample)] = (self._gpu(device).index + 1, 0)
        return pynvml.NVML_SUCCESS

    def nvmlGpmMigSampleGet(self, device: Any, instance: Any, sample: Any) -> int:
        self._profiles[_number(sample)] = (self._gpu(device).index + 1, _number(instance))
        return pynvml.NVML_SUCCESS

    def nvmlGpmMetricsGet(self, wanted: Any) -> int:
        place, instance = self._profiles.get(_number(wanted._obj.sample2), (0, 0))
        if not place:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        gpu = self.host.gpus[place - 1]
        busy = [p.util for p in gpu.processes if not instance or p.slice_id == instance]
        for slot in range(wanted._obj.numMetrics):
            wanted._obj.metrics[slot].nvmlReturn = pynvml.NVML_SUCCESS
            wanted._obj.metrics[slot].value = float(min(100, sum(busy)) if busy else gpu.load)
        return pynvml.NVML_SUCCESS

    # -- MIG -----------------------------------------------------------------------------------

    def nvmlDeviceGetMigMode(self, device: Any, current: Any, pending: Any) -> int:
        gpu = self._gpu(device)
        if not gpu.model.mig:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        _put(current, int(gpu.mig))
        _put(pending, int(gpu.mig))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceSetMigMode(self, device: Any, mode: Any, status: Any) -> int:
        gpu = self._gpu(device)
        if not gpu.model.mig:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        if gpu.processes or gpu.slices:
            return pynvml.NVML_ERROR_IN_USE
        gpu.mig = bool(_number(mode))
        _put(status, pynvml.NVML_SUCCESS)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:
        _put(count, 7 if self._gpu(device).model.mig else 0)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, made: Any) -> int:
        gpu = self._gpu(device)
        ready = [part for part in gpu.slices if part.compute]
        place = _number(index)
        if place >= len(ready):
            return pynvml.NVML_ERROR_NOT_FOUND
        _put_handle(made, self._handle(gpu, ready[place].id))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: Any, parent: Any) -> int:
        _put_handle(parent, self._handle(self._gpu(device)))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetGpuInstanceId(self, device: Any, value: Any) -> int:
        part = self._slice(device)
        _put(value, part.id if part else 0)
        return pynvml.NVML_SUCCESS if part else pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceGetComputeInstanceId(self, device: Any, value: Any) -> int:
        _put(value, 0)
        return pynvml.NVML_SUCCESS if self._slice(device) else pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, device: Any, number: Any, info: Any) -> int:
        if _number(number) >= _PROFILES:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        for profile in self._gpu(device).model.mig:
            if profile.number == _number(number):
                into = info._obj
                into.id, into.sliceCount = profile.id, profile.slices
                into.instanceCount = len(profile.starts)
                into.memorySizeMB = profile.memory_mib
                into.name = f"MIG {profile.name}".encode()
                return pynvml.NVML_SUCCESS
        return pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceCreateGpuInstance(self, device: Any, profile_id: Any, made: Any) -> int:
        gpu = self._gpu(device)
        if not gpu.mig:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        for profile in gpu.model.mig:
            if profile.id == _number(profile_id):
                part = self.host.create_slice(gpu, profile)
                if part is None:
                    return pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
                _put_handle(made, self._handle(gpu, part.id))
                return pynvml.NVML_SUCCESS
        return pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvmlGpuInstanceGetInfo(self, instance: Any, info: Any) -> int:
        part = self._slice(instance)
        if part is None:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        info._obj.id, info._obj.profileId = part.id, part.profile.id
        info._obj.placement.start, info._obj.placement.size = part.start, part.profile.size
        return pynvml.NVML_SUCCESS

    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        self, instance: Any, number: Any, _engine: Any, info: Any
    ) -> int:
        part = self._slice(instance)
        if part is None or part.profile.number != _number(number):
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        info._obj.id, info._obj.sliceCount = part.profile.number, part.profile.slices
        return pynvml.NVML_SUCCESS

    def nvmlGpuInstanceCreateComputeInstance(
        self, instance: Any, _profile_id: Any, made: Any
    ) -> int:
        part = self._slice(instance)
        if part is None or part.compute:
            return pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
        part.compute = True
        _put_handle(made, _number(instance))
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetGpuInstanceById(self, device: Any, number: Any, made: Any) -> int:
        gpu = self._gpu(device)
        if all(part.id != _number(number) for part in gpu.slices):
            return pynvml.NVML_ERROR_NOT_FOUND
        _put_handle(made, self._handle(gpu, _number(number)))
        return pynvml.NVML_SUCCESS

    def nvmlGpuInstanceGetComputeInstanceById(self, instance: Any, _number_: Any, made: Any) -> int:
        part = self._slice(instance)
        if part is None or not part.compute:
            return pynvml.NVML_ERROR_NOT_FOUND
        _put_handle(made, _number(instance))
        return pynvml.NVML_SUCCESS

    def nvmlComputeInstanceDestroy(self, instance: Any) -> int:
        part = self._slice(instance)
        if part is None:
            return pynvml.NVML_ERROR_NOT_FOUND
        if any(p.slice_id == part.id for p in self._gpu(instance).processes):
            return pynvml.NVML_ERROR_IN_USE
        part.compute = False
        return pynvml.NVML_SUCCESS

    def nvmlGpuInstanceDestroy(self, instance: Any) -> int:
        part = self._slice(instance)
        if part is None:
            return pynvml.NVML_ERROR_NOT_FOUND
        if part.compute:
            return pynvml.NVML_ERROR_IN_USE
        self._gpu(instance).slices.remove(part)
        return pynvml.NVML_SUCCESS


class _NvmlCode(Exception):
    """An early return with NVML's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
