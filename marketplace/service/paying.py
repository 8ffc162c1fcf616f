"""Which channels money moves over, as far as this market itself can know.

Adapter and payer may be one person, with a channel that never was: their word counts for nothing.
A channel counts when a voucher answers one of its receipts, and is within what the market's own
chain shows the channel to hold under exactly the terms that both signed. It counts once, for its
account's standing and its provider's; a connection that ticks on such a channel is no stranger. A market that has no
chain at all has only the word.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from marketplace.domain.errors import Conflict, TallyError
from marketplace.domain.terms import Terms
from marketplace.service import standing, starts
from marketplace.service.ports import Change
from marketplace.service.records import Channel, ReceiptRecord, VoucherRecord

if TYPE_CHECKING:
    from marketplace.service.market import Market

log = structlog.get_logger("market")
KEPT: Final = 10_000
AT_ONCE: Final = 100  # looks at the chain in one round
AGAIN_MS: Final = 1_000  # after a look that found too little; doubles with each
AGAIN_MOST_MS: Final = 300_000
_TRIES: Final = 8


class Paying:
    """One process's view: the channels that count, and those still to be looked at."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, None] = OrderedDict()
        self._asked: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # looks, the next at (ms)

    def counts(self, session_vk: bytes) -> bool:
        """Whether money is known to move over it."""
        return session_vk in self._counts

    def note(self, session_vk: bytes) -> None:
        """A receipt or voucher of it was taken: it is looked at soon, if it is not known."""
        if session_vk not in self._counts and session_vk not in self._asked:
            self._asked[session_vk] = (0, 0)
            while len(self._asked) > KEPT:
                self._asked.popitem(last=False)

    def due(self, now: int) -> list[bytes]:
        """What is to be looked at now: what was looked at least often comes first."""
        found = [(looks, vk) for vk, (looks, at) in self._asked.items() if at <= now]
        return [vk for _, vk in sorted(found, key=lambda one: one[0])[:AT_ONCE]]

    def later(self, session_vk: bytes, now: int) -> None:
        """The chain does not show enough yet."""
        looks, _ = self._asked.get(session_vk, (0, 0))
        wait = min(AGAIN_MS << min(looks, 20), AGAIN_MOST_MS)
        self._asked[session_vk] = (looks + 1, now + wait)

    def over(self, session_vk: bytes, *, counts: bool) -> None:
        """It is not looked at again before it is noted again; for ever, if it *counts*."""
        self._asked.pop(session_vk, None)
        if counts:
            self._counts[session_vk] = None
            while len(self._counts) > KEPT:
                self._counts.popitem(last=False)


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
        if channel is not None and channel.paid:
            market.paying.over(session_vk, counts=True)
            return
        voucher = await market.store.get(VoucherRecord, session_vk)
        if channel is None or voucher is None or not await _answers(market, voucher):
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


async def _answers(market: Market, voucher: VoucherRecord) -> bool:
    """Whether it is over what a receipt stated."""
    stated = await market.store.find(
        ReceiptRecord, session_vk=voucher.session_vk, channel_owed__gt=0,
        channel_owed__le=voucher.cumulative, limit=1,
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
