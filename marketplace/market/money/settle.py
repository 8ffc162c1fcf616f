"""When a lease is over for good, and getting vouchers onto the chain when it is worth it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from marketplace.domain.errors import Conflict, Malformed, Refusal, TallyError
from marketplace.domain.money.channel_stage import LIVING, ChannelStage, after
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import TRANSACTION, TxEvent, TxState, looked_at
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.ports import Change, Claimable, Ledger, Sighting
from marketplace.market.base.records import Channel, Lease, ReceiptRecord, Tx, VoucherRecord
from marketplace.market.context import TRIES, Market, log
from marketplace.market.core.inputs import Accounted
from marketplace.market.lifecycle import routes
from marketplace.market.lifecycle.change import change_lease

FOLLOWED: Final = (TxState.BUILT, TxState.SUBMITTED, TxState.SEEN, TxState.ROLLED_BACK)
PAGE: Final = 500
MOST_FINISHES: Final = 20  # that a provider may name for one lease: rollbacks are few
_TX: Final = re.compile(r"[0-9a-f]{64}")


async def end_if_settled(market: Market, lease_id: str) -> None:
    """End a finished lease when nothing is due any more: :func:`ending.accounted` says when."""
    lease, _ = await market.lease(lease_id)
    if lease.state is not LeaseState.ENDING or not lease.finished_ms:
        return
    last = await market.last_receipt(lease_id)
    voucher = await market.store.get(VoucherRecord, lease.session_vk)
    asked = Accounted(
        market.settings,
        last.lease_owed if last is not None else 0,
        last.channel_owed if last is not None else 0,
        voucher.cumulative if voucher is not None else None,
        await market.store.get(Channel, lease.session_vk),
        routes.sums(market, lease_id) if lease.hop else None,
    )
    await change_lease(market, lease_id, asked)


async def reported(market: Market, lease: Lease, tx: str) -> None:
    """The adapter finished the channel on chain, in *tx*; every lease of it can end.

    *tx* is the adapter's word, and a rollback may undo it: the channel itself ends when the
    market's own look shows that, deep enough (``_mirror``, ``_over``). Until then its voucher is
    still claimed wherever the chain shows it unclaimed. A market without a chain has only the word.
    """
    if tx and not _TX.fullmatch(tx):
        raise Malformed("a transaction is named by 64 hex digits")
    known = await market.store.get(Channel, lease.session_vk)
    if known is not None and known.settled_tx == (tx or "none"):
        return  # said twice
    named = await market.store.find(Tx, lease=lease.id)
    if sum(one.kind == "finish" and one.id != tx for one in named) >= MOST_FINISHES:
        raise Malformed("so many transactions cannot all have ended one channel")
    if tx and await market.store.get(Tx, tx) is None:
        body = Tx(
            tx, "finish", lease.account, lease.session_vk, lease.id, TxState.SUBMITTED, b"", 0,
            market.now,
        )  # fmt: skip
        note = market.note(
            lease.provider, "channel.finish", lease.session_vk.hex(), tx=tx, lease=lease.id
        )
        try:
            await market.store.apply(Change(puts=[body, note]))
        except Conflict:
            pass  # told twice at once: it is stored
    # Last: from here on the same word counts as said, and leases end that show the transaction.
    await _mark_settled(market, lease.session_vk, tx or "none")
    for one in await market.store.find(Lease, session_vk=lease.session_vk, state=LeaseState.ENDING):
        await end_if_settled(market, one.id)


async def seen(market: Market, session_vk: bytes) -> None:
    """The adapter sees the channel on chain."""
    channel = await market.store.get(Channel, session_vk)
    if channel is not None and channel.state is ChannelStage.OPENING:
        await _show(market, session_vk, ChannelStage.OPEN, channel.claimed)


async def _show(market: Market, session_vk: bytes, shown: ChannelStage, claimed: int) -> None:
    """Bring the row in line with what the chain shows; an ended channel stays as it ended."""

    def change(channel: Channel) -> Channel:
        if channel.state is ChannelStage.ENDED:
            return channel
        return replace(channel, state=after(channel.state, shown), claimed=claimed)

    await _change_channel(market, session_vk, change)


async def _mark_settled(market: Market, session_vk: bytes, tx: str) -> None:
    """Keep the adapter's word for the end. A market without a chain has nothing else to go by."""

    def change(channel: Channel) -> Channel:
        word_counts = market.ledger is None
        state = after(channel.state, ChannelStage.ENDED) if word_counts else channel.state
        return replace(channel, settled_tx=tx, state=state)

    await _change_channel(market, session_vk, change)


async def _change_channel(
    market: Market, session_vk: bytes, change: Callable[[Channel], Channel]
) -> None:
    for _ in range(TRIES):
        channel = await market.store.get(Channel, session_vk)
        if channel is None or (changed := change(channel)) == channel:
            return
        try:
            await market.store.apply(Change(sets=[changed]))
            return
        except Conflict:
            continue
    raise Conflict("the channel keeps changing")


async def claim_round(market: Market, urgent: frozenset[bytes] = frozenset()) -> int:
    """Claim what is worth it for providers that sleep; how many transactions were sent.

    What is due is the chain's to say, never this table's: a claim that was sent may expire or be
    rolled back, and the voucher must then be claimed again. The ledger keeps each id before it
    sends and follows its own; here is what users are shown.
    """
    ledger = market.ledger
    if ledger is None:
        return 0
    able = [one async for one in _claimable(market, urgent)]
    done = await ledger.claim(able)  # also without any: it follows what it sent before
    for claim in done.sent:
        body = Tx(
            claim.id, "claim", "", next(iter(claim.channels)), "", TxState.SUBMITTED,
            claim.body, claim.fee, market.now,
        )  # fmt: skip
        facts = {vk.hex(): cumulative for vk, cumulative in claim.channels.items()}
        note = market.note("market", "channel.claim", claim.id, channels=facts, fee=claim.fee)
        await market.store.apply(Change(puts=[body, note]))
    for session_vk, seen in done.seen.items():
        await _mirror(market, session_vk, seen)
    return len(done.sent)


async def _claimable(market: Market, urgent: frozenset[bytes]) -> AsyncIterator[Claimable]:
    """Every living channel that a voucher was given for, page by page."""
    after: tuple[object, ...] | None = None
    while True:
        page = await market.store.find(
            Channel, state=LIVING, order=("session_vk",), after=after, limit=PAGE
        )
        keys = [channel.session_vk for channel in page]
        vouchers = {
            v.session_vk: v
            for v in await market.store.find(VoucherRecord, session_vk=keys, limit=PAGE)
        }
        stated = await market.store.newest(ReceiptRecord, "session_vk", "seq", keys)
        for channel in page:
            voucher, last = vouchers.get(channel.session_vk), stated.get(channel.session_vk)
            if voucher is None or not voucher.cumulative or not channel.open_tx or last is None:
                continue
            hurry = channel.session_vk in urgent
            terms, address = Terms.decode(channel.terms), channel.payout_address
            owed = last.channel_owed
            yield Claimable(terms, channel.open_tx, voucher.voucher, address, hurry, owed)
        if len(page) < PAGE:
            return
        after = (page[-1].session_vk,)


async def _mirror(market: Market, session_vk: bytes, seen: Sighting) -> None:
    """Show what the chain shows. An end counts once no rollback is expected to undo it."""
    channel = await market.store.get(Channel, session_vk)
    if channel is None or channel.state is ChannelStage.ENDED:
        return
    undoable = seen.state is ChannelStage.ENDED and not seen.settled
    stage = channel.state if undoable else seen.state
    if (channel.state, channel.claimed) != (stage, seen.claimed):
        await _show(market, session_vk, stage, seen.claimed)


async def _over(market: Market, ledger: Ledger, finish: Tx) -> None:
    """*finish* lies deep: the channel has ended here too, if the chain shows that this ended it.

    For channels without a voucher, which no round of claims looks at.
    """
    channel = await market.store.get(Channel, finish.session_vk)
    if channel is None or channel.state is ChannelStage.ENDED:
        return
    try:
        shown = await ledger.channel(Terms.decode(channel.terms), channel.open_tx)
    except Refusal as refusal:  # it is not what its terms say, and never will be
        log.warning("channel", channel=finish.session_vk.hex(), error=refusal.line())
        return
    if shown is not None and shown.state is ChannelStage.ENDED and shown.ref == finish.id:
        await _show(market, finish.session_vk, ChannelStage.ENDED, shown.claimed)


async def send(market: Market, tx_id: str) -> None:
    """Submit a stored transaction and say so; the world may fail, the bytes are kept."""
    tx = await market.store.get(Tx, tx_id)
    if tx is None or market.ledger is None:
        return
    await market.ledger.submit(tx.body)
    state = TRANSACTION.step(tx.state, TxEvent.SENT)
    if state is tx.state:
        return
    await market.store.apply(Change(sets=[replace(tx, state=state)]))


async def follow(market: Market) -> None:
    """Bring every unfinished transaction's row in line with the chain; resend what vanished.

    A row that cannot be followed (refused, malformed) is logged and holds up no other.
    """
    if market.ledger is None:
        return
    after: tuple[object, ...] | None = None
    while True:
        page = await market.store.find(Tx, state=FOLLOWED, order=("id",), after=after, limit=PAGE)
        for tx in page:
            try:
                await _follow_one(market, market.ledger, tx)
            except TallyError as error:
                log.warning("transaction", tx=tx.id, error=error.line())
        if len(page) < PAGE:
            return
        after = (page[-1].id,)


async def _follow_one(market: Market, ledger: Ledger, tx: Tx) -> None:
    look, state = await ledger.look(tx.id, tx.body), tx.state
    forgotten = not look.signed and market.now - tx.at_ms >= market.settings.lost_grace_ms
    for event in looked_at(state, look.depth, dead=look.dead or forgotten):
        if event is TxEvent.DEEP and tx.kind == "finish":
            await _over(
                market, ledger, tx
            )  # first: the row is not looked at again once it is FINAL
        state = TRANSACTION.step(state, event)
    if state is not tx.state:
        await market.store.apply(Change(sets=[replace(tx, state=state)]))
    if look.signed and state in (TxState.BUILT, TxState.SUBMITTED, TxState.ROLLED_BACK):
        try:
            await send(market, tx.id)
        except Refusal as refusal:  # a node that has these bytes already refuses them too
            log.debug("not_sent_again", tx=tx.id, error=refusal.line())
