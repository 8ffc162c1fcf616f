"""Which channels money moves over, as far as this market itself can know.

Adapter and payer may be one person, with a channel that never was: their word counts for nothing. A
channel counts when a voucher answers one of its receipts, and is within what the market's own chain
shows the channel to hold under exactly the terms that both signed. It counts once, for its
account's standing and its provider's; a connection that ticks on such a channel is no stranger. A
market that has no chain at all has only the word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import structlog

from marketplace.domain.errors import Conflict, TallyError
from marketplace.domain.money.terms import Terms
from marketplace.market.accounts import standing
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, LeaseKey, ReceiptRecord, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.placement import starts

log = structlog.get_logger("market")
_TRIES: Final = 8


async def turn(market: Market) -> None:
    """Look at what is due; what cannot be read now is looked at again."""
    for session_vk in market.paying.due(market.now):
        try:
            await look(market, session_vk)
        except TallyError as error:
            log.info("paying", channel=session_vk.hex(), error=error.line())
            market.paying.later(session_vk, market.now)


async def look(market: Market, session_vk: bytes) -> None:
    """Count the channel if money moves over it. Faults of chain and store are the caller's."""
    for _ in range(_TRIES):
        channel = await market.store.get(Channel, session_vk)
        if channel is None and await _routed(market, session_vk):
            return
        if channel is not None and channel.paid:
            market.paying.over(session_vk, counts=True)
            return
        voucher = await market.store.get(VoucherRecord, session_vk)
        if channel is None or voucher is None:
            market.paying.over(session_vk, counts=False)
            return
        if not await _answers(market, session_vk, voucher.cumulative):
            market.paying.over(session_vk, counts=False)
            return
        if not await _holds(market, channel, voucher.cumulative):
            market.paying.later(session_vk, market.now)
            return
        try:
            await market.store.apply(Change(sets=[replace(channel, paid=True)]))
        except Conflict:
            continue
        market.paying.over(session_vk, counts=True)
        await standing.paid(market, channel.account)
        await starts.served(market, channel.provider)
        return
    raise Conflict("the channel keeps changing")


async def _routed(market: Market, session_vk: bytes) -> bool:
    """Whether it is the key of a routed lease, which is looked at by the router's books: what came
    in for it came over a hop that the router sees in the chain. One hop counts once, however many
    leases it pays.
    """
    key = await market.store.get(LeaseKey, session_vk)
    if key is None:
        return False
    sums = market.router.sums(key.lease) if market.router is not None else None
    if not key.paid and (sums is None or not await _answers(market, session_vk, sums.received)):
        market.paying.later(session_vk, market.now)
        return True
    if not key.paid:
        first = not await market.store.count(LeaseKey, hop=key.hop, paid=True)
        await market.store.apply(Change(sets=[replace(key, paid=True)]))
        if first:
            await standing.paid(market, key.account)
        await starts.served(market, key.provider)
    for counted in (session_vk, key.hop):
        market.paying.over(counted, counts=True)
    return True


async def _answers(market: Market, session_vk: bytes, cumulative: int) -> bool:
    """Whether so much is over what a receipt stated."""
    stated = await market.store.find(
        ReceiptRecord, session_vk=session_vk, channel_owed__gt=0,
        channel_owed__le=cumulative, limit=1,
    )  # fmt: skip
    return bool(stated)


async def _holds(market: Market, channel: Channel, cumulative: int) -> bool:
    """Whether the chain shows this very channel, alive, with so much in it or claimed from it."""
    if not market.has_chain:
        return True
    if market.ledger is None:
        return False  # away since the start: looked at once it is there
    shown = await market.ledger.channel(Terms.decode(channel.terms), channel.open_tx)
    return shown is not None and shown.agreed and cumulative <= shown.value + shown.claimed
