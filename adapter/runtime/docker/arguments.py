"""Everything that is asked of the daemon for one workload: what makes its container a hard one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import docker.types

from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.egress import resolve
from adapter.runtime.stores.mounts import folder_of
from adapter.runtime.volumes.handed import mounts
from adapter.runtime.workspace import NAMED, Workspace
from marketplace.domain.work.cluster_store import FOLDER
from marketplace.domain.work.workload import WORKSPACE, Egress, EgressMode, WorkloadSpec

_NOWHERE: Final = "192.0.2.1"
"""RFC 5737 TEST-NET: the name server of a workload that may resolve nothing.  Docker's own resolver
would otherwise forward questions from an internal network to the outside."""


def container_name(config: DockerConfig, lease: str) -> str:
    """The container of a lease, as the daemon knows it."""
    return f"tally-{config.adapter[:16]}-{lease}"


def create_arguments(
    config: DockerConfig, spec: WorkloadSpec, image: Any, network: str
) -> dict[str, Any]:
    """Everything that is asked of the daemon for *spec*; pure but for the image's config."""
    of_image = cast("Mapping[str, Any]", image.attrs.get("Config") or {})
    size = f"size={config.tmp_mib}m,mode=1777,nosuid,nodev"
    declared = cast("Mapping[str, Any]", of_image.get("Volumes") or {})
    volumes = {path: size for path in declared if path != WORKSPACE}
    workspace = str(Workspace(config.state, spec.lease).path)
    found = mounts(config.state, spec)
    kept = [
        docker.types.Mount(one.path, str(place.files), type="bind", read_only=one.read_only)
        for place, one in found
    ]
    if spec.store:
        shown = str(folder_of(config.state, spec.lease))
        kept.append(docker.types.Mount(FOLDER, shown, type="bind"))
    largest = max([spec.disk_mib, *(place.size_mib for place, _ in found)]) << 20
    arguments: dict[str, Any] = {
        "image": image.id,
        "command": list(spec.command) or None,
        "name": container_name(config, spec.lease),
        "labels": _labels(config, spec),
        "environment": _environment(config, spec),
        "user": spec.user,
        "working_dir": WORKSPACE,
        "hostname": "tally",
        "detach": True,
        "init": True,
        "healthcheck": {"test": ["NONE"]},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "privileged": False,
        "read_only": True,
        "tmpfs": {"/tmp": size, **volumes},
        "mounts": [docker.types.Mount(WORKSPACE, workspace, type="bind"), *kept],
        "mem_limit": f"{spec.memory_mib}m",
        "memswap_limit": f"{spec.memory_mib}m",
        "nano_cpus": spec.cpu_milli * 1_000_000,
        "pids_limit": spec.pids,
        "shm_size": f"{spec.shm_mib}m",
        "ipc_mode": "private",
        "ulimits": [
            docker.types.Ulimit(name="nofile", soft=16_384, hard=16_384),
            docker.types.Ulimit(name="core", soft=0, hard=0),
            docker.types.Ulimit(name="fsize", soft=largest, hard=largest),
        ],
        "log_config": docker.types.LogConfig(
            type="json-file",
            config={"max-size": f"{max(64, spec.log_limit_kib // 2)}k", "max-file": "2"},
        ),
        "restart_policy": {"Name": "no"},
    }
    return {**arguments, **connection(spec.egress, network), **_gpu_request(config, spec)}


def connection(egress: Egress, network: str) -> dict[str, Any]:
    """How a container is in *network*: ``none``, a bridge, or ``container:`` and whose it is; there
    names and servers are the other's as well.
    """
    if network.startswith("container:"):
        return {"network_mode": network, "hostname": None}
    if network == "none":
        return {"network_mode": "none"}
    names: dict[str, str] = {}
    if egress.mode is EgressMode.LIST:
        names = {target.name: target.address for target in resolve(egress.allow)}
    servers: dict[str, list[str]] = {}
    if egress.mode is not EgressMode.OPEN:
        servers = {"dns": [_NOWHERE], "dns_opt": ["timeout:1", "attempts:1"]}
    return {"network": network, "extra_hosts": names, **servers}


def _gpu_request(config: DockerConfig, spec: WorkloadSpec) -> dict[str, Any]:
    if not spec.gpus:
        return {}
    if config.gpu_request == "cdi":
        names = [f"nvidia.com/gpu={uuid}" for uuid in spec.gpus]
        return {"device_requests": [docker.types.DeviceRequest(driver="cdi", device_ids=names)]}
    wanted = [["gpu", "compute", "utility"]]
    request = docker.types.DeviceRequest(device_ids=list(spec.gpus), capabilities=wanted)
    return {"device_requests": [request]}


def _labels(config: DockerConfig, spec: WorkloadSpec) -> dict[str, str]:
    own = {
        "tally.adapter": config.adapter,
        "tally.lease": spec.lease,
        "tally.user": spec.user,
        "tally.disk_mib": str(spec.disk_mib),
        "tally.log_kib": str(spec.log_limit_kib),
        "tally.gpus": ",".join(spec.gpus),
        "tally.ports": ",".join(map(str, spec.ports)),
    }
    return {**{f"tally.label.{key}": value for key, value in spec.labels.items()}, **own}


def _environment(config: DockerConfig, spec: WorkloadSpec) -> dict[str, str]:
    """The adapter's own words come last: a preload in the image must not reach a GPU hook that
    runs with the host's privileges (CVE-2025-23266)."""
    fixed = {"LD_PRELOAD": "", "LD_AUDIT": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    if spec.gpus:
        fixed["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        if config.gpu_request == "legacy":
            fixed["NVIDIA_VISIBLE_DEVICES"] = ",".join(spec.gpus)
    defaults = {"HOME": WORKSPACE, **NAMED, "TALLY_LEASE": spec.lease}
    defaults |= spec.mesh.told() if spec.mesh is not None else {}
    return {**defaults, **spec.env, **spec.secrets, **fixed}
