"""A channel's book that this process holds: what is agreed to on it, and what is ordered of it.

Whatever is signed is durable before it is given to anybody.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread

from marketplace.client.net.clock import Stamp
from marketplace.client.net.link import Link
from marketplace.client.payer import decide
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Book
from marketplace.client.payer.handing_on import HandedOn
from marketplace.client.payer.journal import ChannelFacts, Journal, Loaded
from marketplace.client.payer.lease_book import LeaseBook
from marketplace.client.payer.missed_receipts import Receipts
from marketplace.client.payer.ordered import NothingToOrder, Orders
from marketplace.client.payer.paid import Listener
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.work.cluster_order import SignedOrder, Verb
from marketplace.domain.work.mesh import MeshPeer


class HeldChannel:
    """One channel whose lock this process holds: its book, and what is agreed to on it."""

    def __init__(
        self,
        journal: Journal,
        loaded: Loaded,
        session: Signer,
        link: Link,
        receipts: Receipts,
        tell: Listener,
    ) -> None:
        assert loaded.facts is not None
        self.facts: ChannelFacts = loaded.facts
        self.book: Book = loaded.book
        self.terms = loaded.terms
        self.final = loaded.final
        self.end_sent = loaded.end_sent
        self.end_ms: int | None = loaded.end_ms
        self.session = session
        self._journal = journal
        self._link = link
        self._receipts = receipts
        self._tell = tell
        self._turn = anyio.Lock()
        self._gone = False

    @property
    def session_vk(self) -> bytes:
        """The channel's name."""
        return self.book.session_vk

    @property
    def agreed(self) -> Agreed | None:
        """What its datum must say; None before the first terms are signed."""
        return next((signed.terms for signed in self.terms.values()), None)

    @property
    def voucher(self) -> Voucher | None:
        """The greatest that was signed, made again; None before the first."""
        return Voucher.sign(self.session, self.book.signed) if self.book.signed else None

    async def let_go(self) -> None:
        """Give the lock back once what is just being written is on the disk, and which pauses last.
        From then on everything but reading is :class:`HandedOn`.
        """
        async with self._turn:
            if self._gone:
                return
            self._gone, at, leases = True, Stamp.now(), self.book.leases.items()
            paused = [name for name, lease in leases if lease.paused_at_ms is not None]
            try:
                await self._write(*(rows.clock_row(x, "paused", at, handed=True) for x in paused))
            finally:
                self._journal.close()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncGenerator[None]:
        async with self._turn:
            if self._gone:
                raise HandedOn(f"channel {self.session_vk.hex()[:16]} was handed on")
            yield

    async def agree(self, terms: SignedTerms, cap: int, *, member: bool = False) -> SignedTerms:
        """Sign *terms* for at most *cap* lovelace; durable before it returns. *member*: of a
        cluster, and paid for as it is ordered to RUN.
        """
        signed = replace(terms, session_signature=self.session.sign(terms.body))
        async with self._own_turn():
            row = rows.lease_row(signed, cap, Stamp.now(), member=member)
            await self._write(row)
            agreed = signed.verify()
            self.terms[agreed.lease] = signed
            orders = Orders() if member else None
            self.book = self.book.with_lease(LeaseBook(agreed, cap, orders=orders))
        return signed

    async def renew(self, terms: SignedTerms) -> SignedTerms:
        """Sign the renewed *terms* of a lease that was agreed to, for as much more as its ceiling
        grew by; durable before it returns.
        """
        signed = replace(terms, session_signature=self.session.sign(terms.body))
        agreed = signed.verify()
        async with self._own_turn():
            known = self.book.leases[agreed.lease]
            cap = known.cap + agreed.ceiling - known.terms.ceiling
            await self._write(rows.renewed_row(signed, cap))
            self.terms[agreed.lease] = signed
            self.book = self.book.with_lease(known.renewed(agreed, cap))
        return signed

    async def renewal_told(self, lease: str) -> None:
        """The market has the signature under the renewed terms of *lease*."""
        async with self._own_turn():
            known = replace(self.book.leases[lease], known_ms=0)
            await self._write(rows.told_row(lease))
            self.book = self.book.with_lease(known)

    async def renew_by(self, lease: str, rule: RenewalRule | None) -> None:
        """Renew *lease* by itself from now on; None: not any more. RuleRefused, DayTooDear."""
        async with self._own_turn():
            known = self.book.leases[lease]
            if rule is not None:
                rule.budget(known.terms)
            await self._write(rows.rule_row(lease, rule))
            self.book = self.book.with_lease(replace(known, rule=rule))

    async def cap(self, lease: str, more: int) -> int:
        """Approve at most *more* lovelace beyond what *lease* was approved for, which is
        answered.
        """
        async with self._own_turn():
            known = self.book.leases[lease]
            capped = replace(known, cap=min(known.terms.ceiling, known.approved + more))
            if capped != known:
                await self._write(rows.cap_row(lease, capped.cap))
                self.book = self.book.with_lease(capped)
            return known.approved

    async def order(
        self,
        lease: str,
        verb: Verb,
        peers: Sequence[MeshPeer] = (),
        shown: SignedOrder | None = None,
    ) -> SignedOrder:
        """The order that *lease* does *verb* with *peers*: the newest where it says just that, else
        a new one above it; durable before it returns. *shown*: the newest that the market has. One
        that this key signed counts, for a book that has lost its end. NothingToOrder, PayerStopped.
        """
        async with self._own_turn():
            known = self.book.leases.get(lease)
            if known is None or known.orders is None or lease in self.final:
                raise NothingToOrder(f"lease {lease} is no living member of a cluster here")
            if shown is not None and _is_lost(shown, lease, known.orders, self.session_vk):
                known = await self._ordered(known, shown, again=True)
            assert known.orders is not None
            order = known.orders.next(lease, verb, peers)
            if order is None:
                assert known.orders.newest is not None
                return known.orders.newest
            if self.book.stopped and verb is Verb.RUN:  # nobody would pay for it
                raise decide.PayerStopped(f"nothing is signed since {self.book.stopped}")
            signed = SignedOrder.sign(self.session, order)
            await self._ordered(known, signed)
            return signed

    async def _ordered(
        self, known: LeaseBook, order: SignedOrder, *, again: bool = False
    ) -> LeaseBook:
        at = Stamp.now()
        await self._write(rows.order_row(order, at, again=again))
        after = known.relearnt if again else known.ordered
        self.book = self.book.with_lease(after(order, at.mono_ms))
        return self.book.leases[known.terms.lease]

    @property
    def has_member(self) -> bool:
        """Whether a cluster's member that is paid over it lives: its orders are signed here."""
        leases = self.book.leases.items()
        return any(one.orders is not None and name not in self.final for name, one in leases)

    async def _write(self, *written: dict[str, Any]) -> None:
        if written:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._journal.write, *written)


def _is_lost(shown: SignedOrder, lease: str, orders: Orders, session_vk: bytes) -> bool:
    """Whether this key signed *shown*, and the book does not have it. (Who shows it may lie.)"""
    try:
        return shown.verify(lease, session_vk).version > orders.version
    except Refusal:
        return False
