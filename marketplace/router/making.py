"""A lease's way over a router: made, admitted, dropped, over. Pure; refusals change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import router
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.messages import HeadroomShort, LeaseUnknown, Outcome
from marketplace.domain.money.route.route import HOPS_A_TICK, RouteRefused, check_route
from marketplace.domain.money.route.router_book import Carried, room_for
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.supply.offer import Offer
from marketplace.market.base.routing import RouteAsked
from marketplace.router import exposure
from marketplace.router.limits import Limits
from marketplace.router.sights import Sight, need
from marketplace.router.state import HopIn, HopOut, Seen, State
from marketplace.router.supply import rests_until_ms


class HopRests(Refusal):
    """The router's last hop to this provider ended: another one is not opened at once."""

    code = "ROUTER_HOP_RESTS"
    remedy = "rent over a direct channel; a provider earns each hop anew, and one a day"


def carried(
    state: State, asked: RouteAsked, limits: Limits, sights: Mapping[bytes, Sight], now_ms: int
) -> Carried:
    """The lease as it would be carried, if both hops can be relied on for its reserve.

    :class:`HeadroomShort`, :class:`HopRests`, :class:`LeaseUnknown`, :class:`RouteRefused`.
    """
    into = own(state, asked.account, asked.hop_in)
    if into.seen is not Seen.OPEN or into.ending or asked.hop_in not in sights:
        raise HeadroomShort("the hop in cannot be relied on now", free=0)
    out = hop_to(state, asked.offer, asked.reserve, asked.tick_ms, limits)
    made = Carried(
        asked.lease, asked.lease_vk, asked.adapter_vk, asked.hop_in, out.session_vk,
        limits.route_bps, asked.reserve,
    )  # fmt: skip
    book = state.held(now_ms)
    room_for(book, made)
    needs = {
        hop: need(book, hop, sights[hop])
        for hop, one in state.hops_in.items()
        if hop in sights and one.seen is not Seen.ENDED
    }
    exposure.check(needs, asked.hop_in, with_fee(made.reserve, made.route_bps), limits)
    return made


def hop_to(state: State, offer: Offer, reserve: int, tick_ms: int, limits: Limits) -> HopOut:
    """The hop over which a lease of *reserve* lovelace at this *offer* goes out, whatever room is
    on it. :class:`HeadroomShort`, :class:`HopRests`, :class:`RouteRefused`.
    """
    if not 0 < reserve <= limits.lease_cap:
        raise HeadroomShort(f"{limits.lease_cap} is the most for one lease", free=limits.lease_cap)
    if tick_ms < HOPS_A_TICK * limits.hop_ms:
        raise RouteRefused(f"a tick of {tick_ms} ms is too short", way="pace")
    out = state.to(offer.provider)
    until = rests_until_ms(state, offer.provider, limits) if out is None else 0
    if until:
        raise HopRests("the last hop to this provider ended", until_ms=until)
    if out is None or out.unsure or not _agrees(out, offer):
        raise HeadroomShort("there is no hop to this provider", free=0)
    return out


def own(state: State, account: str, hop: bytes) -> HopIn:
    """The hop in, if *account* announced it; else :class:`LeaseUnknown`."""
    found = state.hops_in.get(hop)
    if found is None or found.account != account:
        raise LeaseUnknown("this account announced no such hop")
    return found


def _agrees(out: HopOut, offer: Offer) -> bool:
    """Whether the hop is still what the provider's offer asks of a channel."""
    wanted = (offer.adapter_vkh, offer.payout, offer.close_period_ms, offer.fee_bps)
    return wanted == (out.adapter_vkh, out.payout, out.close_period_ms, out.fee_bps)


def admit(
    state: State, lease: str, terms: bytes, keys: Mapping[bytes, Signer], now_ms: int
) -> Outcome[State]:
    """Both signed *terms*: the lease is in the books. Unchanged if it is there already."""
    route = state.routes.get(lease)
    if route is None:
        raise LeaseUnknown("no route was made for this lease, or it lapsed")
    routed = RoutedTerms.decode(terms)
    check_route(route.signed, routed)
    if route.terms:
        if route.terms != routed.hash:
            raise RouteRefused("other terms were admitted for this lease", way="hash")
        return Outcome(state)
    made = route.carried
    if routed.terms.adapter_vk != made.adapter_vk or routed.terms.ceiling > made.reserve:
        raise RouteRefused("the terms are another provider's, or cost more than was reserved")
    new = replace(route, terms=routed.hash)
    book = replace(state, routes={k: v for k, v in state.routes.items() if k != lease}).held(now_ms)
    room_for(book, made)
    done = router.admit(state.book, routed.hash, made, keys)
    out = replace(state.hops_out[made.hop_out], used_ms=now_ms)
    return Outcome(replace(state, book=done.state).with_route(new).with_out(out), done.effects)


def drop(state: State, lease: str, now_ms: int) -> State:
    """It never began: nothing is kept for it any more."""
    route = state.routes.get(lease)
    if route is None:
        return state
    if route.terms:
        return over(state, lease, now_ms)
    return replace(state, routes={k: v for k, v in state.routes.items() if k != lease})


def over(state: State, lease: str, now_ms: int) -> State:
    """It owes no more than it does; its hop out is idle from now on, if no other is on it."""
    route = state.routes.get(lease)
    if route is None or not route.terms or route.over:
        return state
    book = router.over(state.book, route.terms)
    out = replace(state.hops_out[route.carried.hop_out], used_ms=now_ms)
    return replace(state, book=book).with_route(replace(route, over=True)).with_out(out)


def lapsed(state: State, now_ms: int) -> State:
    """Without the routes that nobody signed in time."""
    kept = {k: one for k, one in state.routes.items() if one.terms or one.expires_ms > now_ms}
    return state if len(kept) == len(state.routes) else replace(state, routes=kept)
