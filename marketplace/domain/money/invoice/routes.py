"""I11 for each lease: a routed one has exactly its own route, and what is shown of its hops is
theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.errors import Malformed
from marketplace.domain.money.evidence import LeaseEvidence
from marketplace.domain.money.route.evidence import Opening, RouteEvidence
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.route import Route, RouteRefused, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms


@dataclass(frozen=True)
class Passage:
    """A routed lease: its terms with their hash, its route, and what is shown of it."""

    terms: Terms
    hash: bytes
    route: Route
    shown: RouteEvidence

    def opening(self, *, into: bool) -> Opening | None:
        """The hop into the router, or out of it, as far as it is shown."""
        return self.shown.hop_in if into else self.shown.hop_out

    def due(self, owed: int, *, into: bool) -> int:
        """What a lease that owes *owed* makes due on that hop, lovelace."""
        return with_fee(owed, self.route.route_bps) if into else owed


def read_route(row: LeaseEvidence, routed: RoutedTerms | None) -> Passage | None:
    """The passage of a lease whose terms are *routed*; None for a direct one (None).

    :class:`RouteRefused` with the ``way`` of the first rule that is broken.
    """
    shown = row.route
    if routed is None:
        if shown is not None:
            raise RouteRefused("direct terms, and a route beside them", way="route")
        return None
    if shown is None:
        raise RouteRefused("routed terms without their route", way="route")
    try:
        route = check_route(shown.signed, routed)
    except Malformed as error:
        raise RouteRefused(error.message, way="route") from error
    pairs = ((shown.hop_in, route.in_commit), (shown.hop_out, route.out_commit))
    opened = [commit(one.hop, one.salt) == sealed for one, sealed in pairs if one is not None]
    if not opened or not all(opened):
        raise RouteRefused("the hops that are shown are not those of the route", way="commit")
    return Passage(routed.terms, routed.hash, route, shown)
