"""A second output of a session key, whatever made it: nothing more is signed, and it is closed.

None is made by this purse as it is now (:mod:`~marketplace.client.wallet.one_open`); a lost log, a
copied home or an older program can have left one. The contract lets a voucher be claimed from both,
so the payer stops, asks for the channel's end, and takes the second back by itself: Close, the
close period, Finish.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio.to_thread
import structlog

from marketplace.chain.channels.finder import ChannelEnded
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.client.payer import journal
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet import never_opened, one_open
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import ChannelTwice
from marketplace.domain.errors import NotFound, Refusal
from marketplace.domain.money.channel_stage import ChannelStage

log = structlog.get_logger("tally.client")


async def look(till: Till, payers: Payers, folder: Path) -> None:
    """Every channel of this purse once: one that never was is over, those with a second output are
    stopped, and it is closed.

    A channel that another process holds is left to that one; one that has ended is nobody's.
    :class:`ChainFault`.
    """
    for one in payers.all:
        if one.facts.magic == till.chain.magic:
            await never_opened.end(till, payers, one)
    held = {one.session_vk: one for one in payers.all}
    for asset in {"", *(one.facts.asset for one in payers.all)}:
        for session_vk, outputs in (await till.outputs(asset)).items():
            one = held.get(session_vk)
            facts = one.facts if one is not None else await _ended(folder, session_vk)
            if facts is None or not facts.open_tx or facts.magic != till.chain.magic:
                continue
            if one is not None and facts.state is not ChannelStage.ENDED and len(outputs) < 2:
                continue  # the usual case asks nothing more of the chain
            await _take_back(till, one, facts, outputs)


async def _ended(folder: Path, session_vk: bytes) -> ChannelFacts | None:
    try:
        loaded: Any = await anyio.to_thread.run_sync(journal.peek, folder, session_vk)
    except NotFound:
        return None
    facts: ChannelFacts | None = loaded.facts
    return facts if facts is not None and facts.state is ChannelStage.ENDED else None


async def alone(till: Till, held: ChannelPayer) -> None:
    """Stops *held* if it has a second output; before the first voucher is signed, and now and
    then.
    """
    outputs = (await till.outputs(held.facts.asset)).get(held.session_vk, [])
    if len(outputs) > 1:
        await _take_back(till, held, held.facts, outputs)


async def _take_back(
    till: Till, held: ChannelPayer | None, facts: ChannelFacts, outputs: list[Utxo]
) -> None:
    origin = OutRef(bytes.fromhex(facts.open_tx), facts.index)
    strays = await till.strays(facts.session_vk, outputs, origin, facts.asset)
    if strays and held is not None:
        refs = one_open.two([origin, *strays])
        await held.halt(ChannelTwice(f"channel {facts.session_vk.hex()[:16]}: {refs}"))
    for stray in strays:
        await _close(till, facts, stray)


async def _close(till: Till, facts: ChannelFacts, stray: OutRef) -> None:
    """The next step of a second output's way home, if it is time for one."""
    channel = facts.session_vk.hex()
    try:
        view = await till.look(facts.session_vk, stray, facts.asset)
        taken = None if isinstance(view, ChannelEnded) else await till.leave(view)
        if taken is not None:
            tx = taken[1].hex()
            log.warning("second_output_taken_back", channel=channel, output=str(stray), tx=tx)
    except (ChannelUnknown, ChainFault) as error:
        log.info("second_output_unread", channel=channel, why=error.message)
    except Refusal as refusal:
        log.warning("second_output_kept", channel=channel, code=refusal.code, why=refusal.message)
