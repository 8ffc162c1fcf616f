"""Receipts and vouchers: verified, durable before they are acknowledged, relayed, kept for ever."""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import (
    Receipt,
    ReceiptRefused,
    SignedReceipt,
    check,
)
from marketplace.domain.money.voucher import End, Voucher, VoucherRefused
from marketplace.domain.protocol import wire
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Lease, ReceiptRecord, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.core.inputs import LateReceipt
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.money import paying


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
        if receipt.lease_owed > terms.ceiling:  # unless it was renewed meanwhile
            terms, _ = await market.book.agreed(page, lease_id, anew=True)
        if page.last is not None and receipt.seq <= page.last.seq:
            return await _repeated(market, receipt, signed)
        check(receipt, page.last, page.leases.get(lease_id), terms)
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
        await change_lease(market, lease_id, LateReceipt(receipt.lease_owed))
    return record


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
    if channel.state is ChannelStage.ENDED or channel.settled_tx:
        raise VoucherRefused("the channel has ended already")
    ended = replace(channel, end_cumulative=end.cumulative, end_signature=end.signature)
    vk = end.session_vk.hex()
    note = market.note(channel.account, "channel.end", vk, cumulative=end.cumulative)
    sends: list[tuple[str, wire.Message]] = [(f"adapter:{channel.provider}", wire.EndSent(end))]
    await market.store.apply(Change(sets=[ended], puts=[note], sends=sends))
    return ended


async def take_keep(market: Market, keep: Keep) -> None:
    """The consumer's signed order how long its idle channel stays open: the longest is kept, and
    said to the adapter again whenever it comes back. Of an ended channel it says nothing any more.
    """
    keep.verify()
    channel = await market.store.get(Channel, keep.session_vk)
    if channel is None:
        raise NotFound("no such channel")
    if channel.end_signature or channel.state is ChannelStage.ENDED or channel.settled_tx:
        return
    if keep.keep_ms > channel.keep_ms:
        kept = replace(channel, keep_ms=keep.keep_ms, keep_signature=keep.signature)
        await market.store.apply(Change(sets=[kept], topics=[f"keep:{keep.session_vk.hex()}"]))
    market.providers.tell(channel.provider, wire.KeepSent(keep))


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
