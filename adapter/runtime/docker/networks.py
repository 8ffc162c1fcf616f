"""The network of a workload's container: none, a bridge of its own with its rules in force, or that
of a small container which holds it for a member of a cluster.

Docker makes a network with a container and begins its program at once; a mesh has to be there
before. So the member's network belongs to a holder: Debian's static ``catatonit -P``, which does
nothing, alone in an image that is made on this machine. The mesh moves in, and the workload's
container joins. What egress its job has stands beside the mesh, under the rules of any other.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker.errors

from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.arguments import connection
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.local_images import build_holder
from adapter.runtime.egress import Firewall, bridge_name, resolve
from marketplace.domain.work.mesh_net import Seat, host_name
from marketplace.domain.work.workload import Egress, EgressMode, WorkloadSpec

HOLDER: Final = "catatonit"
OF_ADAPTER: Final = "tally.holder"
"""The label by which a holder is its adapter's; it is no workload."""
_OF_LEASE: Final = "tally.holder.lease"
_NOBODY: Final = "65534:65534"


def holder_program() -> Path | None:
    """Where the holder's program is on this host; None where it is not."""
    found = shutil.which(HOLDER)
    return None if found is None else Path(found).resolve()


@dataclass(frozen=True)
class Networks:
    """Of one adapter's containers; *daemon* is the way to Docker."""

    config: DockerConfig
    firewall: Firewall
    daemon: Callable[[], Any]

    def of(self, spec: WorkloadSpec) -> str:
        """What the container of *spec* joins, ready."""
        if spec.mesh is None:
            return self._bridge(spec.lease, spec.egress, spec.ports)
        holder = self._holder(spec.lease)
        if holder is None or holder.status != "running":
            raise RuntimeFault(f"{spec.lease}: nothing holds its network")
        return f"container:{holder.id}"

    def hold(self, lease: str, egress: Egress, ports: tuple[int, ...], seat: Seat) -> int:
        """The network of a member, before its workload; a process that is in it."""
        holder = self._holder(lease)
        if holder is not None and holder.status != "running":
            holder.remove(force=True, v=True)
            holder = None
        if holder is None:
            holder = self._made(lease, egress, ports, seat)
        holder.reload()
        return int(holder.attrs["State"]["Pid"])

    def _made(self, lease: str, egress: Egress, ports: tuple[int, ...], seat: Seat) -> Any:
        client, program = self.daemon(), holder_program()
        if program is None:
            raise RuntimeFault(f"{HOLDER} is not installed: nothing can hold a member's network")
        joined = connection(egress, self._bridge(lease, egress, ports))
        joined["extra_hosts"] = {**joined.get("extra_hosts", {}), **seat.names()}
        holder = client.containers.create(
            image=build_holder(client, program),
            command=[f"/{HOLDER}", "-P"],
            name=self._name(lease),
            labels={OF_ADAPTER: self.config.adapter, _OF_LEASE: lease},
            user=_NOBODY,
            hostname=host_name(seat.member),
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            mem_limit="16m",
            memswap_limit="16m",
            pids_limit=8,
            restart_policy={"Name": "no"},
            **joined,
        )
        holder.start()
        return holder

    def address_for(self, mode: str) -> str:
        """Where this host reaches a container whose network is another's; *mode* is its own word
        for whose.
        """
        if not mode.startswith("container:"):
            return ""
        try:
            held = self.daemon().containers.get(mode.removeprefix("container:"))
        except docker.errors.NotFound:
            return ""
        return address_of(held)

    def remove(self, lease: str) -> None:
        """Holder, bridge and rules; may be repeated."""
        holder = self._holder(lease)
        if holder is not None:
            holder.remove(force=True, v=True)
        bridge = bridge_name(lease, self.config.adapter)
        with contextlib.suppress(docker.errors.NotFound):
            self.daemon().networks.get(bridge).remove()
            self.firewall.forget(bridge)

    def sweep(self, living: Collection[str]) -> None:
        """Remove what holds a network for a lease that is not among *living*: its adapter was
        killed before the workload began.
        """
        mine = {"label": f"{OF_ADAPTER}={self.config.adapter}"}
        listed = self.daemon().containers.list(all=True, filters=mine, ignore_removed=True)
        for lease in {str(one.labels[_OF_LEASE]) for one in listed} - set(living):
            self.remove(lease)

    def _name(self, lease: str) -> str:
        return f"tally-net-{self.config.adapter[:16]}-{lease}"

    def _holder(self, lease: str) -> Any:
        try:
            return self.daemon().containers.get(self._name(lease))
        except docker.errors.NotFound:
            return None

    def _bridge(self, lease: str, egress: Egress, ports: tuple[int, ...]) -> str:
        """The lease's own bridge with its rules in force, or ``none``."""
        if egress.mode is EgressMode.NONE and not ports:
            return "none"
        bridge = bridge_name(lease, self.config.adapter)
        self.firewall.ensure()
        self.firewall.forget(bridge)
        if egress.mode is EgressMode.LIST:
            self.firewall.allow(bridge, resolve(egress.allow))
        elif egress.mode is EgressMode.OPEN:
            self.firewall.open(bridge)
        client = self.daemon()
        with contextlib.suppress(docker.errors.NotFound):
            client.networks.get(bridge).remove()
        client.networks.create(
            bridge,
            driver="bridge",
            internal=egress.mode is EgressMode.NONE,
            options={"com.docker.network.bridge.name": bridge},
            labels={"tally.adapter": self.config.adapter, "tally.lease": lease},
        )
        return bridge


def address_of(container: Any) -> str:
    """Where this host reaches what listens in *container*; empty where it has no network."""
    address = ""
    for network in container.attrs["NetworkSettings"]["Networks"].values():
        address = str(network.get("IPAddress") or address)
    return address
