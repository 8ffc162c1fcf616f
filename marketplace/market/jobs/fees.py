"""What a quote says of the chain's fees."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from marketplace.domain.errors import Fault
from marketplace.domain.money.chain_fees import job_fees
from marketplace.domain.money.terms import ADA
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
