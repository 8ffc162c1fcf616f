"""The route of a quote: the router's signed word, checked before anything is signed.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from marketplace.client.jobs.core.refused import QuoteRefused
from marketplace.domain.canonical import want_bytes, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.money.route.fee import fee, reach, with_fee
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.payer import Bought
from marketplace.domain.money.route.route import Route, SignedRoute, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms, SignedRoutedTerms
from marketplace.domain.money.terms import SignedTerms


@dataclass(frozen=True)
class OwnHop:
    """A hop of this payer: what its router asked for when it was opened, and the lovelace that no
    lease has or may still ask for.
    """

    offer: RouterOffer
    free: int


@dataclass(frozen=True)
class QuotedRoute:
    """Which hop pays (its session key), and what opens the route's commitment to it."""

    signed: SignedRoute
    route: Route
    terms: RoutedTerms
    salt: bytes
    hop: bytes

    @property
    def bought(self) -> Bought:
        """The lease as the hop's book has it."""
        terms, route = self.terms.terms, self.route
        tick = max(1, terms.tick_owed())
        return Bought(
            terms.lease, terms.session_vk, terms.adapter_vk, route.route_bps, tick, route.reserve
        )

    @property
    def most_fee(self) -> int:
        """Lovelace that the router gets if the lease costs its ceiling."""
        return fee(self.terms.terms.ceiling, self.route.route_bps)

    def cap(self, left: int) -> int:
        """The most that may be approved so that *left* lovelace pay for it with its fee."""
        return min(self.terms.terms.ceiling, reach(max(0, left), self.route.route_bps))


def read_route(signed: SignedTerms, row: object) -> QuotedRoute | None:
    """From the quote's *row*; None for terms without a route. :class:`Malformed`, ``RouteRefused``:
    a router that did not sign, or a route that is not the terms'.
    """
    if not isinstance(signed, SignedRoutedTerms):
        return None
    if not isinstance(row, dict):
        raise Malformed("the quote's terms are routed, and it shows no route")
    shown = cast("dict[str, Any]", row)
    try:
        body, signature, salt, hop = (
            bytes.fromhex(want_text(shown[name], name, 16_384))
            for name in ("body", "signature", "salt", "hop")
        )
    except (KeyError, ValueError) as error:
        raise Malformed(f"the quote's route cannot be read: {error}") from error
    word = SignedRoute(body, want_bytes(signature, 64, "signature"))
    route = check_route(word, signed.routed)
    return QuotedRoute(
        word, route, signed.routed, want_bytes(salt, 32, "salt"), want_bytes(hop, 32, "hop")
    )


def check_quoted(quoted: QuotedRoute, hops: Mapping[bytes, OwnHop], left: int) -> None:
    """:class:`QuoteRefused` names the first thing that is not what this payer has: *hops*, and
    *left* lovelace of the job's budget.
    """
    route, terms = quoted.route, quoted.terms.terms
    hop = hops.get(quoted.hop)
    if hop is None:
        raise QuoteRefused(f"lease {terms.lease}: it is paid over a hop that this payer lacks")
    rules = (
        (route.in_commit == commit(quoted.hop, quoted.salt), "its route names another hop"),
        (route.router_vk == hop.offer.router_vk, "its route is another router's"),
        (route.route_bps <= hop.offer.route_bps, "its router's fee is above its offer"),
        (route.reserve >= terms.ceiling, "its route keeps less than it may cost"),
        (
            with_fee(route.reserve, route.route_bps) <= hop.free,
            "the hop holds less than it may cost",
        ),
        (
            quoted.cap(left) >= min(terms.ceiling, terms.tick_owed()),
            "the budget does not pay a tick of it with the router's fee",
        ),
    )
    for holds, why in rules:
        if not holds:
            raise QuoteRefused(f"lease {terms.lease}: {why}", lease=terms.lease)
