"""What a bill says of routed leases and of the hops that pay for them."""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain.money.evidence import LedgerFacts
from marketplace.domain.money.invoice.bill import HopTotal, RouteLine
from marketplace.domain.money.invoice.hops import HopBook
from marketplace.domain.money.invoice.routes import Passage
from marketplace.domain.money.route.fee import fee, reach


def route_line(one: Passage, owed: int, hops: Sequence[HopBook]) -> RouteLine:
    """The lease's line; *owed* by its last receipt, lovelace."""
    signed_in = _leaf(one, hops, into=True)
    signed_out = _leaf(one, hops, into=False)
    paid = one.shown.paid[0] if one.shown.paid is not None else None
    bps = one.route.route_bps
    reached = min(owed, max(paid or 0, signed_out or 0))
    given = min(owed, reach(signed_in or 0, bps))
    return RouteLine(
        lease=one.terms.lease,
        router=one.route.router_vk,
        route_bps=bps,
        owed=owed,
        fee=fee(owed, bps),
        signed_in=signed_in,
        signed_out=signed_out,
        paid=paid,
        reached=reached,
        withheld=max(given - reached, 0),
    )


def hop_total(book: HopBook, facts: LedgerFacts | None) -> HopTotal:
    """The hop's sums; what only the ledger knows is None where it was not asked."""
    return HopTotal(
        hop=book.evidence.session_vk,
        into=book.into,
        due=book.due,
        blind=book.blind,
        unshown=max(facts.claimed - (book.due - book.blind), 0) if facts else None,
        signed=book.signed,
        ahead=book.signed - book.due,
        claimed=facts.claimed if facts else None,
        refunded=facts.refunded if facts else None,
        held=facts.held if facts else None,
        funded=facts.funded if facts else None,
        ended=facts.ended if facts else None,
    )


def _leaf(one: Passage, hops: Sequence[HopBook], *, into: bool) -> int | None:
    """What was signed for the lease on that hop; None where the hop is not shown."""
    opening = one.opening(into=into)
    if opening is None:
        return None
    return next(book.leaf(one.hash) for book in hops if book.evidence.session_vk == opening.hop)
