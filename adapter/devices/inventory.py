"""What this host offers: GPUs by NVML, cores, memory and disk by the kernel, less what is reserved.

A device that was seen once and is missing now is listed as LOST: NVML tells only that *some* device
is gone, never which.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from adapter.devices.nvml.faults import NvmlAbsent
from adapter.devices.nvml.nvml import Nvml
from adapter.devices.scrub import Quarantine
from marketplace.domain.supply.hardware import Cpu, Gpu, Health, HostHardware
from marketplace.domain.units import MICRO, WHOLE

RATES: Final = (
    ("H200", 1800), ("H100", 1300), ("A100", 700), ("L40S", 450), ("RTX 5090", 350),
    ("RTX 4090", 220), ("RTX 3090", 120), ("L4", 200), ("A10", 180), ("T4", 90), ("V100", 130),
)  # fmt: skip
"""Lovelace per GPU-second to start from, by a part of the model's name; the first that fits."""
FALLBACK_RATE: Final = 100
CORE_RATE_MICRO: Final = 6 * MICRO


@dataclass(frozen=True, slots=True)
class Reserve:
    """What the owner keeps: whole devices out of the market, or a per-mille of each."""

    cores_milli: int = 1000
    memory_mib: int = 1024
    disk_mib: int = 10_240
    shares: Mapping[str, int] = field(default_factory=dict[str, int])
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the host is and how it is connected, as its owner says."""

    host: str = ""
    region: str = ""
    up_kbit: int = 0
    down_kbit: int = 0
    runtimes: tuple[str, ...] = ("docker",)


def default_rate_micro(gpu: Gpu) -> int:
    """Micro-lovelace per GPU-second for a model without a configured price.

    A MIG slice costs its part of the memory of the whole device, which is what it displaces.
    """
    rate = next((rate for part, rate in RATES if part in gpu.model), FALLBACK_RATE) * MICRO
    if gpu.slice is None:
        return rate
    compute = int(gpu.slice.profile.partition("g")[0] or 1)
    return max(rate * compute // 7, 1)


class Inventory:
    """Takes the inventory, and remembers every device that it has seen; *set_aside*: MiB that
    volumes have.
    """

    def __init__(
        self,
        nvml: Nvml | None,
        state: Path,
        place: Place | None = None,
        reserve: Reserve | None = None,
        proc: Path = Path("/proc"),
        set_aside: Callable[[], int] = int,
    ) -> None:
        self._set_aside = set_aside
        self._nvml = nvml
        self._state = state
        self._place = place or Place()
        self._reserve = reserve or Reserve()
        self._proc = proc
        self._quarantine = Quarantine(state / "quarantine.json")
        self._seen: dict[str, Gpu] = {}

    def take(self) -> HostHardware:
        """The inventory now.  Blocks up to NVML's slow deadline; raises NvmlFault but Absent."""
        keep, place = self._reserve, self._place
        return HostHardware(
            host=place.host or socket.gethostname(),
            cpu=self._cpu(),
            memory_mib=max(0, total_memory_mib(self._proc) - keep.memory_mib),
            # What volumes have taken is let all the same: the market counts what it placed.
            disk_mib=max(0, free_disk_mib(self._state) + self._set_aside() - keep.disk_mib),
            gpus=tuple(self._gpus()),
            region=place.region,
            up_kbit=place.up_kbit,
            down_kbit=place.down_kbit,
            runtimes=place.runtimes,
        )

    def _cpu(self) -> Cpu:
        cores = len(os.sched_getaffinity(0))
        milli = max(0, cores * 1000 - self._reserve.cores_milli)
        return Cpu(cpu_model(self._proc), cores, milli)

    def _gpus(self) -> list[Gpu]:
        if self._nvml is None:
            return []
        try:
            found = {gpu.uuid: gpu for gpu in self._nvml.inventory()}
        except NvmlAbsent as fault:
            return [gpu.with_health(Health.LOST, fault.message) for gpu in self._seen.values()]
        whole = {gpu.slice.parent for gpu in found.values() if gpu.slice is not None}
        for uuid, gpu in self._seen.items():
            if uuid not in found and uuid not in whole and gpu.slice is None:
                found[uuid] = gpu.with_health(Health.LOST, "NVML no longer lists it")
        self._seen.update({uuid: gpu for uuid, gpu in found.items() if gpu.health is Health.OK})
        shown = [gpu for gpu in found.values() if gpu.uuid not in self._reserve.excluded]
        return [self._as_offered(gpu) for gpu in shown]

    def _as_offered(self, gpu: Gpu) -> Gpu:
        reason = self._quarantine.reason(gpu.uuid)
        if reason is not None:
            gpu = gpu.with_health(Health.QUARANTINED, reason)
        return replace(gpu, share=self._reserve.shares.get(gpu.uuid, WHOLE))


def cpu_model(proc: Path = Path("/proc")) -> str:
    """The first processor's model name."""
    try:
        for line in (proc / "cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # some architectures and sandboxes show no cpuinfo; the name is a label only
    return os.uname().machine


def total_memory_mib(proc: Path = Path("/proc")) -> int:
    """The host's memory, or this container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) >> 10
    except (OSError, ValueError, IndexError):
        pass  # sysconf's figure stands
    return total


def free_disk_mib(path: Path) -> int:
    """What the file system under *path* (or its nearest parent) has free."""
    while not path.exists():
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize >> 20
