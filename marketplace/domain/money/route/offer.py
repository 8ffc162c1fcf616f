"""A router's standing offer: what a hop to it must look like, and what it asks for passing on."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route.fee import MAX_ROUTE_BPS

_TAG: Final = "tally/router/v1"


class RouterRefused(Refusal):
    """A router's offer that it did not sign."""

    code = "ROUTER_REFUSED"
    remedy = "ask the router for its offer again; nothing was agreed"


@dataclass(frozen=True)
class RouterOffer:
    """What *router_vk* asks of whoever opens a hop to it, on network *magic*.

    *adapter_vkh*, *payout*, *close_period_ms*: of the hop's channel, whose ``fee_bps`` is 0: a
    settler's bounty there would be taken from the router by a consumer and a provider who collude.
    *route_bps*: 1/10000 of what a lease owes; *hop_fee*: lovelace once a hop, for its end;
    *hop_ms*: within which it passes on; *hop_cap*: most lovelace that a hop may hold unclaimed;
    *lease_cap*: most lovelace that it reserves for one lease.
    """

    magic: int
    router_vk: bytes
    adapter_vkh: bytes
    payout: bytes
    close_period_ms: int
    route_bps: int
    hop_fee: int
    hop_ms: int
    hop_cap: int
    lease_cap: int

    def consts(self, session_vk: bytes, consumer_vkh: bytes) -> Consts:
        """What the datum of a hop to this router must say."""
        return Consts(
            session_vk, self.adapter_vkh, self.payout, consumer_vkh, self.close_period_ms, 0
        )

    def encode(self) -> bytes:
        """The canonical bytes that are signed and hashed."""
        return canonical.encode([_TAG, *astuple(self)])

    @staticmethod
    def decode(data: bytes) -> RouterOffer:
        """The reverse of :meth:`encode`; :class:`Malformed` for anything else."""
        f = canonical.decode_tagged(data, _TAG, 10)
        return RouterOffer(
            magic=want_int(f[0], "magic"),
            router_vk=want_bytes(f[1], 32, "router_vk"),
            adapter_vkh=want_bytes(f[2], 28, "adapter_vkh"),
            payout=want_bytes(f[3], 28, "payout"),
            close_period_ms=want_int(f[4], "close_period_ms"),
            route_bps=want_int(f[5], "route_bps", 0, MAX_ROUTE_BPS),
            hop_fee=want_int(f[6], "hop_fee"),
            hop_ms=want_int(f[7], "hop_ms"),
            hop_cap=want_int(f[8], "hop_cap"),
            lease_cap=want_int(f[9], "lease_cap"),
        )

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding: what the first leaf of a hop to it is under."""
        return canonical.blake2b_256(self.encode())


@dataclass(frozen=True)
class SignedRouterOffer:
    """An offer's exact bytes and the router's signature over them."""

    body: bytes
    signature: bytes

    def verify(self) -> RouterOffer:
        """The offer, if the router that it names signed exactly these bytes."""
        offer = RouterOffer.decode(self.body)
        if not verifies(offer.router_vk, self.body, self.signature):
            raise RouterRefused("the router did not sign this offer")
        return offer
