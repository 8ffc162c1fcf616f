"""NVML, in one thread, with a deadline on every call: what the adapter asks of its GPUs.

Only this folder calls pynvml.  Polling costs: utilisation 2.5 us, memory 12 us, process lists
4.5 ms under the driver's global lock (measured by the MangoHud project, PR 2104); so lists are
asked for rarely and fan speed never.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pynvml

from adapter.devices.nvml import describe, slices
from adapter.devices.nvml.sampler import Handles, Sample, Sampler
from adapter.devices.nvml.slices import MigProfile
from adapter.devices.nvml.thread import DEADLINE_S, SLOW_DEADLINE_S, NvmlThread
from marketplace.domain.supply.hardware import Gpu, MigSlice


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that NVML sees on a device; *pid* is the host's."""

    pid: int
    memory_mib: int
    gpu_instance: int | None = None


class Nvml(NvmlThread):
    """All that is asked of NVML.  Every public method blocks at most its deadline."""

    def __init__(self, library: object | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._handles = Handles()
        self._sampler = Sampler(self._handles)
        super().__init__(library, deadline_s)

    def open(self, deadline_s: float = SLOW_DEADLINE_S) -> str:
        """Load the library and register for Xid events; the driver's version."""
        return self.call("init", self._open, deadline_s)

    def _open(self) -> str:
        version = self.load()
        self._handles.clear()
        self._sampler.register()
        return version

    def inventory(self, deadline_s: float = SLOW_DEADLINE_S) -> list[Gpu]:
        """Every whole GPU, or in its place its MIG devices when it has any."""
        return self.call("inventory", describe.inventory, deadline_s)

    def mig_without_slices(self) -> list[str]:
        """UUIDs of GPUs with MIG on and nothing to rent: no slice was made yet."""
        return self.call("mig", describe.mig_without_slices, SLOW_DEADLINE_S)

    def samples(self, uuids: Iterable[str]) -> dict[str, Sample]:
        """The cheap readings of all *uuids* in one visit, with the Xids since the last."""
        wanted = tuple(uuids)
        return self.call("samples", lambda: self._sampler.samples(wanted))

    def processes(self, uuid: str) -> list[GpuProcess]:
        """What runs on a device.  Expensive: every 10 s, and at start and stop."""
        return self.call("processes", lambda: self._processes(uuid))

    def _processes(self, uuid: str) -> list[GpuProcess]:
        found: list[Any] = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handles.of(uuid))
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
        return self.call("memory", lambda: describe.memory_mib(self._handles.of(uuid)))

    def mig_profiles(self, uuid: str) -> list[MigProfile]:
        """The slice profiles of a GPU; empty when it has no MIG."""
        return self.call("mig profiles", lambda: slices.profiles(self._handles.of(uuid)))

    def set_mig(self, uuid: str, enabled: bool) -> None:
        """Switch MIG; :class:`NvmlBusy` while anything runs on the GPU.  Needs root."""

        def change() -> None:
            if slices.set_mode(self._handles.of(uuid), uuid, enabled):
                self._handles.clear()

        self.call("set mig", change, SLOW_DEADLINE_S)

    def create_slice(self, uuid: str, profile: MigProfile) -> None:
        """A GPU instance of *profile* with one compute instance over all of it."""
        self.call(
            "create slice", lambda: slices.create(self._handles.of(uuid), profile), SLOW_DEADLINE_S
        )

    def destroy_slice(self, part: MigSlice) -> None:
        """Destroy a MIG device's compute instance, then its GPU instance."""

        def destroy() -> None:
            slices.destroy(self._handles.of(part.parent), part)
            self._handles.clear()
            self._sampler.forget_slices()

        self.call("destroy slice", destroy, SLOW_DEADLINE_S)
