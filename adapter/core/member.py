"""What an adapter holds of a lease as a member of a cluster: its consumer's newest order, and what
was signed of its mesh. What follows from them is :mod:`.clusters`'.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.work.cluster_order import SignedOrder, Verb
from marketplace.domain.work.mesh import MeshPeer, SignedMesh


@dataclass(frozen=True, slots=True)
class Member:
    """*order*: the newest that was taken, on disk before anything followed from it; *place*: where
    its mesh is reached, *sight*: the last that was signed of whom it hears.
    """

    order: SignedOrder | None = None
    place: SignedMesh | None = None
    sight: SignedMesh | None = None

    @property
    def version(self) -> int:
        """Of the order; 0 before the first."""
        return self.order.order.version if self.order else 0

    @property
    def verb(self) -> Verb:
        """What it does: before the first order it meets the others."""
        return self.order.order.verb if self.order else Verb.MEET

    @property
    def number(self) -> int:
        """Of the last sight; 0 before the first."""
        return self.sight.sight.number if self.sight else 0

    def peers(self, member: int) -> tuple[MeshPeer, ...]:
        """Those that the order names, for *member*: never itself, by its number or by its key,
        whatever was signed.
        """
        if self.order is None:
            return ()
        key = self.place.place.key if self.place else b""
        named = self.order.order.peers
        return tuple(one for one in named if one.member != member and one.key != key)
