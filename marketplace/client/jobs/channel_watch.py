"""Held channels compared with the chain: open as their terms say, ended, or left by their provider.

Also what a restarted payer asks before it pays on: what it signed and did not write down.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.client.jobs.core import looking
from marketplace.client.net.answers import ChannelAnswer, VoucherAnswer
from marketplace.client.net.http import Http
from marketplace.client.net.reading import read
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
Shown = ChannelView | ChannelEnded


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
        try:
            for look in looking.due(picture(held)):
                await self._look(held, look)
        except ChannelUnknown:
            pass  # not in a block yet, or rolled back and sent again by its log
        except ChainFault as fault:
            log.info("chain_unread", why=fault.message)
        return held.facts.state is ChannelStage.ENDED

    async def _look(self, held: ChannelPayer, look: looking.Look) -> None:
        at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
        match look:
            case looking.CheckTerms():
                said = await self._checked(held, at)
                for what in looking.seen(picture(held), said):
                    await self._follow(held, what)
            case looking.LookAtIt():
                view = await self.till.look(held.session_vk, at, held.facts.asset)
                for what in looking.seen(picture(held), _found(view)):
                    await self._follow(held, what, view)

    async def _checked(self, held: ChannelPayer, at: OutRef) -> looking.Fit | looking.Unfit:
        agreed = held.agreed
        assert agreed is not None  # asked for of channels that have terms, or a router's offer
        try:
            capacity = await self.till.checked(agreed, at)
            await second_output.alone(self.till, held)
        except ChannelUnfit as refusal:
            return looking.Unfit(refusal.message)
        return looking.Fit(capacity)

    async def _follow(
        self, held: ChannelPayer, what: looking.Consequence, view: Shown | None = None
    ) -> None:
        facts = held.facts
        match what:
            case looking.NoteCapacity(capacity):
                await held.opened(facts.open_tx, facts.index, capacity)
            case looking.AskForEnd(why):
                log.error("channel_refused", channel=facts.session_vk.hex(), why=why)
                await held.end()
            case looking.LeaveAlone():
                assert isinstance(view, ChannelView)
                await leave(self.till, held, view, self.close_after_ms)
            case looking.NoteEnded(tx):
                await held.ended(tx)

    async def resume(self, held: ChannelPayer) -> None:
        """What a restarted payer does first with each channel: learn what it may have forgotten."""
        for learn in looking.begun_again(picture(held)):
            match learn:
                case looking.TakeUpOpen():
                    await self._take_up(held)
                case looking.AskMarket():
                    await self._ask_market(held)
                case looking.LearnClaims():
                    await self._learn_claims(held)

    async def _ask_market(self, held: ChannelPayer) -> None:
        try:
            answer = await self.http.get(f"/v1/channels/{held.session_vk.hex()}")
            row = read(ChannelAnswer, answer, "channel")
            await held.catch_up(_voucher(held.session_vk, row.get("voucher")))
        except Refusal as refusal:
            log.info("channel_unread", code=refusal.code, why=refusal.message)

    async def _learn_claims(self, held: ChannelPayer) -> None:
        if not held.facts.open_tx:
            return
        at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
        try:
            view = await self.till.look(held.session_vk, at, held.facts.asset)
            todo, found = (
                list(looking.claimed(picture(held), _found(view), read=False)),
                _found(view),
            )
            for what in todo:
                if isinstance(what, looking.ReadClaim):
                    await held.catch_up(await self.till.shown(view))
                    todo += looking.claimed(picture(held), found, read=True)
                else:
                    await self._end_or_halt(held, what)
        except (ChannelUnknown, ChainFault) as error:
            log.info("channel_unseen", why=error.message)

    async def _end_or_halt(
        self, held: ChannelPayer, what: looking.NoteEnded | looking.Halt
    ) -> None:
        if isinstance(what, looking.NoteEnded):
            await held.ended(what.tx)
            return
        signed = held.book.signed
        await held.halt(
            ClaimUnsigned(
                f"channel {held.session_vk.hex()[:16]}: {what.claimed} are claimed on the"
                f" chain, and no signature over more than {signed} is shown",
                claimed=what.claimed,
                signed=signed,
            )
        )

    async def _take_up(self, held: ChannelPayer) -> None:
        """The open transaction that a crash kept out of the book, if there is one."""
        agreed = held.agreed
        assert agreed is not None
        try:
            found = await self.till.find_open(agreed)
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


def picture(held: ChannelPayer) -> looking.Picture:
    """The channel as its book has it now."""
    facts = held.facts
    return looking.Picture(
        state=facts.state,
        open_tx=facts.open_tx,
        has_terms=held.agreed is not None,
        checked=held.book.capacity is not None,
        asked=held.end_sent,
        settled=bool(facts.settled_tx),
        signed=held.book.signed,
    )


def _found(view: Shown) -> looking.Found:
    ended = view.finished_by.hex() if isinstance(view, ChannelEnded) else None
    return looking.Found(view.claimed, ended)


def _voucher(session_vk: bytes, row: VoucherAnswer | None) -> Voucher | None:
    """The market's latest voucher, if it has one; its signature is checked by who uses it."""
    if row is None:
        return None
    try:
        return Voucher(session_vk, row["cumulative"], bytes.fromhex(row["signature"]))
    except ValueError as error:
        raise Malformed(f"the channel's voucher cannot be read: {error}") from error
