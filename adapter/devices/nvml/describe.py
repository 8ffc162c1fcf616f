"""What a device is, read once: its model, memory, links and MIG devices.

Every function here asks NVML, so it runs in :class:`~adapter.devices.nvml.thread.NvmlThread`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import pynvml

from marketplace.domain.supply.hardware import Gpu, MigMode, MigSlice, Pcie, Sharing

T = TypeVar("T")
_SIMULATED: Final = "SIMULATED"


def optional(read: Callable[[], T]) -> T | None:
    """A reading that a device may not have; a lost device still raises."""
    try:
        return read()
    except pynvml.NVMLError as error:
        value = getattr(error, "value", None)
        missing = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if value in (*missing, pynvml.NVML_ERROR_NO_PERMISSION):
            return None
        raise


def memory_mib(handle: Any) -> tuple[int, int]:
    """Total and used memory of a device, MiB."""
    info: Any = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return info.total >> 20, info.used >> 20


def text(value: bytes | str) -> str:
    """What drivers of some ages give as bytes, as text."""
    return value.decode() if isinstance(value, bytes) else value


def _describe(handle: Any, index: int, driver: str) -> list[Gpu]:
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    pcie = Pcie(
        text(bus),
        optional(lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)) or 0,
        optional(lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)) or 0,
    )
    mode = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    linked = optional(lambda: pynvml.nvmlDeviceGetNvLinkState(handle, 0))
    whole = Gpu(
        uuid=uuid,
        model=name,
        vram_mib=memory_mib(handle)[0],
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
                vram_mib=memory_mib(part)[0],
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


def inventory() -> list[Gpu]:
    """Every whole GPU, or in its place its MIG devices when it has any."""
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


def mig_without_slices() -> list[str]:
    """UUIDs of GPUs with MIG on and nothing to rent: no slice was made yet."""
    found: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        mode = optional(lambda handle=handle: pynvml.nvmlDeviceGetMigMode(handle)[0])
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        if mode and all(one.slice is None for one in _describe(handle, index, "")):
            found.append(uuid)
    return found
