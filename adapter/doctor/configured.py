"""The doctor over an adapter's own configuration: what `tally adapter doctor` calls."""

from __future__ import annotations

from dataclasses import replace

from adapter.config import RUNTIMES, Config
from adapter.devices.nvml.nvml import Nvml
from adapter.doctor.findings import Finding
from adapter.doctor.run import run_doctor
from adapter.doctor.trial import try_container
from adapter.doctor.world import DoctorConfig, World
from adapter.mesh.reach import BEHIND_NAT
from adapter.simulate.host import SimHost
from adapter.simulate.library import SimulatedNvml


def judge(config: Config) -> DoctorConfig:
    """What of *config* the doctor looks at.  A simulated host is a devnet's, where the adapter's
    own key may be the payout.  No list of images means any.
    """
    return DoctorConfig(
        state=config.folder,
        market=config.market,
        chain_url=config.chain_url,
        project_id=config.project_id,
        payout=config.payout or ("devnet" if config.simulate else ""),
        key=config.folder / "keys",
        docker_host=config.docker_host,
        runtimes=RUNTIMES[config.runtime],
        allow=config.limits.images or ("*",),
        priced=tuple(config.prices.models),
        gpu_request="legacy" if config.simulate else config.gpu_request,
        volumes=config.prices.disk_rate > 0,
        stores=config.stores is not None,
        mesh="" if config.mesh is None else config.mesh.endpoint or BEHIND_NAT,
    )


def examine(config: Config, *, quick: bool = False) -> list[Finding]:
    """Every finding about this host under *config*; at most ten seconds.  *quick*: no trial
    container, and no trial volume.
    """
    judged = replace(judge(config), try_container=not quick)
    world = World(judged, container=try_container)
    if config.simulate:
        world.nvml = lambda: Nvml(SimulatedNvml(SimHost(config.simulate)))
    return run_doctor(world)
