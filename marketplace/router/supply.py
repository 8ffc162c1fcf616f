"""Hops out: to whom one is opened, when it is topped up, when it ends. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from marketplace.domain.supply.offer import Offer
from marketplace.router.limits import Limits
from marketplace.router.state import HopOut, Seen, State

KEPT: int = 2_000_000
"""Lovelace put into a hop beyond what it is to pay: for its Close and the refund; comes home."""


Change = Callable[[State], State]


@dataclass(frozen=True)
class Candidate:
    """A provider that is connected and serves routed leases; *claims*: lovelace that it has of
    leases at this market, for good.
    """

    offer: Offer
    claims: int


def to_open(state: State, candidates: Sequence[Candidate], limits: Limits) -> list[Candidate]:
    """Those that have no hop yet and earned one; those that earned most first."""
    served = {hop.provider for hop in state.hops_out.values() if _carries(hop)}
    standing = sum(hop.seen is not Seen.ENDED for hop in state.hops_out.values())
    fit = [
        one
        for one in candidates
        if one.offer.provider not in served
        and not one.offer.asset
        and one.claims >= limits.open_after
    ]
    fit.sort(key=lambda one: (-one.claims, one.offer.provider))
    return fit[: max(0, limits.hops_out - standing)]


def _carries(hop: HopOut) -> bool:
    return hop.seen is not Seen.ENDED and not hop.asked_ms


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
