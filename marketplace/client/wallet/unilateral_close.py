"""The consumer's own way out of a channel whose provider answers no End.

The signed End is asked for first: an adapter that lives finishes at once and no wallet signs. One
that is gone for *close_after* is not waited for any longer: Close, the close period (in which
anybody may still claim what was signed), and Finish, which pays what was signed and not claimed and
sends the rest home. Each look does one step at most, and none while a transaction of ours is on its
way; a crash anywhere repeats a look.
"""

from __future__ import annotations

import structlog

from marketplace.chain.channels.finder import ChannelView
from marketplace.client.net.clock import own_ms
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel import Close

log = structlog.get_logger("tally.client")


async def leave(till: Till, held: ChannelPayer, view: ChannelView, close_after_ms: int) -> bytes:
    """The next step out, if it is time for one: its transaction's id, else nothing.

    A refusal (the purse is empty, somebody was faster) is said and tried again at the next look;
    :class:`~marketplace.chain.errors.ChainFault` is the caller's.
    """
    asked = held.end_ms
    if asked is None or own_ms() - asked < close_after_ms:
        return b""
    channel = held.session_vk.hex()
    try:
        taken = await till.leave(view, held.voucher, held.facts.payout)
    except Refusal as refusal:
        log.warning("not_left", channel=channel, code=refusal.code, why=refusal.message)
        return b""
    if taken is None:
        return b""
    step, tx = taken
    if isinstance(step, Close):
        log.warning("channel_closed_alone", channel=channel, tx=tx.hex())
    else:
        log.info("channel_finished_alone", channel=channel, tx=tx.hex())
    return tx
