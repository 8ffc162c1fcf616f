"""NVML, in one thread, with a deadline on every call: the only file that calls pynvml.

* NvmlFault              NVML failed
  x NvmlAbsent             no library or no driver on this host
  x NvmlHung               a call outlived its deadline; nothing else is asked until it returns
  x NvmlDenied             the call needs root
  x NvmlUnsupported        this device or driver does not have it
  x NvmlBusy               in use: MIG cannot change under running processes
  x DeviceLost             the device fell off the bus
  x DeviceUnknown          no device with this UUID

Polling costs: utilisation 2.5 us, memory 12 us, process lists 4.5 ms under the driver's global lock
(measured by the MangoHud project, PR 2104); so lists are asked for rarely and fan speed never.

Over 400 lines: all that is asked of the library, behind one thread and one mapping of its errors.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import pynvml

from marketplace.domain.errors import Fault
from marketplace.domain.metering.reading import Evidence
from marketplace.domain.supply.hardware import Gpu, MigMode, MigSlice, Pcie, Sharing

T = TypeVar("T")
DEADLINE_S: Final = 2.0
SLOW_DEADLINE_S: Final = 15.0  # MIG changes may reset the device
_SIMULATED: Final = "SIMULATED"
_HARDWARE_SLOWDOWN: Final = (
    pynvml.nvmlClocksEventReasonHwSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
)


class NvmlFault(Fault):
    """NVML failed."""

    code = "NVML_FAULT"
    remedy = "run `tally adapter doctor`; look at `nvidia-smi` and the kernel log on the host"


class NvmlAbsent(NvmlFault):
    """No library, or no driver loaded."""

    code = "NVML_ABSENT"
    remedy = "install the NVIDIA driver and load it; CPU leases need none"


class NvmlHung(NvmlFault):
    """A call outlived its deadline."""

    code = "NVML_HUNG"


class NvmlDenied(NvmlFault):
    """The call needs root."""

    code = "NVML_DENIED"
    remedy = "run the adapter as root, or leave MIG as it is"


class NvmlUnsupported(NvmlFault):
    """The device or the driver does not have this."""

    code = "NVML_UNSUPPORTED"


class NvmlBusy(NvmlFault):
    """In use by a process."""

    code = "NVML_BUSY"


class DeviceLost(NvmlFault):
    """The device fell off the bus."""

    code = "GPU_LOST"
    remedy = "reboot the host or reset the device; its leases end as the provider's fault"


class DeviceUnknown(NvmlFault):
    """No device answers to this UUID."""

    code = "GPU_UNKNOWN"


_CODES: Final[dict[int, type[NvmlFault]]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: NvmlAbsent,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NvmlAbsent,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlAbsent,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlAbsent,
    pynvml.NVML_ERROR_NO_PERMISSION: NvmlDenied,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NvmlUnsupported,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NvmlUnsupported,
    pynvml.NVML_ERROR_IN_USE: NvmlBusy,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: NvmlBusy,
    pynvml.NVML_ERROR_GPU_IS_LOST: DeviceLost,
    pynvml.NVML_ERROR_RESET_REQUIRED: DeviceLost,
    pynvml.NVML_ERROR_NOT_FOUND: DeviceUnknown,
    pynvml.NVML_ERROR_TIMEOUT: NvmlHung,
}


@contextmanager
def map_nvml(what: str) -> Generator[None]:
    """The one door through which pynvml's errors become ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        value = int(getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN))
        kind = _CODES.get(value, NvmlFault)
        raise kind(f"{what}: {error}", nvml=value) from error


@dataclass(frozen=True, slots=True)
class Sample:
    """One poll of one device; *error* is set, and evidence empty, when it could not be read."""

    uuid: str
    evidence: Evidence = field(default_factory=Evidence)
    xids: tuple[int, ...] = ()
    error: NvmlFault | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that NVML sees on a device; *pid* is the host's."""

    pid: int
    memory_mib: int
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A slice profile that a GPU offers: ``1g.10gb``, with NVML's number and id."""

    number: int
    id: int
    name: str
    slices: int
    memory_mib: int
    most: int


def use_library(library: object | None) -> None:
    """Replace the loaded NVML library (None: the system's own, loaded at the next init).

    Touches pynvml's module state, and nothing of its code: ``nvmlLib`` is what it dlopens once.
    """
    module: Any = pynvml
    module.nvmlLib = library
    module._nvmlGetFunctionPointer_cache.clear()


class Nvml:
    """The thread that owns NVML.  Every public method blocks at most its deadline."""

    def __init__(self, library: object | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._library = library
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stuck: Future[Any] | None = None
        self._ready = False
        self._events: Any = None
        self._names: dict[str, Any] = {}
        self._pending: dict[str, list[int]] = {}
        self._gpm: dict[str, list[Any]] = {}
        self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def call(self, what: str, action: Callable[[], T], deadline_s: float | None = None) -> T:
        """Run *action* in the thread; :class:`NvmlHung` when it takes longer than the deadline."""
        if self._stuck is not None and not self._stuck.done():
            raise NvmlHung(f"{what}: an earlier NVML call has not returned")
        self._stuck = None
        future: Future[T] = Future()

        def job() -> None:
            try:
                with map_nvml(what):
                    future.set_result(action())
            except BaseException as error:  # noqa: BLE001  handed to the caller by the future
                future.set_exception(error)

        self._jobs.put(job)
        try:
            return future.result(deadline_s or self._deadline_s)
        except FutureTimeout:
            self._stuck = future
            raise NvmlHung(f"{what}: no answer within the deadline") from None

    def open(self, deadline_s: float = SLOW_DEADLINE_S) -> str:
        """Load the library and register for Xid events; the driver's version."""
        return self.call("init", self._open, deadline_s)

    def _open(self) -> str:
        if self._library is not None or not self._ready:
            use_library(self._library)
        pynvml.nvmlInit()
        self._ready = True
        self._names.clear()
        self._events = None
        version = pynvml.nvmlSystemGetDriverVersion()
        self._register()
        return version

    def _register(self) -> None:
        """Xid events are optional: a driver without them only loses that evidence."""
        try:
            events = pynvml.nvmlEventSetCreate()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                wanted = pynvml.nvmlEventTypeXidCriticalError
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            self._events = events
        except pynvml.NVMLError:
            self._events = None

    def close(self) -> None:
        """End the thread; a hung one is left behind, as nothing can end it."""
        if self._ready and (self._stuck is None or self._stuck.done()):
            try:
                self.call("shutdown", pynvml.nvmlShutdown)
            except NvmlFault:
                pass  # the driver may be gone already; there is nothing left to release
        self._jobs.put(None)

    # -- inventory -----------------------------------------------------------------------------

    def inventory(self) -> list[Gpu]:
        """Every whole GPU, or in its place its MIG devices when it has any."""
        return self.inventory_within(SLOW_DEADLINE_S)

    def inventory_within(self, deadline_s: float) -> list[Gpu]:
        """The same with a deadline of the caller's."""
        return self.call("inventory", self._inventory, deadline_s)

    def _inventory(self) -> list[Gpu]:
        driver = pynvml.nvmlSystemGetDriverVersion()
        gpus: list[Gpu] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                gpus += _describe(handle, index, driver)
            except pynvml.NVMLError as error:
                if getattr(error, "value", None) != pynvml.NVML_ERROR_GPU_IS_LOST:
                    raise  # a lost device has no name; the inventory remembers which is missing
        linked = [gpu.uuid for gpu in gpus if gpu.links]
        return [_with_peers(gpu, linked) for gpu in gpus]

    def mig_without_slices(self) -> list[str]:
        """GPUs with MIG on and nothing to rent: no slice was made yet."""
        return self.call("mig", self._mig_without_slices, SLOW_DEADLINE_S)

    def _mig_without_slices(self) -> list[str]:
        found: list[str] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            mode = _optional(lambda handle=handle: pynvml.nvmlDeviceGetMigMode(handle)[0])
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            if mode and all(one.slice is None for one in _describe(handle, index, "")):
                found.append(uuid)
        return found

    def _handle(self, uuid: str) -> Any:
        found = self._names.get(uuid)
        if found is None:
            found = self._names[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return found

    # -- readings ------------------------------------------------------------------------------

    def samples(self, uuids: Iterable[str]) -> dict[str, Sample]:
        """The cheap readings of all *uuids* in one visit, with the Xids since the last."""
        wanted = tuple(uuids)
        return self.call("samples", lambda: self._samples(wanted))

    def _samples(self, uuids: tuple[str, ...]) -> dict[str, Sample]:
        self._collect_xids()
        return {uuid: self._sample(uuid) for uuid in uuids}

    def _sample(self, uuid: str) -> Sample:
        xids = tuple(self._pending.pop(uuid, ()))
        try:
            with map_nvml(uuid):
                handle = self._handle(uuid)
                found = pynvml.nvmlDeviceGetUUID(handle)
                if found != uuid:
                    raise DeviceUnknown(f"{uuid}: {found} answers in its place")
                return Sample(uuid, self._evidence(uuid, handle), xids)
        except NvmlFault as fault:
            self._names.pop(uuid, None)
            return Sample(uuid, xids=xids, error=fault)

    def _evidence(self, uuid: str, handle: Any) -> Evidence:
        parent = handle
        if uuid.startswith("MIG-"):
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        energy = _optional(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(parent))
        memory = _optional(lambda: _memory(handle)[1])
        clock = _optional(lambda: pynvml.nvmlDeviceGetClockInfo(parent, pynvml.NVML_CLOCK_SM))
        reasons = _optional(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(parent))
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return Evidence(
            energy_mj=energy,
            util_permille=self._utilisation(uuid, handle, parent),
            memory_mib=memory,
            sm_clock_mhz=clock,
            temperature_c=_optional(lambda: pynvml.nvmlDeviceGetTemperature(parent, sensor)),
            throttled=bool((reasons or 0) & _HARDWARE_SLOWDOWN),
        )

    def _utilisation(self, uuid: str, handle: Any, parent: Any) -> int | None:
        if not uuid.startswith("MIG-"):
            rate = _optional(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            return None if rate is None else int(rate) * 10
        return _optional(lambda: self._gpm_utilisation(uuid, handle, parent))

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
        for name, handle in self._names.items():
            if not name.startswith("MIG-"):
                continue
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            if pynvml.nvmlDeviceGetUUID(parent) != uuid:
                continue
            if part in (0xFFFFFFFF, pynvml.nvmlDeviceGetGpuInstanceId(handle)):
                names.append(name)
        return names

    def processes(self, uuid: str) -> list[GpuProcess]:
        """What runs on a device.  Expensive: every 10 s, and at start and stop."""
        return self.call("processes", lambda: self._processes(uuid))

    def _processes(self, uuid: str) -> list[GpuProcess]:
        found: list[Any] = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle(uuid))
        return [
            GpuProcess(
                row.pid,
                (row.usedGpuMemory or 0) >> 20,
                None if row.gpuInstanceId == 0xFFFFFFFF else row.gpuInstanceId,
            )
            for row in found
        ]

    def memory_mib(self, uuid: str) -> tuple[int, int]:
        """Total and used memory of a device."""

        return self.call("memory", lambda: _memory(self._handle(uuid)))

    # -- MIG -----------------------------------------------------------------------------------

    def mig_profiles(self, uuid: str) -> list[MigProfile]:
        """The slice profiles of a GPU; empty when it has no MIG."""
        return self.call("mig profiles", lambda: _profiles(self._handle(uuid)))

    def set_mig(self, uuid: str, enabled: bool) -> None:
        """Switch MIG; :class:`NvmlBusy` while anything runs on the GPU.  Needs root."""

        def change() -> None:
            handle = self._handle(uuid)
            current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
            if bool(current) == enabled:
                return
            status = pynvml.nvmlDeviceSetMigMode(handle, int(enabled))
            if status != pynvml.NVML_SUCCESS:
                raise NvmlBusy(f"{uuid}: MIG mode is pending; the device needs a reset")
            self._names.clear()

        self.call("set mig", change, SLOW_DEADLINE_S)

    def create_slice(self, uuid: str, profile: MigProfile) -> None:
        """A GPU instance of *profile* with one compute instance over all of it."""

        def create() -> None:
            made: Any = pynvml.nvmlDeviceCreateGpuInstance(self._handle(uuid), profile.id)
            engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            try:
                info: Any = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    made, profile.number, engine
                )
                pynvml.nvmlGpuInstanceCreateComputeInstance(made, info.id)
            except pynvml.NVMLError:
                pynvml.nvmlGpuInstanceDestroy(made)  # no half-made slice is left behind
                raise

        self.call("create slice", create, SLOW_DEADLINE_S)

    def destroy_slice(self, part: MigSlice) -> None:
        """Destroy a MIG device's compute instance, then its GPU instance."""

        def destroy() -> None:
            parent = self._handle(part.parent)
            instance: Any = pynvml.nvmlDeviceGetGpuInstanceById(parent, part.gpu_instance)
            compute: Any = pynvml.nvmlGpuInstanceGetComputeInstanceById(
                instance, part.compute_instance
            )
            pynvml.nvmlComputeInstanceDestroy(compute)
            pynvml.nvmlGpuInstanceDestroy(instance)
            self._names.clear()
            self._gpm.clear()

        self.call("destroy slice", destroy, SLOW_DEADLINE_S)


def _optional(read: Callable[[], T]) -> T | None:
    """A reading that a device may not have; a lost device still raises."""
    try:
        return read()
    except pynvml.NVMLError as error:
        value = getattr(error, "value", None)
        missing = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if value in (*missing, pynvml.NVML_ERROR_NO_PERMISSION):
            return None
        raise


def _memory(handle: Any) -> tuple[int, int]:
    """Total and used, MiB."""
    info: Any = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return info.total >> 20, info.used >> 20


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _describe(handle: Any, index: int, driver: str) -> list[Gpu]:
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    pcie = Pcie(
        _text(bus),
        _optional(lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)) or 0,
        _optional(lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)) or 0,
    )
    mode = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    linked = _optional(lambda: pynvml.nvmlDeviceGetNvLinkState(handle, 0))
    whole = Gpu(
        uuid=uuid,
        model=name,
        vram_mib=_memory(handle)[0],
        index=index,
        driver=driver,
        compute_capability=f"{major}.{minor}",
        pcie=pcie,
        mig=MigMode.UNSUPPORTED
        if mode is None
        else (MigMode.ENABLED if mode else MigMode.DISABLED),
        links=("nvlink",) if linked else (),
        simulated=_SIMULATED in name,
    )
    return _slices(handle, whole) if mode else [whole]


def _slices(handle: Any, whole: Gpu) -> list[Gpu]:
    """A GPU's MIG devices; a GPU with MIG on and no slice has nothing to rent."""
    found: list[Gpu] = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError as error:
            if getattr(error, "value", None) == pynvml.NVML_ERROR_NOT_FOUND:
                continue
            raise
        name = pynvml.nvmlDeviceGetName(part)
        found.append(
            Gpu(
                uuid=pynvml.nvmlDeviceGetUUID(part),
                model=name,
                vram_mib=_memory(part)[0],
                index=whole.index,
                driver=whole.driver,
                compute_capability=whole.compute_capability,
                pcie=whole.pcie,
                mig=MigMode.ENABLED,
                slice=MigSlice(
                    name.rpartition(" ")[2],
                    whole.uuid,
                    pynvml.nvmlDeviceGetGpuInstanceId(part),
                    pynvml.nvmlDeviceGetComputeInstanceId(part),
                ),
                sharing=Sharing.MIG,
                simulated=whole.simulated,
            )
        )
    return found


def _with_peers(gpu: Gpu, linked: list[str]) -> Gpu:
    peers = tuple(uuid for uuid in linked if uuid != gpu.uuid) if gpu.links else ()
    return replace(gpu, links=peers)


def _profiles(handle: Any) -> list[MigProfile]:
    found: list[MigProfile] = []
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info: Any = _optional(
            lambda number=number: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
        )
        if info is None:
            continue
        name = _text(info.name).removeprefix("MIG ")
        found.append(
            MigProfile(
                number, info.id, name, info.sliceCount, info.memorySizeMB, info.instanceCount
            )
        )
    return found
