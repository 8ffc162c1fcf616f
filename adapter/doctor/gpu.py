"""Checks of the GPU: driver, NVML, device files, toolkit and CDI: the path that a lease takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, cast

import yaml

from adapter.devices.nvml.faults import DeviceLost, NvmlAbsent, NvmlHung
from adapter.devices.nvml.nvml import Nvml
from adapter.devices.prices import Prices
from adapter.devices.scrub import Quarantine
from adapter.doctor.findings import Finding, found
from adapter.doctor.world import World
from marketplace.domain.metering.reading import FaultClass, classify_xid
from marketplace.domain.supply.hardware import Gpu

OLDEST_DRIVER: Final = 525
SAFE_TOOLKIT: Final = (1, 17, 8)
FRESH_TOOLKIT: Final = (1, 18, 0)
HOT_C: Final = 85


def check_devices(world: World) -> Iterator[Finding]:
    """NVML answers, and every device is fit to be rented."""
    nvml = world.nvml()
    try:
        driver = nvml.open(world.nvml_deadline_s)
        gpus = nvml.inventory(world.nvml_deadline_s)
        yield from _driver(world, driver)
        if not gpus:
            yield from _no_devices(world)
        for gpu in gpus:
            yield from _device(nvml, gpu)
        for uuid in nvml.mig_without_slices():
            yield found("MIG_EMPTY", f"{uuid} has MIG on and no slice")
        for name in Prices(dict.fromkeys(world.config.priced, 1)).unmatched(gpus):
            near = difflib.get_close_matches(
                name, ("core", "schedule", *(g.model for g in gpus)), 1
            )
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield found("PRICE_UNMATCHED", f"no device matches the price {name!r}{hint}")
        yield from _files(world, gpus)
        yield from _toolkit(world, gpus)
        yield from _cdi(world, gpus)
    except NvmlAbsent as fault:
        if world.config.expect_gpu:
            yield found("NVML_ABSENT", fault.message)
    except NvmlHung as fault:
        yield found("NVML_HUNG", fault.message)
    except DeviceLost as fault:
        yield found("GPU_LOST", fault.message)
    finally:
        nvml.close()


def _driver(world: World, driver: str) -> Iterator[Finding]:
    major = driver.partition(".")[0]
    if major.isdecimal() and int(major) < OLDEST_DRIVER:
        yield found("DRIVER_TOO_OLD", f"driver {driver}")
    loaded = re.search(r"Kernel Module\D+?(\d+\.[\d.]+)", world.text("/proc/driver/nvidia/version"))
    if loaded is not None and loaded[1] != driver:
        yield found("DRIVER_MISMATCH", f"kernel module {loaded[1]}, library {driver}")


def _no_devices(world: World) -> Iterator[Finding]:
    if world.config.expect_gpu:
        yield found("GPU_NONE", "NVML lists no device that can be rented")


def _device(nvml: Nvml, gpu: Gpu) -> Iterator[Finding]:
    name = f"{gpu.model} {gpu.uuid}"
    if gpu.simulated:
        yield found("GPU_SIMULATED", name)
    sample = nvml.samples([gpu.uuid])[gpu.uuid]
    if isinstance(sample.error, DeviceLost):
        yield found("GPU_LOST", name)
        return
    if sample.error is not None:
        raise sample.error
    seen = sample.evidence
    if seen.energy_mj is None:
        yield found("ENERGY_UNSUPPORTED", f"{name} has no energy counter")
    if seen.temperature_c is not None and seen.temperature_c >= HOT_C:
        yield found("GPU_HOT", f"{name} is at {seen.temperature_c} °C")
    if seen.throttled:
        yield found("GPU_THROTTLED", f"{name} reports a hardware slowdown")
    running = nvml.processes(gpu.uuid)
    if running:
        pids = ", ".join(str(process.pid) for process in running)
        yield found("GPU_BUSY", f"{name} is used by {pids}")


def _files(world: World, gpus: list[Gpu]) -> Iterator[Finding]:
    if not gpus or all(gpu.simulated for gpu in gpus):
        return
    if not world.path("/dev/nvidiactl").exists():
        yield found("DEVICE_FILES_MISSING", "/dev/nvidiactl is missing")
    if not world.path("/dev/nvidia-uvm").exists():
        yield found("UVM_MISSING", "/dev/nvidia-uvm is missing")


def _toolkit(world: World, gpus: list[Gpu]) -> Iterator[Finding]:
    if "docker" not in world.config.runtimes or not _real(gpus):
        return
    code, said = world.command(("nvidia-ctk", "--version"))
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    if code or version is None:
        yield found("TOOLKIT_MISSING", said.strip() or "nvidia-ctk is not installed")
        return
    parts = (int(version[1]), int(version[2]), int(version[3]))
    if parts < SAFE_TOOLKIT:
        yield found("TOOLKIT_VULNERABLE", f"nvidia-container-toolkit {version[0]}")
    elif parts < FRESH_TOOLKIT:
        yield found("TOOLKIT_OLD", f"nvidia-container-toolkit {version[0]}")


def _cdi(world: World, gpus: list[Gpu]) -> Iterator[Finding]:
    if "docker" not in world.config.runtimes or world.config.gpu_request != "cdi":
        return
    if not _real(gpus):
        return
    folders = [world.path("/etc/cdi"), world.path("/var/run/cdi")]
    files = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    files += [path for folder in folders for path in sorted(folder.glob("*.json"))]
    if not files:
        yield found("CDI_MISSING", "neither /etc/cdi nor /var/run/cdi holds a specification")
        return
    named: set[str] = set()
    for path in files:
        try:
            named.update(_cdi_devices(path.read_text()))
        except (OSError, ValueError, yaml.YAMLError) as error:
            yield found("CDI_UNREADABLE", f"{path.name}: {str(error).splitlines()[0]}")
            return
    for gpu in gpus:
        if gpu.uuid not in named:
            yield found("CDI_STALE", f"no CDI device is named {gpu.uuid}")


def _cdi_devices(text: str) -> set[str]:
    read = yaml.safe_load(text)
    spec = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if spec.get("kind") != "nvidia.com/gpu":
        raise ValueError("not a CDI specification of nvidia.com/gpu")
    devices = cast("list[dict[str, Any]]", spec.get("devices") or [])
    return {str(device["name"]) for device in devices}


def _real(gpus: list[Gpu]) -> bool:
    return any(not gpu.simulated for gpu in gpus)


def check_kernel_log(world: World) -> Iterator[Finding]:
    """Provider-class Xids that the kernel remembers."""
    code, said = world.command(("dmesg", "--level", "emerg,alert,crit,err,warn,notice,info"))
    if code:
        return
    xids = sorted({int(number) for number in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", said)})
    grave = [xid for xid in xids if classify_xid(xid) is FaultClass.PROVIDER]
    if grave:
        yield found("XID_RECENT", f"the kernel log holds Xid {', '.join(map(str, grave))}")


def check_modules(world: World) -> Iterator[Finding]:
    """No driver that keeps NVIDIA's out."""
    if re.search(r"^nouveau ", world.text("/proc/modules"), re.MULTILINE):
        yield found("NOUVEAU_LOADED", "the kernel runs nouveau")


def check_quarantine(world: World) -> Iterator[Finding]:
    """Devices that failed their scrub."""
    for uuid, reason in Quarantine(world.config.state / "quarantine.json").all().items():
        yield found("GPU_QUARANTINED", f"{uuid}: {reason}")
