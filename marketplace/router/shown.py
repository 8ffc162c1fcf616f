"""What a router shows of itself: a hop to its consumer, a lease's bill to each side."""

from __future__ import annotations

from typing import Literal

from marketplace.domain.money.route.evidence import HopEvidence, Opening, RouteEvidence
from marketplace.domain.money.route.fee import reach
from marketplace.domain.money.transaction import FINAL_DEPTH
from marketplace.market.base.routing import HopUse, HopView, Sums
from marketplace.router.sights import Sight
from marketplace.router.state import HopIn, Seen, State

Side = Literal["consumer", "provider"]
_STATES = {Seen.AWAITED: "ANNOUNCED"}


def view(state: State, hop: HopIn, sight: Sight | None) -> HopView:
    """A hop in, as its consumer sees it; *sight*: the last look at it, if there was one."""
    earning = state.book.hops_in[hop.session_vk]
    depth = sight.depth if sight is not None else 0
    name = _STATES.get(hop.seen, hop.seen.value)
    if hop.session_vk in state.book.forked:
        name = "FORKED"
    elif hop.seen is Seen.OPEN:
        name = "FINAL" if depth >= FINAL_DEPTH else "SEEN"
    spoken_for = state.book.spoken_for(hop.session_vk) - earning.total
    return HopView(
        hop.session_vk, name, earning.capacity, spoken_for, earning.total, hop.claimed, depth
    )


def use(state: State, hop_in: bytes) -> HopUse:
    """Leases over a hop in: reserved and not paid yet; paid."""
    book = state.book
    earning = book.hops_in.get(hop_in)
    if earning is None:
        return HopUse(0, 0)
    mine = [(key, one) for key, one in book.leases.items() if one.hop_in == hop_in]
    paid = sum(earning.amount(key) > 0 for key, _ in mine)
    made = sum(one.carried.hop_in == hop_in and not one.terms for one in state.routes.values())
    waits = sum(not earning.amount(key) and one.reserve > 0 for key, one in mine)
    return HopUse(waits + made, paid)


def sums(state: State, lease: str) -> Sums | None:
    """A lease's money in the books; None for one that was never admitted."""
    route = state.routes.get(lease)
    if route is None or not route.terms:
        return None
    known = state.book.leases[route.terms]
    came = state.book.hops_in[known.hop_in].amount(route.terms)
    confirmed = known.paid.amount if known.paid is not None else 0
    gone = state.hops_in[known.hop_in].seen is Seen.ENDED
    return Sums(known.owed, reach(came, known.route_bps), confirmed, gone)


def evidence(
    state: State, lease: str, side: Side
) -> tuple[RouteEvidence, HopEvidence | None] | None:
    """The route as *side* may see it, and that side's hop with its last statement."""
    route = state.routes.get(lease)
    if route is None or not route.terms:
        return None
    book, made = state.book, route.carried
    said = book.leases[route.terms].paid
    paid = (said.amount, said.signature) if said is not None else None
    if side == "consumer":
        hop = state.hops_in[made.hop_in]
        last = book.hops_in[made.hop_in].last
        shown = RouteEvidence(route.signed, Opening(made.hop_in, route.salt_in), None, paid)
        where = (hop.session_vk, hop.tx, hop.index, hop.offer)
    else:
        out = state.hops_out[made.hop_out]
        last = book.hops_out[made.hop_out].last
        shown = RouteEvidence(route.signed, None, Opening(made.hop_out, route.salt_out), paid)
        where = (out.session_vk, out.tx, out.index, None)
    if last is None:
        return shown, None
    return shown, HopEvidence(*where, last.signed, last.leaves, last.voucher)
