"""What a quote says of the chain's fees, and of the router's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from marketplace.domain.errors import Fault
from marketplace.domain.money.chain_fees import RouteFees, job_fees
from marketplace.domain.money.route.fee import fee
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.terms import ADA
from marketplace.domain.protocol.codec import ROUTE
from marketplace.domain.supply.offer import Offer
from marketplace.market.context import Market, log


async def fees_told(
    market: Market, minimum: int, asset: str, *, opens: bool
) -> dict[str, Any] | None:
    """As an answer has them: :class:`~marketplace.domain.money.chain_fees.JobFees`, lovelace. None
    where no chain says them; a fee in ADA is no amount of a token.
    """
    if market.ledger is None or asset != ADA:
        return None
    try:
        known = await market.ledger.fees()
    except Fault as fault:  # its chain is away: a quote says a price all the same
        log.info("fees_not_known", cause=fault.line())
        return None
    return None if known is None else asdict(job_fees(known, minimum, opens=opens))


def routed_told(market: Market, offer: Offer, ceiling: int) -> dict[str, Any] | None:
    """:class:`~marketplace.domain.money.chain_fees.RouteFees` of a job that costs *ceiling*
    lovelace at most; None where no router is, or for a price in a token.
    """
    if market.router is None or offer.asset != ADA:
        return None
    asks = RouterOffer.decode(market.router.offer.body)
    able = market.providers.able(offer.provider, ROUTE)
    carried = able and market.router.carries(offer, ceiling, offer.tick_ms)
    return asdict(RouteFees(carried, asks.route_bps, fee(ceiling, asks.route_bps), asks.hop_fee))
