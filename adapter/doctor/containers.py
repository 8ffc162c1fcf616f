"""Checks of what contains a workload: Docker and its policy, firewall, control groups, sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from adapter.core.workload import RuntimeFault
from adapter.doctor.findings import Finding, found
from adapter.doctor.world import World
from adapter.mesh.reach import BEHIND_NAT


def check_docker(world: World) -> Iterator[Finding]:
    """The daemon answers, and enforces what the adapter asks of it."""
    if "docker" not in world.config.runtimes:
        return
    try:
        info, version = world.docker(world.config.docker_host)
    except RuntimeFault as fault:
        yield found("DOCKER_UNREACHABLE", fault.message)
        return
    api = str(version.get("ApiVersion", "0.0"))
    if _numbers(api) < (1, 41):
        yield found("DOCKER_OLD", f"API {api}")
    yield from _isolation(info)
    yield from _policy(info)
    if world.config.expect_gpu and world.config.gpu_request == "cdi":
        if _numbers(api) < (1, 44) or not info.get("CDISpecDirs", ["unknown"]):
            yield found("DOCKER_CDI_OFF", f"API {api}, CDI folders {info.get('CDISpecDirs')}")
    runc = re.search(r"\d+\.\d+\.\d+", _runc(version))
    if runc is not None and _numbers(runc[0]) < (1, 1, 12):
        yield found("RUNC_VULNERABLE", f"runc {_runc(version)}")


def _isolation(info: Mapping[str, Any]) -> Iterator[Finding]:
    options = " ".join(map(str, info.get("SecurityOptions") or []))
    if "seccomp" not in options:
        yield found("DOCKER_NO_SECCOMP", f"security options: {options or 'none'}")
    if "rootless" in options:
        yield found("DOCKER_ROOTLESS", "the daemon is rootless")
    if not info.get("InitBinary"):
        yield found("DOCKER_NO_INIT", "the daemon has no init binary")
    limits = ("MemoryLimit", "CpuCfsQuota", "PidsLimit")
    missing = [name for name in limits if info.get(name) is False]
    if missing:
        yield found("DOCKER_LIMITS_MISSING", f"not enforced: {', '.join(missing)}")


def _policy(info: Mapping[str, Any]) -> Iterator[Finding]:
    if info.get("Driver") == "vfs":
        yield found("DOCKER_STORAGE_SLOW", "storage driver vfs")
    if info.get("LiveRestoreEnabled") is False:
        yield found("DOCKER_LIVE_RESTORE_OFF", "containers end when the daemon does")
    registries = cast("Mapping[str, Any]", info.get("RegistryConfig") or {})
    ranges = cast("Sequence[str]", registries.get("InsecureRegistryCIDRs") or ())
    open_ranges = [name for name in ranges if not name.startswith(("127.", "::1"))]
    indexes = cast("Mapping[str, Mapping[str, Any]]", registries.get("IndexConfigs") or {})
    open_ranges += [name for name, one in indexes.items() if one.get("Secure") is False]
    if open_ranges:
        yield found("DOCKER_INSECURE_REGISTRY", f"without TLS: {', '.join(open_ranges)}")


def _runc(version: Mapping[str, Any]) -> str:
    for part in cast("Sequence[Mapping[str, Any]]", version.get("Components") or ()):
        if part.get("Name") == "runc":
            return str(part.get("Version", ""))
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def check_daemon_file(world: World) -> Iterator[Finding]:
    """daemon.json opens no door: a process with the host's network would find it, too."""
    text = world.text("/etc/docker/daemon.json")
    if not text:
        return
    try:
        settings = cast("dict[str, Any]", json.loads(text))
    except ValueError as error:
        yield found("CHECK_FAILED", f"/etc/docker/daemon.json: {error}")
        return
    listens = cast("Sequence[str]", settings.get("hosts") or ())
    hosts = [host for host in listens if host.startswith("tcp://")]
    if hosts and not settings.get("tlsverify"):
        yield found("DOCKER_TCP_OPEN", f"the daemon listens on {', '.join(hosts)}")


def check_container(world: World) -> Iterator[Finding]:
    """A hardened container starts, and is held by what holds a lease."""
    config = world.config
    if world.container is None or not config.try_container or "docker" not in config.runtimes:
        return
    try:
        complaints = world.container(world.config)
    except LookupError as error:
        yield found("CONTAINER_NO_IMAGE", str(error.args[0]))
    except RuntimeFault as fault:
        yield found("CONTAINER_FAILED", fault.message)
    else:
        for complaint in complaints:
            yield found("CONTAINER_UNCONFINED", complaint)


def check_firewall(world: World) -> Iterator[Finding]:
    """The rules that keep workloads from the host can be set."""
    if "docker" not in world.config.runtimes:
        return
    code, said = world.command(("iptables", "-w", "2", "-n", "-L", "INPUT"))
    if code == 127:
        yield found("IPTABLES_MISSING", said.strip())
    elif code:
        yield found("IPTABLES_DENIED", said.strip())
    has_ipv6 = bool(world.text("/proc/net/if_inet6"))
    if has_ipv6 and world.command(("ip6tables", "-w", "2", "-n", "-L", "INPUT"))[0]:
        yield found("IPV6_UNFILTERED", "the host has IPv6 addresses and no ip6tables")


def check_cgroups(world: World) -> Iterator[Finding]:
    """CPU, memory and processes can be limited and metered."""
    root = world.path("/sys/fs/cgroup")
    unified = root / "cgroup.controllers"
    if unified.exists():
        present = set(unified.read_text().split())
        wanted = {"cpu", "memory", "pids"}
    else:
        wanted = {"cpu", "cpuacct", "memory", "pids", "freezer"}
        present = {name for name in wanted if (root / name).is_dir()}
        if not present:
            yield found("CGROUP_MISSING", "nothing is mounted on /sys/fs/cgroup")
            return
    missing = sorted(wanted - present)
    if missing:
        yield found("CGROUP_CONTROLLER_MISSING", f"no controller {', '.join(missing)}")
    mounts = world.text("/proc/mounts").splitlines()
    rows = [line.split() for line in mounts if " /sys/fs/cgroup" in line and "cgroup" in line]
    held = [row for row in rows if len(row) > 3 and row[2].startswith("cgroup")]
    if held and all("ro" in row[3].split(",") for row in held):
        if "process" in world.config.runtimes:
            yield found("CGROUP_READONLY", "/sys/fs/cgroup is mounted read-only")


def check_sandbox(world: World) -> Iterator[Finding]:
    """The process runtime's two tools."""
    if "process" not in world.config.runtimes:
        return
    if world.command(("bwrap", "--version"))[0]:
        yield found("BUBBLEWRAP_MISSING", "bwrap is not installed: workloads would be UNCONFINED")
    if world.command(("setpriv", "--version"))[0]:
        yield found("SETPRIV_MISSING", "setpriv is not installed")


def check_volumes(world: World) -> Iterator[Finding]:
    """A small volume, made and destroyed, where disk is rented out."""
    config = world.config
    if (
        config.volumes
        and config.try_container
        and (lacks := world.volumes(config.state / "runtime"))
    ):
        yield found("VOLUMES_IMPOSSIBLE", f"prices.disk offers volumes, which take: {lacks}")


def check_mesh(world: World) -> Iterator[Finding]:
    """What members of clusters need, where a mesh is offered."""
    endpoint = world.config.mesh
    if not endpoint:
        return
    if lacks := world.mesh(world.config.runtimes):
        yield found("MESH_IMPOSSIBLE", f"[mesh] offers clusters a network, which takes: {lacks}")
    if endpoint != BEHIND_NAT and not world.owns(endpoint):
        yield found("MESH_ELSEWHERE", f"mesh.endpoint {endpoint} is no address of this host")


def check_stores(world: World) -> Iterator[Finding]:
    """What mounts clusters' stores, where they are shown."""
    if world.config.stores and (lacks := world.stores()):
        yield found("STORES_IMPOSSIBLE", f"[stores] shows clusters' stores, which takes: {lacks}")


def check_allow_list(world: World) -> Iterator[Finding]:
    """Which images may run."""
    if "docker" in world.config.runtimes and "*" in world.config.allow:
        yield found(
            "ALLOW_LIST_OPEN",
            "images of any registry are pulled: one of an attacker's can lead the daemon where only"
            " this host gets",
        )
