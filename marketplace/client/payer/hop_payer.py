"""A hop whose payments this process signs: what its leases owe, one statement for all of them.

The order for every receipt of a lease is: its own book (``routed_payer``), then this one's decision
(:mod:`marketplace.domain.money.route.payer`), the journal (fsync), and only then the payment. At
most one tick is signed beyond what the provider has said that it was paid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import structlog

from marketplace.client.payer import hop_rows
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.domain.errors import Refusal
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route import payer
from marketplace.domain.money.route.hop import Paying, Payment
from marketplace.domain.money.route.messages import Outcome, Owes
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.payer import Bought, PayerBook
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of

log = structlog.get_logger("tally.payer")


class HopLost(Refusal):
    """More was signed over a hop than its book here shows: what it was for is not known."""

    code = "HOP_LOST"
    remedy = "nothing more is signed over this hop and its end is asked for; a new one is opened"


@dataclass(frozen=True)
class HopAgreed:
    """What a hop's channel must be, as ``Agreed`` asks for it."""

    offer: RouterOffer
    session_vk: bytes
    consumer_vkh: bytes
    asset: str = ""

    @property
    def magic(self) -> int:
        """The network."""
        return self.offer.magic

    def consts(self) -> Consts:
        """What its datum must say."""
        return self.offer.consts(self.session_vk, self.consumer_vkh)


class HopPayer(ChannelPayer):
    """One hop to a router whose lock this process holds; it has no receipts of its own."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        loaded_hop: PayerBook | None = given[1].hop
        self.hop = loaded_hop or PayerBook(Paying(self.session_vk))
        body, signature, _ = (bytes.fromhex(part) for part in self.facts.router)
        self.offer = SignedRouterOffer(body, signature).verify()
        self._told: Payment | None = None  # what the router has heard last, if it lost nothing
        self._again = 0

    @property
    def agreed(self) -> Agreed:
        """What the router asks of it."""
        return HopAgreed(self.offer, self.session_vk, bytes.fromhex(self.facts.router[2]))

    @property
    def busy(self) -> bool:
        """Whether a lease is still paid over it."""
        return payer.kept(self.hop) > 0

    def free(self, capacity: int) -> int:
        """Of *capacity*, what no lease has and none may still ask for, lovelace."""
        first = 0 if self.hop.paying.last else self.offer.hop_fee
        return max(0, capacity - self.hop.paying.total - payer.kept(self.hop) - first)

    async def expect(self, terms: bytes, lease: Bought) -> None:
        """The lease whose terms hash to *terms* is about to be agreed on; nothing is signed yet."""
        async with self._own_turn():
            if terms not in self.hop.leases:
                await self._write(hop_rows.bought_row(terms, lease))
                self.hop = PayerBook(self.hop.paying, {**self.hop.leases, terms: lease})

    async def begin(self, terms: bytes) -> None:
        """The market has both signatures: the lease's leaf of 0 goes out."""
        async with self._own_turn():
            lease = self.hop.leases[terms]
            await self._done(
                payer.admit(
                    self.hop, terms, lease, self.offer.hash, self.offer.hop_fee, self.session
                )
            )

    async def owes(self, terms: bytes, approved: int) -> None:
        """*approved* lovelace are this lease's by its own book: signed as far as one may go."""
        async with self._own_turn():
            if self.book.stopped or terms not in self.hop.leases:
                return
            grown = approved > self.hop.leases[terms].owed
            rows = [hop_rows.owes_row(terms, approved)] if grown else []
            await self._done(payer.decide(self.hop, Owes(terms, approved), self.session), *rows)

    async def said(self, message: wire.PaidSent) -> None:
        """The provider's word what has reached it: as much again may be signed, and a tick."""
        async with self._own_turn():
            found = [(t, one) for t, one in self.hop.leases.items() if one.lease == message.lease]
            for terms, lease in found:
                paid = Paid(lease.lease_vk, lease.lease, message.amount, message.signature)
                try:
                    outcome = payer.decide(self.hop, paid, self.session)
                except Refusal as refusal:
                    log.warning("paid_refused", lease=lease.lease, why=refusal.message)
                    return
                grown = message.amount > lease.paid and not self.book.stopped
                if grown:
                    await self._done(outcome, hop_rows.said_row(terms, message.amount))

    async def refused(self, message: wire.HopRefused) -> None:
        """The router did not take a payment: all leaves go once, for one that missed some."""
        async with self._own_turn():
            log.warning(
                "hop_refused", hop=self.session_vk.hex()[:16], code=message.code, n=message.n
            )
            if message.n > self._again:
                self._again = message.n
                self._told = None
                await self._send()

    async def lease_over_at(self, terms: bytes) -> None:
        """No further receipt of it will be answered: the rest of its reserve is free."""
        async with self._own_turn():
            after = payer.over(self.hop, terms)
            if after != self.hop:
                await self._write(hop_rows.over_row(terms, after.leases[terms]))
                self.hop = after

    async def catch_up(self, voucher: Voucher | None) -> None:
        """One that shows more than this book signed: the book was lost, and what the hop's leaves
        are with it.
        """
        if voucher is None or voucher.cumulative <= self.hop.paying.total:
            return
        voucher.verify()
        if voucher.session_vk == self.session_vk:
            await self.halt(HopLost(f"{voucher.cumulative} were signed over this hop once"))

    async def say_again(self) -> None:
        """After a reconnect: the last payment, whole."""
        await super().say_again()
        async with self._own_turn():
            self._told = None
            await self._send()

    async def _order_keep(self) -> None:
        """A router keeps a hop until it is told to end it."""

    async def _done(self, outcome: Outcome[PayerBook], *rows: dict[str, Any]) -> None:
        before, after = self.hop.paying.last, outcome.state.paying.last
        written = list(rows)
        if after is not None and after != before:
            written.append(hop_rows.payment_row(after, before))
        await self._write(*written)
        self.hop = outcome.state
        self.book = replace(self.book, signed=max(self.book.signed, self.hop.paying.total))
        if after is not None and after != before:
            await self._send()

    async def _send(self) -> None:
        last = self.hop.paying.last
        if last is not None:
            await self._link.send(frame_of(last, self._told))
            self._told = last
