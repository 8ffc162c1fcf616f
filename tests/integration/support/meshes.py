"""Members of a cluster on this machine: real WireGuard devices in real network namespaces."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from adapter.mesh import device, netns
from adapter.mesh.host import MeshHost, Placed
from adapter.mesh.reach import Reach
from marketplace.domain.work.mesh import MeshPeer
from marketplace.domain.work.mesh_net import Seat, address
from tests.integration.support import images

GROUP = b"g" * 32


def seat(member: int, group: bytes = GROUP, members: int = 3) -> Seat:
    """Of *member* in its group."""
    return Seat(member, tuple(address(group, at) for at in range(members)))


def peer(member: int, placed: Placed) -> MeshPeer:
    """As an order names it."""
    return MeshPeer(member, placed.key, placed.candidates)


@contextlib.contextmanager
def host_at(state: Path, endpoint: str) -> Iterator[MeshHost]:
    """An adapter's meshes, of which nothing is left afterwards."""
    made = MeshHost(state, images.lease_id("a"), Reach(endpoint, random.randint(20, 59) * 1000, 32))
    try:
        yield made
    finally:
        for lease in made.held():
            made.down(lease)


def met(host: MeshHost, seats: Sequence[Seat]) -> list[str]:
    """Leases with those *seats* that are each other's peers."""
    leases = [images.lease_id() for _ in seats]
    placed = [host.up(lease, one) for lease, one in zip(leases, seats, strict=True)]
    everybody = [peer(one.member, at) for one, at in zip(seats, placed, strict=True)]
    for lease, one in zip(leases, seats, strict=True):
        assert host.meet(lease, [p for p in everybody if p.member != one.member]) == ()
    return leases


def heard(host: MeshHost, lease: str) -> list[int]:
    """The members that it hears now."""
    return [one.member for one in host.hear(lease, 0.3)]


def until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it holds within that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
    return True


def left_of(name: str) -> list[str]:
    """What is on the host of the mesh with that name."""
    interface = Path("/sys/class/net", name)
    found = [str(p) for p in (netns.path_of(name), device.socket_of(name), interface) if p.exists()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if name.encode() in path.read_bytes().split(b"\0"):
                found.append(str(path))
    return found
