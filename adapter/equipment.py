"""What this host works with: its GPUs, what cleans them, and what runs jobs, as the owner said."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from adapter.config import RUNTIMES, Config
from adapter.core.state import State
from adapter.core.workload import VOLUMES, Runtime, RuntimeFault
from adapter.devices import mig
from adapter.devices.nvml.faults import NvmlFault
from adapter.devices.nvml.nvml import Nvml
from adapter.devices.scrub import Quarantine, ScrubFailed, Wiper, scrub, wipe_in_child
from adapter.host.clock import Clock, HostClock
from adapter.host.keys import Keys
from adapter.mesh.host import MeshHost
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import connect
from adapter.runtime.docker.market_images import MarketImages
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.meshing import lacks_for_mesh
from adapter.runtime.process import ProcessRuntime
from adapter.runtime.stores.mounts import StoreMounts
from adapter.runtime.stores.mounts import missing as missing_for_stores
from adapter.runtime.volumes.runtime import VolumeRuntime, missing
from adapter.simulate.cuda import simulated_wiper
from adapter.simulate.host import SimClock, SimHost
from adapter.simulate.library import SimulatedNvml

_log = structlog.get_logger("adapter")


@dataclass(frozen=True)
class Devices:
    """The GPUs of the host: NVML (None without a driver), its clock, and what cleans memory."""

    nvml: Nvml | None
    clock: Clock
    wiper: Wiper
    simulated: bool = False


def devices(config: Config) -> Devices:
    """Real ones, or the simulated host that the configuration names."""
    if config.simulate:
        clock = SimClock(HostClock())
        host = SimHost(config.simulate, clock)
        nvml = Nvml(SimulatedNvml(host))
        nvml.open()
        return Devices(nvml, clock, simulated_wiper(host), True)
    nvml = Nvml()
    try:
        _log.info("NVML", driver=nvml.open())
    except NvmlFault as fault:
        nvml.close()
        _log.info("no GPUs", code=fault.code, cause=fault.message)
        return Devices(None, HostClock(), wipe_in_child)
    return Devices(nvml, HostClock(), wipe_in_child)


def divide(config: Config, nvml: Nvml | None, state: State) -> None:
    """Bring MIG to the owner's plan; a slice that a lease holds is left alone."""
    if nvml is not None and config.slices:
        held = {uuid for lease in state.leases.values() for uuid in lease.devices}
        mig.apply(config.slices, nvml, held)
        _log.info("MIG plan applied", devices=len(config.slices), held=len(held))


class Scrubber:
    """Scrubs each device, or leaves it quarantined."""

    def __init__(self, nvml: Nvml | None, wiper: Wiper, quarantine: Quarantine) -> None:
        self._nvml = nvml
        self._wiper = wiper
        self._quarantine = quarantine

    def cleanse(self, devices: tuple[str, ...]) -> None:
        """One after the other; blocks for seconds."""
        for uuid in devices if self._nvml is not None else ():
            assert self._nvml is not None
            try:
                done = scrub(uuid, self._nvml, self._wiper, self._quarantine)
                _log.info("scrubbed", device=uuid, mib=done.checked_mib)
            except ScrubFailed as failed:
                _log.error("quarantined", device=uuid, cause=failed.message)


def meshes(config: Config, keys: Keys) -> MeshHost | None:
    """What joins members of clusters, where the owner said that it is reached. A host that lacks
    something for it is a fault, as with all that the owner said.
    """
    if config.mesh is None:
        return None
    if lacks := lacks_for_mesh(RUNTIMES[config.runtime]):
        raise RuntimeFault(f"[mesh] offers clusters a network, for which this host lacks {lacks}")
    return MeshHost(config.folder / "runtime", keys.provider[:16], config.mesh)


def stores(config: Config) -> StoreMounts | None:
    """What shows a cluster's members their store, where the owner has that: also at the market's
    own host, whose address is the owner's word. A host that lacks something for it is a fault.
    """
    if config.stores is None:
        return None
    if lacks := missing_for_stores():
        raise RuntimeFault(f"[stores] shows clusters' stores, for which this host lacks {lacks}")
    market = urlsplit(config.market).hostname or ""
    return StoreMounts(config.folder / "runtime", config.stores, market)


def runtimes(config: Config, keys: Keys, market: MarketImages) -> dict[str, Runtime]:
    """What runs workloads here, by name: what the owner said, never less for want of it.

    A Docker that does not answer is a fault: whoever supervises the adapter starts it again until
    Docker is back. Strangers' plain processes instead would be the owner's to allow.
    """
    found: dict[str, Runtime] = {}
    folder, adapter = config.folder / "runtime", keys.provider[:16]
    if config.runtime in ("docker", "both"):
        connect(config.docker_host).close()
        found["docker"] = DockerRuntime(
            DockerConfig(
                folder, adapter, config.docker_host, config.limits.images,
                image_mib=config.limits.image_mib, signed_by=config.signed_by,
                gpu_request="legacy" if config.gpu_request == "legacy" else "cdi",
            ),
            market=market,
        )  # fmt: skip
    if config.runtime in ("process", "both"):
        process = ProcessRuntime(
            ProcessConfig(folder, adapter, config.unconfined, config.host_network, config.readable)
        )
        _log.info("process runtime", confinement=process.confinement)
        found["process"] = process
    if config.prices.disk_rate:
        if lacks := missing(folder):
            raise RuntimeFault(f"prices.disk offers volumes, which this host has not: {lacks}")
        found[VOLUMES] = VolumeRuntime(folder, adapter, keys.meter)
    return found
