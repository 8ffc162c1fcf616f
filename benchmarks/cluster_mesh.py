"""The other half of ``tally bench cluster``: members with real WireGuard devices, on one machine.

Each member is what an adapter makes of one (:mod:`adapter.mesh`): a key, a network namespace, a
process of wireguard-go and a UDP port. All of them are on this machine and start at once, so its
cores bound the figure and no line does.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapter.daemon.meshes import ANSWER_S, SOON_S
from adapter.mesh import device
from adapter.mesh.host import MeshHost, Placed
from adapter.mesh.reach import Reach, own_address
from marketplace.domain.errors import Fault
from marketplace.domain.work.mesh import MeshPeer
from marketplace.domain.work.mesh_net import Seat, address

MEMBERS: Final = 8
WITHIN_S: Final = 60.0
_PORTS: Final = range(20_000, 56_000, 1_000)


class NotMeshed(Fault):
    """Some member did not hear another one in time."""

    code = "NOT_MESHED"
    remedy = "try it when nothing else runs on this machine, or --meshed fewer"


@dataclass(frozen=True)
class _Member:
    """The *at*-th, of an adapter of its own."""

    at: int
    lease: str
    seat: Seat
    host: MeshHost

    def up(self) -> Placed:
        return self.host.up(self.lease, self.seat)

    def hear(self, peers: tuple[MeshPeer, ...], deadline: float) -> int:
        """When all of *peers* were heard, in rounds as an adapter makes them."""
        self.host.meet(self.lease, peers)
        while len(self.host.hear(self.lease, ANSWER_S)) < len(peers):
            if time.monotonic() > deadline:
                raise NotMeshed(f"member {self.at} does not hear all others")
            time.sleep(SOON_S)
        return time.monotonic_ns()


def lacks() -> str:
    """What this machine lacks for it; empty for nothing."""
    return device.missing() or ("" if own_address() else "a network that it is in")


def run(members: int = MEMBERS) -> dict[str, Any]:
    """``{"members", "up_ms", "meshed_ms", "heard", "cpu_ms"}``: from nothing until each is up with
    a key; from there until each hears each other one, and how many directions that are; this
    machine's processor time for both, of all programs. NotMeshed, MeshFault.
    """
    group, endpoint = os.urandom(32), own_address()
    seats = tuple(address(group, at) for at in range(members))
    with tempfile.TemporaryDirectory(prefix="tally-mesh-") as folder:
        first = random.choice(_PORTS)
        made = [
            _Member(
                at, f"lease_{os.urandom(8).hex()}", Seat(at, seats),
                MeshHost(Path(folder, str(at)), f"bench-{at}", Reach(endpoint, first + 8 * at, 8)),
            )
            for at in range(members)
        ]  # fmt: skip
        try:
            with ThreadPoolExecutor(members) as pool:
                return _meshed(made, pool)
        finally:
            for one in made:
                one.host.down(one.lease)


def _meshed(made: list[_Member], pool: ThreadPoolExecutor) -> dict[str, Any]:
    begun, busy = time.monotonic_ns(), _busy_ms()
    placed = list(pool.map(_Member.up, made))
    up = time.monotonic_ns()
    everybody = [MeshPeer(at, p.key, p.candidates) for at, p in enumerate(placed)]
    deadline = time.monotonic() + WITHIN_S

    def hear(one: _Member) -> int:
        return one.hear(tuple(p for p in everybody if p.member != one.at), deadline)

    last = max(pool.map(hear, made))
    spent = _busy_ms() - busy
    return {
        "members": len(made),
        "up_ms": (up - begun) // 1_000_000,
        "meshed_ms": (last - up) // 1_000_000,
        "heard": sum(len(one.host.hear(one.lease, ANSWER_S)) for one in made),
        "cpu_ms": spent,
    }


def _busy_ms() -> int:
    """Of all cores together so far, what was not idle."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft = (int(word) for word in words[:7])
    return (user + nice + system + irq + soft) * 1000 // os.sysconf("SC_CLK_TCK")
