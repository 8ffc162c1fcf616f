"""What a cluster's consumer orders of one member: whom it meets, and whether it runs.

Signed by the session key of the member's lease, which the market does not have: it can hold an
order back, and neither make one nor show an old one again. *version* grows with each order of a
lease; an adapter takes none that is not above the one that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int, want_items, want_list, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies
from marketplace.domain.work.mesh import MeshPeer
from marketplace.domain.work.mesh_net import MOST_GUESTS
from marketplace.domain.work.parts import MOST_MEMBERS

_TAG: Final = "tally/cluster-order/v1"
MOST_VERSION: Final = 2**53


class OrderRefused(Refusal):
    """An order that the lease's session key did not sign, or that is for another lease or older
    than one that is known.
    """

    code = "ORDER_REFUSED"
    remedy = "sign the order with the lease's session key, above the version that is held"


class Verb(StrEnum):
    """What a member does from now on."""

    MEET = "MEET"  # the workload is up and unbilled, and takes up its peers
    RUN = "RUN"  # it works, and is billed
    HOLD = "HOLD"  # it is frozen and unbilled


@dataclass(frozen=True)
class ClusterOrder:
    """Order *version* of *lease*: *verb*, with exactly *peers* in its mesh, by member, itself not
    among them; its consumer's own machines, guests, come last.
    """

    lease: str
    version: int
    verb: Verb
    peers: tuple[MeshPeer, ...] = ()

    def encode(self) -> bytes:
        """What is signed: canonical CBOR under its own tag."""
        peers = [one.to_wire() for one in self.peers]
        return canonical.encode([_TAG, self.lease, self.version, self.verb.value, peers])

    @staticmethod
    def decode(body: bytes) -> ClusterOrder:
        """The reverse; :class:`Malformed`."""
        lease, version, verb, peers = canonical.decode_tagged(body, _TAG, 4)
        if verb not in tuple(Verb):
            raise Malformed(f"{str(verb)[:20]!r} is none of {', '.join(Verb)}")
        found = tuple(
            map(MeshPeer.from_wire, want_items(peers, "peers", MOST_MEMBERS + MOST_GUESTS))
        )
        members = [one.member for one in found]
        if members != sorted(set(members)):
            raise Malformed("peers are sorted by member, each once")
        if len({one.key for one in found}) != len(found):
            raise Malformed("two peers have one key")
        return ClusterOrder(
            want_text(lease, "lease", 64),
            want_int(version, "version", 1, MOST_VERSION),
            Verb(verb),
            found,
        )


@dataclass(frozen=True)
class SignedOrder:
    """An order's bytes and the session key's signature over them."""

    body: bytes
    signature: bytes

    @cached_property
    def order(self) -> ClusterOrder:
        """What the bytes say; :class:`Malformed`."""
        return ClusterOrder.decode(self.body)

    @staticmethod
    def sign(session: Signer, order: ClusterOrder) -> SignedOrder:
        """By the session key of the order's lease."""
        body = order.encode()
        return SignedOrder(body, session.sign(body))

    def verify(self, lease: str, session_vk: bytes) -> ClusterOrder:
        """The order; :class:`OrderRefused` unless *session_vk* signed it for *lease*,
        :class:`Malformed`.
        """
        if not verifies(session_vk, self.body, self.signature):
            raise OrderRefused("the order is not signed by the session key of its lease")
        if self.order.lease != lease:
            raise OrderRefused(f"the order is for lease {self.order.lease}, not for {lease}")
        return self.order

    def to_wire(self) -> list[object]:
        """For a message or a store."""
        return [self.body, self.signature]

    @staticmethod
    def from_wire(value: object) -> SignedOrder:
        """The reverse; :class:`Malformed`. Does not check the signature."""
        body, signature = want_list(value, 2, "order")
        read = SignedOrder(want_bytes(body, None, "body"), want_bytes(signature, 64, "signature"))
        _ = read.order
        return read
