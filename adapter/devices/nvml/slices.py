"""MIG slices as NVML makes them: a GPU's profiles, its MIG mode, one slice made or destroyed.

Every function here asks NVML, so it runs in :class:`~adapter.devices.nvml.thread.NvmlThread`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml

from adapter.devices.nvml.describe import optional, text
from adapter.devices.nvml.faults import NvmlBusy
from marketplace.domain.supply.hardware import MigSlice


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A slice profile that a GPU offers: ``1g.10gb``, with NVML's number and id."""

    number: int
    id: int
    name: str
    slices: int
    memory_mib: int
    most: int


def profiles(handle: Any) -> list[MigProfile]:
    """The slice profiles of a GPU; empty when it has no MIG."""
    found: list[MigProfile] = []
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info: Any = optional(lambda number=number: _profile(handle, number))
        if info is None:
            continue
        name = text(info.name).removeprefix("MIG ")
        found.append(
            MigProfile(
                number, info.id, name, info.sliceCount, info.memorySizeMB, info.instanceCount
            )
        )
    return found


def _profile(handle: Any, number: int) -> Any:
    """What NVML says of a profile; None for a number that this driver does not know: the list is as
    long as that of the newest driver that pynvml was written for.
    """
    try:
        return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return None
        raise


def set_mode(handle: Any, uuid: str, enabled: bool) -> bool:
    """Switch MIG; whether anything changed.  :class:`NvmlBusy` where the GPU needs a reset."""
    current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    if bool(current) == enabled:
        return False
    status = pynvml.nvmlDeviceSetMigMode(handle, int(enabled))
    if status != pynvml.NVML_SUCCESS:
        raise NvmlBusy(f"{uuid}: MIG mode is pending; the device needs a reset")
    return True


def create(handle: Any, profile: MigProfile) -> None:
    """Make a GPU instance of *profile* with one compute instance over all of it."""
    made: Any = pynvml.nvmlDeviceCreateGpuInstance(handle, profile.id)
    engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    try:
        info: Any = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
            made, profile.number, engine
        )
        pynvml.nvmlGpuInstanceCreateComputeInstance(made, info.id)
    except pynvml.NVMLError:
        pynvml.nvmlGpuInstanceDestroy(made)  # no half-made slice is left behind
        raise


def destroy(parent: Any, part: MigSlice) -> None:
    """Destroy a MIG device's compute instance, then its GPU instance."""
    instance: Any = pynvml.nvmlDeviceGetGpuInstanceById(parent, part.gpu_instance)
    compute: Any = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, part.compute_instance)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
