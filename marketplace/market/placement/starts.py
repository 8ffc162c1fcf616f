"""Which providers are trusted with a start: what was promised and not begun is remembered of each.

Keys cost nothing, so any number of offers can be listed at any price, accept what comes and start
none of it. A provider is *unproven* until a receipt of it was paid for. It has less time to start a
lease, it gets few at once while anybody else would do, and a start that lapses puts it behind all
others for a while that doubles. Other keys begin anew: so an account whose job an unproven provider
let lapse is, for a while, given proven ones first. Nobody is ever refused for it: who has nobody
else takes whom there is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.market.accounts import standing
from marketplace.market.base.records import Standing
from marketplace.market.context import Market
from marketplace.market.lifecycle.remember import LET_DOWN

_AT_ONCE: Final = 500


async def refresh(market: Market) -> None:
    """As the store has it, of every provider that is listed."""
    names = sorted({offer.provider for _, offer in market.directory.offers()})
    for at in range(0, len(names), _AT_ONCE):
        part = names[at : at + _AT_ONCE]
        market.starts.take(await market.store.find(Standing, name=part, limit=_AT_ONCE))


async def doubtful(market: Market, account: str) -> frozenset[str]:
    """Providers that a job of *account* is given only if no other would do."""
    come_last = market.starts.doubtful(market.settings, market.now)
    known = await market.store.get(Standing, LET_DOWN + account)
    if known is None or market.now >= known.last_ms + market.settings.let_down_ms:
        return come_last
    listed = {offer.provider for _, offer in market.directory.offers()}  # its last start lapsed
    return come_last | (listed - market.starts.proven)


def time_to_start_ms(market: Market, provider: str) -> int:
    """From the signature to the start."""
    settings = market.settings
    most = settings.start_ttl_ms
    return most if provider in market.starts.proven else min(most, settings.start_ttl_new_ms)


async def served(market: Market, provider: str) -> None:
    """What it delivered was paid for."""
    if provider in market.starts.proven:
        return
    known = await standing.of(market, provider)
    if not known.paid:
        known = await standing.update(market, provider, lambda at: replace(at, paid=at.paid + 1))
    market.starts.take([known])
