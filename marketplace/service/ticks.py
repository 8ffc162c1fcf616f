"""Receipts and vouchers: verified, durable before they are acknowledged, relayed, kept for ever."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from marketplace.domain import wire
from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.receipt import (
    Receipt,
    ReceiptRefused,
    SignedReceipt,
    check_next,
    check_time,
)
from marketplace.domain.terms import Terms
from marketplace.domain.voucher import End, Voucher, VoucherRefused
from marketplace.service import decide, paying
from marketplace.service.ports import Change, Store
from marketplace.service.records import Channel, Lease, ReceiptRecord, VoucherRecord
from marketplace.service.together import Together

if TYPE_CHECKING:
    from marketplace.service.market import Market

log = structlog.get_logger("market")
KEPT: Final = 10_000
AT_ONCE: Final = 200
GATHER_S: Final = 0.008


@dataclass(eq=False)
class Page:
    """What the next receipt or voucher of one channel is checked against.

    Terms and provider never change, so they are remembered for ever; the rest is read again once
    another process wrote.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    loaded: bool = False
    provider: str = ""  # of the channel; empty until asked for
    last: Receipt | None = None
    leases: dict[str, Receipt] = field(default_factory=dict[str, Receipt])
    ticks: dict[str, int] = field(default_factory=dict[str, int])
    terms: dict[str, tuple[Terms, str]] = field(default_factory=dict[str, tuple[Terms, str]])
    ceilings: int = 0  # of all its leases together, when they were last added up


class Book:
    """The last pages of every channel in use; whatever is not here is read from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: OrderedDict[bytes, Page] = OrderedDict()

    def page(self, session_vk: bytes) -> Page:
        """The channel's page, possibly not loaded."""
        page = self._pages.get(session_vk)
        if page is None:
            page = self._pages[session_vk] = Page()
            while len(self._pages) > KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(session_vk)
        return page

    def forget(self, session_vk: bytes) -> None:
        """Another process wrote: read it again."""
        page = self._pages.get(session_vk)
        if page is not None:
            page.loaded = False

    async def load(self, session_vk: bytes, page: Page) -> None:
        """From the store, unless it is loaded."""
        if page.loaded:
            return
        newest = await self._store.find(
            ReceiptRecord, session_vk=session_vk, order=("-seq",), limit=1
        )
        page.last = newest[0].signed.receipt if newest else None
        page.leases, page.ticks = {}, {}
        page.loaded = True

    async def provider(self, session_vk: bytes) -> str:
        """Whose channel it is; NotFound, and no page, when there is none."""
        page = self._pages.get(session_vk)
        if page is None or not page.provider:
            channel = await self._store.get(Channel, session_vk)
            if channel is None:
                raise NotFound("no such channel")
            page = self.page(session_vk)
            page.provider = channel.provider
        return page.provider

    def may_be_over(self, session_vk: bytes, lease_id: str) -> bool:
        """False while the lease's last receipt, taken here, is not its final one."""
        page = self._pages.get(session_vk)
        last = page.leases.get(lease_id) if page is not None and page.loaded else None
        return last is None or last.final

    async def agreed(self, page: Page, lease_id: str) -> tuple[Terms, str]:
        """(terms, provider) of a lease."""
        known = page.terms.get(lease_id)
        if known is None:
            lease = await self._store.get(Lease, lease_id)
            if lease is None:
                raise NotFound(f"no lease {lease_id}")
            known = page.terms[lease_id] = (lease.agreed, lease.provider)
        return known

    async def lease(self, page: Page, lease_id: str) -> tuple[Terms, str]:
        """(terms, provider) of a lease, and its last receipt into *page*."""
        known = await self.agreed(page, lease_id)
        if lease_id not in page.ticks:
            last = await self._store.find(ReceiptRecord, lease=lease_id, order=("-tick",), limit=1)
            page.ticks[lease_id] = last[0].tick if last else 0
            if last:
                page.leases[lease_id] = last[0].signed.receipt
        return known


class UsedKeys:
    """Whether session keys name channels already; questions that come together are one query."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._questions = Together(AT_ONCE, self._ask)

    async def any_of(self, keys: tuple[bytes, ...]) -> bool:
        """True when one of *keys* is a channel's."""
        mine = _Question(keys)
        await self._questions.join(mine)
        return mine.used

    async def _ask(self, group: list[_Question]) -> None:
        asked = [key for question in group for key in question.keys]
        used = await self._store.among(Channel, "session_vk", asked)
        for question in group:
            question.used = not used.isdisjoint(question.keys)


@dataclass(eq=False)
class _Question:
    keys: tuple[bytes, ...]
    used: bool = False


class Ticks:
    """Receipts and vouchers on their way into the store, many in one commit.

    What comes while one group is gathered and written is the next. A tick a second can wait
    :data:`GATHER_S`; a commit costs the market more than what a receipt adds to it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups = Together(AT_ONCE, self._write)

    async def apply(self, change: Change) -> None:
        """``Store.apply`` for *puts*, *raises* and *topics*."""
        mine = _Entry(change)
        await self._groups.join(mine)
        if mine.error is not None:
            raise mine.error

    async def _write(self, group: list[_Entry]) -> None:
        await anyio.sleep(GATHER_S)
        whole = Change()
        for entry in group:
            whole.puts += entry.change.puts
            whole.raises += entry.change.raises
            whole.topics += entry.change.topics
        try:
            await self._store.apply(whole)
        except Conflict as conflict:
            if len(group) == 1:
                raise
            log.info("ticks", what="written one by one", error=conflict.line())
            for entry in group:
                await self._write_one(entry)

    async def _write_one(self, entry: _Entry) -> None:
        try:
            await self._store.apply(entry.change)
        except Conflict as error:
            entry.error = error


@dataclass(eq=False)
class _Entry:
    change: Change
    error: Conflict | None = None


async def take_receipt(
    market: Market, provider: str, lease_id: str, signed: SignedReceipt
) -> ReceiptRecord | None:
    """Verify, store, relay. None for one that is known already; ReceiptRefused or NotFound."""
    session_vk = signed.receipt.session_vk
    page = market.book.page(session_vk)
    async with page.lock:
        await market.book.load(session_vk, page)
        terms, owner = await market.book.lease(page, lease_id)
        if owner != provider:
            raise NotFound(f"no lease {lease_id}")
        receipt = signed.verify(terms.adapter_vk)
        if page.last is not None and receipt.seq <= page.last.seq:
            return await _repeated(market, receipt, signed)
        _check_terms(receipt, lease_id, terms)
        before = page.leases.get(lease_id)
        check_next(receipt, page.last, before, terms.rate_micro)
        check_time(receipt, before, terms.units_milli)
        record = ReceiptRecord(
            session_vk, receipt.seq, lease_id, page.ticks[lease_id] + 1, signed.body,
            signed.signature, receipt.unit_ms_total, receipt.lease_owed, receipt.channel_owed,
            receipt.final, market.now,
        )  # fmt: skip
        try:
            await market.ticks.apply(Change(puts=[record], topics=[f"channel:{session_vk.hex()}"]))
        except Conflict:
            page.loaded = False  # another process holds this provider now
            raise
        page.last, page.leases[lease_id] = receipt, receipt
        page.ticks[lease_id] = record.tick
    market.paying.note(session_vk)
    if receipt.final:
        await market.change(
            lease_id, lambda at, of: decide.late(at, of, receipt.lease_owed, market.now)
        )
    return record


def _check_terms(receipt: Receipt, lease_id: str, terms: Terms) -> None:
    rules = (
        (receipt.lease == lease_id, "another lease"),
        (receipt.session_vk == terms.session_vk, "another channel than the terms name"),
        (receipt.device == terms.devices, "other devices than the terms name"),
        (receipt.resource == terms.resource, "another resource than the terms name"),
        (receipt.lease_owed <= terms.ceiling, "more than the ceiling"),
    )
    for holds, why in rules:
        if not holds:
            raise ReceiptRefused(why, seq=receipt.seq, lease=lease_id)


async def _repeated(market: Market, receipt: Receipt, signed: SignedReceipt) -> None:
    stored = await market.store.get(ReceiptRecord, receipt.session_vk, receipt.seq)
    if stored is None or stored.body != signed.body:
        raise ReceiptRefused("the hash chain forks", seq=receipt.seq, lease=receipt.lease)


async def take_voucher(market: Market, lease_id: str, voucher: Voucher) -> VoucherRecord:
    """Verify and store; the greatest counts, a lower one is void. VoucherRefused, NotFound."""
    voucher.verify()
    provider = await market.book.provider(voucher.session_vk)
    page = market.book.page(voucher.session_vk)
    terms, _ = await market.book.agreed(page, lease_id)
    if terms.session_vk != voucher.session_vk:
        raise NotFound(f"no lease {lease_id} on this channel")
    if voucher.cumulative > page.ceilings:
        page.ceilings = await market.store.total(Lease, "ceiling", session_vk=voucher.session_vk)
        if voucher.cumulative > page.ceilings:
            raise VoucherRefused("it is over more than the ceilings of this channel's leases")
    record = VoucherRecord(
        voucher.session_vk, voucher.cumulative, voucher.signature, lease_id, market.now
    )
    topic = f"voucher:{voucher.session_vk.hex()}"
    await market.ticks.apply(Change(raises=[record], topics=[topic]))
    market.providers.tell(provider, wire.VoucherSent(lease_id, voucher))
    if not market.paying.counts(voucher.session_vk):
        market.paying.note(voucher.session_vk)
        if not market.has_chain:  # then there is nothing to wait for
            await paying.look(market, voucher.session_vk)
    return record


async def take_end(market: Market, end: End) -> Channel:
    """The consumer's signed wish to finish: kept, and brought to the adapter by the outbox."""
    end.verify()
    channel = await market.store.get(Channel, end.session_vk)
    if channel is None:
        raise NotFound("no such channel")
    if channel.end_signature:
        return channel
    if channel.state == "ENDED" or channel.settled_tx:
        raise VoucherRefused("the channel has ended already")
    ended = replace(channel, end_cumulative=end.cumulative, end_signature=end.signature)
    vk = end.session_vk.hex()
    note = market.note(channel.account, "channel.end", vk, cumulative=end.cumulative)
    sends: list[tuple[str, wire.Message]] = [(f"adapter:{channel.provider}", wire.EndSent(end))]
    await market.store.apply(Change(sets=[ended], puts=[note], sends=sends))
    return ended


async def unanswered(market: Market, session_vk: bytes) -> list[ReceiptRecord]:
    """The latest receipt of each lease of the channel that no voucher covers yet."""
    voucher = await market.store.get(VoucherRecord, session_vk)
    covered = voucher.cumulative if voucher is not None else -1
    leases = await market.store.find(Lease, session_vk=session_vk)
    found: list[ReceiptRecord] = []
    for lease in leases:
        last = await market.last_receipt(lease.id)
        if last is not None and (last.channel_owed > covered or last.final):
            found.append(last)
    return sorted(found, key=lambda record: record.seq)
