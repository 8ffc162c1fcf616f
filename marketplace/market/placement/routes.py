"""A lease that this market's router is to pay: its route is made before the lease is written.

Whatever speaks against it (no hop, no room, a provider that cannot, a router that refuses) means
that the same lease goes directly, with the same fresh key. Reserves cost nobody anything while they
are kept, so a quote over a route stands briefly, and a hop has few of which nothing was paid yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.domain.canonical import blake2b_224, blake2b_256
from marketplace.domain.errors import TallyError
from marketplace.domain.money.route.fee import reach, with_fee
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.route import HOPS_A_TICK, RouteRefused, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import ADA, Terms
from marketplace.domain.protocol.codec import ROUTE
from marketplace.domain.supply.offer import Offer
from marketplace.market.base.records import Job
from marketplace.market.base.routing import HopUse, RouteAsked, RouteMade, Router
from marketplace.market.context import Market, log
from marketplace.market.core.proposal import terms_of, with_key
from marketplace.market.lifecycle import routes
from marketplace.market.state.match import Match

QUOTE_MS: Final = 45_000
"""The longest that a quote over a route stands, whoever its account is."""
KEPT_MS: Final = 60_000
"""The reserves for it: also for who signs at the last moment."""
WAITING: Final = 4
"""So many leases of one hop may wait for their first payment, or as many as were paid before ..."""
WAITING_MOST: Final = 64
"""... and never more."""


def expires_ms(market: Market, job: Job, quote_ms: int) -> int:
    """When a quote for *job* ends that would stand *quote_ms* if it were a direct one."""
    routed = job.hop and market.router is not None
    return market.now + (min(quote_ms, QUOTE_MS) if routed else quote_ms)


def reachable(market: Market, job: Job) -> list[Offer]:
    """Listed offers of whose providers a lease of *job* may be paid over its hop."""
    if not job.hop or market.router is None:
        return []
    return [one for _, one in market.directory.offers() if _serves(market, job, one)]


def _serves(market: Market, job: Job, offer: Offer) -> bool:
    able = market.providers.able(offer.provider, ROUTE)
    return able and offer.asset == ADA and offer.provider not in job.direct


def room(use: HopUse) -> bool:
    """Whether one more lease of the hop may wait for its first payment."""
    return use.waiting < min(WAITING_MOST, max(WAITING, use.paid))


async def make(market: Market, job: Job, found: Match, lease: str, until: int) -> RouteMade | None:
    """The route of *lease*, whose quote stands *until* then; None: it goes directly. OverBudget."""
    router, job = market.router, with_key(job)
    if router is None or not job.hop or not job.session_vk:
        return None
    if not _serves(market, job, found.offer) or not room(router.use(job.hop)):
        return None
    mine = RouterOffer.decode(router.offer.body)
    terms = terms_of(job, job.parsed, found, lease, job.session_vk, until)
    terms = replace(terms, ceiling=_payable(job, terms.ceiling, mine.route_bps))
    if not 0 < terms.ceiling <= mine.lease_cap or terms.tick_ms < HOPS_A_TICK * mine.hop_ms:
        return None
    asked = RouteAsked(
        lease, job.session_vk, job.account, found.offer, job.hop, terms.ceiling, terms.tick_ms,
        until, market.now + KEPT_MS,
    )  # fmt: skip
    return await _made(market, router, asked, terms, mine)


def _payable(job: Job, ceiling: int, bps: int) -> int:
    """The most of *ceiling* that the job's budget pays with the router's fee, earlier leases' too:
    nobody signs for what is served beyond that.
    """
    left = job.parsed.price.budget - with_fee(job.spent_before, bps)
    return min(ceiling, reach(max(0, left), bps))


async def _made(
    market: Market, router: Router, asked: RouteAsked, terms: Terms, mine: RouterOffer
) -> RouteMade | None:
    try:
        made = await router.make(asked)
    except TallyError as error:
        log.info("route", lease=asked.lease, error=error.line())
        return None
    try:
        check(made, asked, terms, mine)
    except TallyError as error:
        log.error("route", lease=asked.lease, error=error.line())
        await routes.drop(market, asked.lease)
        return None
    return made


def check(made: RouteMade, asked: RouteAsked, terms: Terms, mine: RouterOffer) -> None:
    """:class:`RouteRefused` unless *made* is what was *asked* of the router whose offer *mine* is:
    one router, these two hops, and no dearer than it offers.
    """
    routed = RoutedTerms(
        replace(terms, consumer_vkh=blake2b_224(terms.session_vk)), blake2b_256(made.signed.body)
    )
    route = check_route(made.signed, routed)
    rules = (
        (route.router_vk == mine.router_vk, "the route is another router's"),
        (made.hop_in == asked.hop_in, "the route is paid over another hop"),
        (route.in_commit == commit(made.hop_in, made.salt_in), "the hop in is not committed to"),
        (route.out_commit == commit(made.hop_out, made.salt_out), "nor is the hop out"),
        (route.reserve == asked.reserve, "the route reserves another amount"),
        (route.route_bps <= mine.route_bps, "the route is dearer than the router's offer"),
    )
    for holds, why in rules:
        if not holds:
            raise RouteRefused(why, way="made")
