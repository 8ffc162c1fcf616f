"""What a router holds, and what it would lose if it slept: figures for its owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.router.limits import Limits
from marketplace.router.sights import unclaimed
from marketplace.router.state import Seen, State
from marketplace.router.supply import rests_until_ms


@dataclass(frozen=True)
class Figures:
    """Lovelace, but for counts. *unclaimed*: due from hops in and not on chain, which a close that
    nobody answers would take; *young*: the most that rests on blocks which may be rolled back.
    *locked*: in hops out, of which *signed* are their providers' and *free* may still be reserved.
    *resting*: providers whose last hop ended, and that get no other yet.
    """

    hops_in: int
    hops_out: int
    leases: int
    unclaimed: int
    young: int
    locked: int
    signed: int
    free: int
    forked: int
    recovering: int
    resting: int


def figures(state: State, limits: Limits, now_ms: int) -> Figures:
    """Of the books as they are."""
    book, held = state.book, state.held(now_ms)
    into = [vk for vk, hop in state.hops_in.items() if hop.seen in (Seen.OPEN, Seen.CLOSING)]
    out = [vk for vk, hop in state.hops_out.items() if hop.seen in (Seen.OPEN, Seen.CLOSING)]
    claimed = {vk: state.hops_out[vk].claimed for vk in out}
    return Figures(
        hops_in=len(into),
        hops_out=len(out),
        leases=sum(bool(one.terms) and not one.over for one in state.routes.values()),
        unclaimed=sum(unclaimed(state, vk) for vk in into),
        young=limits.young + limits.ripe,
        locked=sum(book.room[vk] - claimed[vk] for vk in out),
        signed=sum(book.hops_out[vk].total - claimed[vk] for vk in out),
        free=sum(max(0, book.room[vk] - held.reserved(vk)) for vk in out),
        forked=len(book.forked),
        recovering=sum(hop.unsure for hop in state.hops_out.values()),
        resting=sum(rests_until_ms(state, name, limits) > now_ms for name in state.rests),
    )
