"""Held channels compared with the chain: open as their terms say, ended, or left by their provider.

Also what a restarted payer asks before it pays on: what it signed and did not write down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import structlog

from marketplace.chain.channels.finder import ChannelEnded
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.client.net.http import Http
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.decide import ClaimUnsigned
from marketplace.client.wallet import second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import ChannelTwice, KeyUsed, OpenUnsure
from marketplace.client.wallet.unilateral_close import leave
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import Voucher

log = structlog.get_logger("tally.client")
Json = dict[str, Any]


@dataclass(frozen=True)
class ChannelWatch:
    """One market and one chain, asked about channels. *close_after_ms*: how long a provider may
    leave an End unanswered before its channel is closed.
    """

    http: Http
    till: Till
    close_after_ms: int

    async def confirm(self, held: ChannelPayer) -> bool:
        """Compare the channel with the chain, once it is there; True once it has ended there.

        A provider that answers no End is left: see
        :mod:`marketplace.client.wallet.unilateral_close`.
        """
        facts = held.facts
        if facts.state is ChannelStage.ENDED:
            return True
        asked = held.end_sent or facts.settled_tx  # a kept one is ended by its provider, in time
        if not facts.open_tx or (held.book.capacity is not None and not asked):
            return False
        at = OutRef(bytes.fromhex(facts.open_tx), facts.index)
        try:
            if held.book.capacity is None:
                await self._check(held, at)
            found = await self.till.look(held.session_vk, at, facts.asset)
            if not isinstance(found, ChannelEnded):
                await leave(self.till, held, found, self.close_after_ms)
                return False
        except ChannelUnknown:
            return False  # not in a block yet, or rolled back and sent again by its log
        except ChainFault as fault:
            log.info("chain_unread", why=fault.message)
            return False
        await held.ended(found.finished_by.hex())
        return True

    async def _check(self, held: ChannelPayer, at: OutRef) -> None:
        """The channel is that of its terms, and what it can pay is known; else it is ended."""
        facts, terms = held.facts, next(iter(held.terms.values())).terms
        try:
            capacity = await self.till.checked(terms, at)
            await second_output.alone(self.till, held)
            await held.opened(facts.open_tx, facts.index, capacity)
        except ChannelUnfit as refusal:
            if not held.end_sent:
                log.error("channel_refused", channel=facts.session_vk.hex(), why=refusal.message)
                await held.end()

    async def resume(self, held: ChannelPayer) -> None:
        """What a restarted payer does first with each channel: learn what it may have forgotten."""
        if not held.facts.open_tx and held.terms:
            await self._take_up(held)
        try:
            row = cast(Json, await self.http.get(f"/v1/channels/{held.session_vk.hex()}"))
            await held.catch_up(_voucher(held.session_vk, row.get("voucher")))
        except Refusal as refusal:
            log.info("channel_unread", code=refusal.code, why=refusal.message)
        if held.facts.open_tx:
            try:
                await self._claims(held)
            except (ChannelUnknown, ChainFault) as error:
                log.info("channel_unseen", why=error.message)

    async def _claims(self, held: ChannelPayer) -> None:
        """What the chain shows that this key signed. A door's word on what was claimed is none of
        its signatures: claimed beyond all of them, the chain is false or the key is somebody else's
        too.
        """
        facts = held.facts
        at = OutRef(bytes.fromhex(facts.open_tx), facts.index)
        found = await self.till.look(held.session_vk, at, facts.asset)
        if found.claimed > held.book.signed:
            await held.catch_up(await self.till.shown(found))
        if isinstance(found, ChannelEnded) and facts.state is not ChannelStage.ENDED:
            await held.ended(found.finished_by.hex())
        if found.claimed > held.book.signed:
            await held.halt(
                ClaimUnsigned(
                    f"channel {held.session_vk.hex()[:16]}: {found.claimed} are claimed on the"
                    f" chain, and no signature over more than {held.book.signed} is shown",
                    claimed=found.claimed,
                    signed=held.book.signed,
                )
            )

    async def _take_up(self, held: ChannelPayer) -> None:
        """The open transaction that a crash kept out of the book, if there is one."""
        terms = next(iter(held.terms.values())).terms
        try:
            found = await self.till.find_open(terms)
        except ChannelTwice as refusal:
            await held.halt(refusal)
        except (
            KeyUsed,
            OpenUnsure,
        ) as error:  # asked again when the quote is accepted, if it still is
            log.warning("open_unsure", channel=held.session_vk.hex(), why=error.message)
        else:
            if found is not None:
                await held.opened(found.tx_id.hex(), found.index, None)


def _voucher(session_vk: bytes, value: object) -> Voucher | None:
    """The market's latest voucher, if it has one; its signature is checked by who uses it."""
    if not isinstance(value, dict):
        return None
    row = cast(Json, value)
    try:
        return Voucher(session_vk, int(row["cumulative"]), bytes.fromhex(str(row["signature"])))
    except (KeyError, ValueError) as error:
        raise Malformed(f"the channel's voucher cannot be read: {error}") from error
