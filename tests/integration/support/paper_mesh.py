"""A mesh that is none: what a daemon asks of one, and what it is told."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from adapter.mesh.host import Placed
from adapter.mesh.netns import MeshFault
from marketplace.domain.work.mesh import Heard, MeshPeer, public
from marketplace.domain.work.mesh_net import Seat
from marketplace.domain.work.mesh_relay import RelayPass


class PaperMesh:
    """*hears*: the members that every lease's mesh hears, of those it has; *broken*: what it does
    fails; *left*: leases that an earlier run left.
    """

    def __init__(self, *left: str) -> None:
        self.leases = dict.fromkeys(left, ())
        self.peers: dict[str, tuple[MeshPeer, ...]] = {}
        self.hears: set[int] = set()
        self.broken = False
        self.ups = 0

    def held(self) -> list[str]:
        return list(self.leases)

    def up(self, lease: str, seat: Seat, pid: int = 0) -> Placed:
        self._try()
        self.ups += 1
        self.leases[lease] = ()
        self.peers.setdefault(lease, ())
        return self.placed(lease)

    def placed(self, lease: str) -> Placed:
        self._try()
        return Placed(b"\x0a" * 32, 41_000, public("203.0.113.9", 41_000))

    def meet(self, lease: str, peers: Sequence[MeshPeer]) -> tuple[int, ...]:
        self._try()
        self.peers[lease] = tuple(peers)
        return ()

    def given(self, lease: str, ticket: RelayPass) -> None:
        self._try()

    def hear(self, lease: str, wait_s: float) -> tuple[Heard, ...]:
        self._try()
        there = [one.member for one in self.peers[lease] if one.member in self.hears]
        return tuple(Heard(one, 500, 1, 1) for one in there)

    def dial(self, lease: str, port: int) -> socket.socket:
        self._try()
        return socket.create_connection(("127.0.0.1", port), 5)

    def down(self, lease: str) -> None:
        self._try()
        self.leases.pop(lease, None)
        self.peers.pop(lease, None)

    def _try(self) -> None:
        if self.broken:
            raise MeshFault("out of order")
