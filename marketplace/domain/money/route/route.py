"""A route: the router's signed word which two hops pay for one lease, and at what fee.

It names the hops by commitments, so that neither side learns the other's: the salt of the hop in
goes to the consumer only, that of the hop out to the provider only.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int, want_text
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.money.route.fee import MAX_ROUTE_BPS
from marketplace.domain.money.route.terms import RoutedTerms

_TAG: Final = "tally/route/v1"
_COMMIT: Final = b"tally/commit/v1"
HOPS_A_TICK: Final = 4
"""A receipt and its voucher pass both hops, so a tick lasts at least so many of ``hop_ms``."""


class RouteRefused(Refusal):
    """A route that its router did not sign, or that is not the one of the terms."""

    code = "ROUTE_REFUSED"
    remedy = "ask for a new quote, or rent over a direct channel"


def commit(session_vk: bytes, salt: bytes) -> bytes:
    """32 bytes that stand for hop *session_vk*; *salt* (32 random bytes) opens them."""
    want_bytes(session_vk, 32, "session_vk")
    return canonical.blake2b_256(_COMMIT + session_vk + want_bytes(salt, 32, "salt"))


@dataclass(frozen=True)
class Route:
    """*router_vk* pays for *lease* (its key: *lease_vk*) what it is paid for it, less its fee.

    *in_commit*, *out_commit*: :func:`commit` of the consumer's hop to it and of its own to the
    provider; *route_bps*: its fee; *hop_ms*: within which it passes on; *reserve*: lovelace that
    both hops keep for the lease; *expires_at_ms*: until when it may begin, ms since 1970.
    """

    magic: int
    router_vk: bytes
    lease: str
    lease_vk: bytes
    in_commit: bytes
    out_commit: bytes
    route_bps: int
    hop_ms: int
    reserve: int
    expires_at_ms: int

    def encode(self) -> bytes:
        """The canonical bytes that are signed and hashed."""
        return canonical.encode([_TAG, *astuple(self)])

    @staticmethod
    def decode(data: bytes) -> Route:
        """The reverse of :meth:`encode`; :class:`Malformed` for anything else."""
        f = canonical.decode_tagged(data, _TAG, 10)
        return Route(
            magic=want_int(f[0], "magic"),
            router_vk=want_bytes(f[1], 32, "router_vk"),
            lease=want_text(f[2], "lease", 200),
            lease_vk=want_bytes(f[3], 32, "lease_vk"),
            in_commit=want_bytes(f[4], 32, "in_commit"),
            out_commit=want_bytes(f[5], 32, "out_commit"),
            route_bps=want_int(f[6], "route_bps", 0, MAX_ROUTE_BPS),
            hop_ms=want_int(f[7], "hop_ms"),
            reserve=want_int(f[8], "reserve", 1),
            expires_at_ms=want_int(f[9], "expires_at_ms"),
        )

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding: the ``route`` of the terms."""
        return canonical.blake2b_256(self.encode())


@dataclass(frozen=True)
class SignedRoute:
    """A route's exact bytes and the router's signature over them."""

    body: bytes
    signature: bytes

    def verify(self) -> Route:
        """The route, if the router that it names signed exactly these bytes."""
        route = Route.decode(self.body)
        if not verifies(route.router_vk, self.body, self.signature):
            raise RouteRefused("the router did not sign this route", way="router")
        return route


def check_route(signed: SignedRoute, routed: RoutedTerms) -> Route:
    """The route of a lease's terms; :class:`RouteRefused` names the first rule that is broken, with
    ``docs/invoice.md``'s word for it (``way``); :class:`Malformed` if the bytes are no route.
    """
    route, terms = signed.verify(), routed.terms
    mine = (terms.magic, terms.lease, terms.session_vk)
    rules = (
        ("hash", route.hash == routed.route, "the terms name another route"),
        (
            "lease",
            (route.magic, route.lease, route.lease_vk) == mine,
            "the route is for another lease, key or network",
        ),
        (
            "consumer",
            terms.consumer_vkh == canonical.blake2b_224(terms.session_vk),
            "the terms' consumer is not the lease's own key",
        ),
        (
            "pace",
            terms.tick_ms >= HOPS_A_TICK * route.hop_ms,
            f"a tick of {terms.tick_ms} ms is too short for hops of {route.hop_ms} ms",
        ),
    )
    for way, holds, why in rules:
        if not holds:
            raise RouteRefused(why, way=way)
    return route
