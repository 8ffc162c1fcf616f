"""A channel whose open transaction can be in no block: its book is over, nothing is locked in it.

It was refused for good, its time passed, or it was never built. The book says so once its leases
are over too: nobody can accept a quote with it any more.
"""

from __future__ import annotations

import structlog

from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import ChannelTwice, KeyUsed, OpenUnsure
from marketplace.domain.money.channel_stage import ChannelStage

log = structlog.get_logger("tally.client")


async def end(till: Till, payers: Payers, held: ChannelPayer) -> bool:
    """Ends the book of *held* if its channel never was and will never be; whether it did.

    A book is written before its terms are signed and its transaction is built: while that goes on,
    it is pinned among *payers*, and left.

    While the purse's log or the chain leaves it open, nothing is done: a rollback may give a lost
    open its place back. :class:`~marketplace.chain.errors.ChainFault`.
    """
    over = held.facts.state is ChannelStage.OPENING and set(held.terms) <= held.final
    if not over or payers.pins[held.session_vk] or not await _never(till, held):
        return False
    if payers.pins[held.session_vk] or not await held.ended("", if_unused=True):
        return False  # agreed to while the chain was asked
    log.info("channel_never_opened", channel=held.session_vk.hex(), tx=held.facts.open_tx)
    return True


async def _never(till: Till, held: ChannelPayer) -> bool:
    facts = held.facts
    if facts.open_tx and not await _in_no_block(till, bytes.fromhex(facts.open_tx)):
        return False
    agreed = held.agreed
    if agreed is None:
        return not facts.open_tx  # no terms, so nothing was paid in
    try:
        return await till.find_open(agreed) is None
    except (ChannelTwice, KeyUsed, OpenUnsure):
        return False


async def _in_no_block(till: Till, tx_id: bytes) -> bool:
    """The log has the transaction, and no block: a log that was lost proves nothing."""
    known = any(record.tx_id == tx_id for record in await till.log.known())
    return known and await till.chain.transaction(tx_id) is None
