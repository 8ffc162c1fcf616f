"""Whether the adapter runs a job that a router is to pay for: the rules of ``admission``, and its
own look at the router's hop.

A router's word counts for nothing: the hop is one that this adapter found on its own chain door,
with room beside what it keeps for other leases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapter.core import admission, debt, routed
from adapter.core.admission import Declined, Rule
from adapter.core.hop import Routed
from adapter.core.state import Channel, Now, Own, State
from adapter.core.ticks import unseen
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.route import payee
from marketplace.domain.money.route.messages import HeadroomShort
from marketplace.domain.money.route.payee import PayeeBook, Served
from marketplace.domain.money.route.route import Route, SignedRoute, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms
from marketplace.domain.protocol import wire
from marketplace.domain.supply.grant import Grant

SKEW_MS: Final = 60_000
"""What a router's clock and ours may be apart: a route begins so much after its expiry at most."""
UNSEEN: Final = "HOP_UNSEEN"


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """Yes: these terms, with this grant, paid as *routed* says by *hop*, whose *book* has it."""

    terms: Terms
    grant: Grant
    routed: Routed
    hop: Channel
    book: PayeeBook


def check(state: State, own: Own, asked: wire.RouteProposed, now: Now) -> RoutePlan | Declined:
    """The plan for what is *asked*, or the first rule that it breaks."""
    try:
        agreed = RoutedTerms.decode(asked.terms)
        signed = SignedRoute(asked.route, asked.route_signature)
        route = check_route(signed, agreed)
        opens = commit(asked.hop, asked.salt) == route.out_commit
    except Refusal as refusal:
        return Declined(refusal.code, refusal.message, refusal.remedy)
    terms = agreed.terms
    plan = admission.fit(state, own, terms, asked, now)
    if isinstance(plan, Declined):
        return plan
    hop = state.channels.get(asked.hop)
    if hop is None or hop.hop is None or hop.stage is ChannelStage.OPENING:
        return Declined(UNSEEN, "no block that this provider sees holds that hop")
    for rules in (
        _route_rules(state, terms, route, opens, now),
        _hop_rules(state, own, hop, terms),
    ):
        for holds, code, why in rules:
            if not holds:
                return Declined(code, why)
    if unseen(state, asked.hop, terms.close_period_ms, now, own.limits):
        return Declined(UNSEEN, "this provider could not look at that hop for too long")
    left = debt.waits_ms(state, hop.hop.owner, now)
    if left > 0:
        why = f"a lease of this router ended unpaid: ask again in {-(-left // 1000)} s"
        return Declined("UNPAID_WAIT", why)
    reserve = min(route.reserve, terms.ceiling)
    held = Routed(asked.hop, agreed.hash, reserve, asked.route, asked.route_signature, asked.salt)
    served = Served(terms.lease, terms.session_vk, terms.tick_owed(), reserve)
    try:
        book = _admitted(hop, held.terms, served)
    except HeadroomShort as short:
        return _short(hop, held.terms, served, short)
    return RoutePlan(terms, plan.grant, held, hop, book)


def _route_rules(state: State, terms: Terms, route: Route, opens: bool, now: Now) -> Iterator[Rule]:
    """The route is for this hop, in time, and keeps enough; the lease's key is its own."""
    yield opens, "ROUTE_REFUSED", "the route's commitment is to another hop"
    yield now.wall_ms < route.expires_at_ms + SKEW_MS, "QUOTE_EXPIRED", "the route has expired"
    yield (
        route.reserve >= terms.tick_owed(),
        "CEILING_ODD",
        f"a reserve of {route.reserve} is less than a tick",
    )
    key = terms.session_vk
    fresh = key not in state.channels and key not in state.past.keys
    yield (
        fresh and not routed.named(state, key),
        "ROUTE_KEY_USED",
        "a lease over a router has a key of its own",
    )


def _hop_rules(state: State, own: Own, hop: Channel, terms: Terms) -> Iterator[Rule]:
    """The hop pays this adapter, as the terms say, and goes on."""
    assert hop.hop is not None
    over = hop.stage is not ChannelStage.OPEN or hop.end_asked or hop.settling
    yield not over, "CHANNEL_OVER", "this hop is closing or over"
    yield hop.hop.fork is None, "HOP_FORKED", "this hop's payments contradict each other"
    yield not hop.starved, "CLAIM_STARVED", "what is due on this hop does not come on chain"
    consts = hop.hop.consts()
    mine = (consts.adapter_vkh, consts.payout, consts.close_period_ms, consts.fee_bps)
    said = (terms.adapter_vkh, terms.payout, terms.close_period_ms, terms.fee_bps)
    same = (hop.hop.magic, hop.hop.asset) == (terms.magic, terms.asset)
    yield mine == said and same, "CHANNEL_DIFFERS", "the hop has other constants than the terms"
    yield (
        own.offer.worth(hop.capacity),
        "BELOW_MINIMUM",
        f"the hop can bring {hop.capacity}: below the offer's minimum of {own.offer.minimum}",
    )


def _admitted(hop: Channel, terms: bytes, served: Served, *, by_depth: bool = True) -> PayeeBook:
    assert hop.hop is not None
    amount = min(hop.limit, hop.capacity) if by_depth else hop.capacity
    return payee.admit(hop.hop.book(amount), terms, served)


def _short(hop: Channel, terms: bytes, served: Served, short: HeadroomShort) -> Declined:
    """Not yet, where only blocks are missing; else not on this hop."""
    try:
        _admitted(hop, terms, served, by_depth=False)
    except HeadroomShort:
        return Declined(short.code, short.message, short.remedy)
    return Declined(UNSEEN, f"that hop is too young for so much: {short.message}")
