"""Hops out: to whom one is opened, when it is topped up, when it ends. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.supply.offer import Offer
from marketplace.router.limits import Limits
from marketplace.router.state import HopOut, Rest, Seen, State

KEPT: int = 2_000_000
"""Lovelace put into a hop beyond what it is to pay: for its Close and the refund; comes home."""

OPENS_MOST: Final = 25
"""In one transaction: it stays well below the most that a transaction may hold."""

Change = Callable[[State], State]


@dataclass(frozen=True)
class Candidate:
    """A provider that is connected and serves routed leases; *claims*: lovelace that it has of
    leases at this market, for good.
    """

    offer: Offer
    claims: int


def to_open(
    state: State, candidates: Sequence[Candidate], limits: Limits, now_ms: int
) -> list[Candidate]:
    """Those that have no hop, and earned one since their last; those that earned most first."""
    standing = [hop.provider for hop in state.hops_out.values() if hop.seen is not Seen.ENDED]
    fit = [
        one
        for one in candidates
        if one.offer.provider not in standing
        and not one.offer.asset
        and _earned(state.rests.get(one.offer.provider, Rest()), one, limits, now_ms)
    ]
    fit.sort(key=lambda one: (-one.claims, one.offer.provider))
    return fit[: max(0, limits.hops_out - len(standing))]


def _earned(rest: Rest, one: Candidate, limits: Limits, now_ms: int) -> bool:
    """An open costs the router a fee, and whoever is paid can end a hop as often as it likes: so
    what was shown for the last one is not shown again, and a day lies between.
    """
    since = one.claims - rest.had + rest.over
    rested = not rest.ended_ms or now_ms - rest.ended_ms >= limits.reopen_ms
    return rested and since >= limits.open_after


def rests_until_ms(state: State, provider: str, limits: Limits) -> int:
    """When *provider*, whose last hop ended, may have another at the earliest; 0: it had none, or
    has one.
    """
    rest = state.rests.get(provider, Rest())
    stands = any(
        hop.provider == provider and hop.seen is not Seen.ENDED for hop in state.hops_out.values()
    )
    return 0 if stands or not rest.ended_ms else rest.ended_ms + limits.reopen_ms


def together(state: State, limits: Limits, now_ms: int) -> list[HopOut]:
    """Hops that are to be opened now, in one transaction: all that were planned, once the first of
    them waited for others.
    """
    new = [hop for hop in state.hops_out.values() if not hop.tx]
    if all(now_ms < hop.used_ms + limits.open_wait_ms for hop in new):
        return []
    return new[:OPENS_MOST]


def planned(state: State, hop: HopOut, claims: int) -> State:
    """With a hop that is to be opened, for the *claims* that its provider has now."""
    return state.with_hop_out(hop).with_rest(hop.provider, Rest(had=claims))


def new_hop(one: Candidate, session_vk: bytes, owner: bytes, magic: int, now_ms: int) -> HopOut:
    """A hop to the provider of an offer, with the constants that it asks for."""
    offer = one.offer
    return HopOut(
        session_vk, magic, offer.provider, offer.adapter_vkh, offer.payout, offer.payout_address,
        offer.close_period_ms, offer.fee_bps, owner, used_ms=now_ms,
    )  # fmt: skip


def short(state: State, hop: HopOut, limits: Limits) -> int:
    """Lovelace to top a hop up by: to what it is to have, once less than half of that is free."""
    if hop.seen is not Seen.OPEN or hop.asked_ms:
        return 0
    vk, book = hop.session_vk, state.book
    free = book.room[vk] - book.reserved(vk)
    return limits.hop_out - free if 2 * free < limits.hop_out else 0


def idle(state: State, hop: HopOut, limits: Limits, now_ms: int) -> bool:
    """Whether it carried nothing for long enough, and nothing lives on it."""
    waited = now_ms - hop.used_ms >= limits.idle_ms
    stands = hop.seen is Seen.OPEN and not hop.asked_ms
    return waited and stands and not state.busy(hop.session_vk, now_ms)


def ended(state: State, hop: HopOut, now_ms: int) -> State:
    """Its provider is asked to end it, from now on."""
    return state.with_out(replace(hop, asked_ms=now_ms))


def overdue(hop: HopOut, limits: Limits, now_ms: int) -> bool:
    """Whether its provider was asked long ago, and did not end it: the router does by itself."""
    stands = hop.seen in (Seen.OPEN, Seen.CLOSING)
    return stands and bool(hop.asked_ms) and now_ms - hop.asked_ms >= limits.close_after_ms
