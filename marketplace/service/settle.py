"""When a lease is over for good, and getting vouchers onto the chain when it is worth it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from marketplace.domain.errors import Conflict, Fault, Malformed
from marketplace.domain.lease import LeaseState
from marketplace.domain.terms import Terms
from marketplace.domain.transaction import TRANSACTION, TxEvent, TxState
from marketplace.service import decide
from marketplace.service.market import TRIES, Market, log
from marketplace.service.ports import Change, Claimable
from marketplace.service.records import Channel, Lease, OfferRecord, Record, Tx, VoucherRecord

_TX: Final = re.compile(r"[0-9a-f]{64}")


async def maybe(market: Market, lease_id: str) -> bool:
    """End a finished lease when nothing is due any more; True when it ended.

    Due are: the last receipt's voucher, and (once the consumer sent its End) the adapter's Finish.
    Without an End the channel is left open for reuse after a short grace.
    """
    lease, _ = await market.lease(lease_id)
    if lease.state is not LeaseState.ENDING or not lease.finished_ms:
        return False
    last = await market.last_receipt(lease_id)
    owed = last.lease_owed if last is not None else 0
    channel = await market.store.get(Channel, lease.session_vk)
    if channel is not None and not channel.settled_tx and owed:
        voucher = await market.store.get(VoucherRecord, lease.session_vk)
        due = last.channel_owed if last is not None else 0
        covered = voucher is not None and voucher.cumulative >= due
        age = market.now - lease.finished_ms
        if not covered and age < market.settings.unpaid_grace_ms:
            return False
        if channel.end_signature and age < market.settings.lost_grace_ms:
            return False  # the adapter will finish it, or the settler claim it
        if not channel.end_signature and age < market.settings.end_grace_ms:
            return False
    elif channel is not None and not channel.settled_tx and channel.end_signature:
        if market.now - lease.finished_ms < market.settings.lost_grace_ms:
            return False
    tx = channel.settled_tx if channel is not None else ""
    await market.change(
        lease_id,
        lambda at, of: (
            decide.settled(replace(at, owed=owed), of, tx, market.now)
            if at.state is LeaseState.ENDING
            else decide.Outcome(at, of)
        ),
    )
    return True


async def reported(market: Market, lease: Lease, tx: str) -> None:
    """The adapter finished the channel on chain, in *tx*; every lease of it can end.

    *tx* is the adapter's word: whoever it concerns looks at the chain.
    """
    if tx and not _TX.fullmatch(tx):
        raise Malformed("a transaction is named by 64 hex digits")
    known = await market.store.get(Channel, lease.session_vk)
    if known is not None and known.settled_tx == (tx or "none"):
        return  # said twice
    await _set_channel(market, lease.session_vk, state="ENDED", settled_tx=tx or "none")
    if tx and await market.store.get(Tx, tx) is None:
        body = Tx(
            tx, "finish", lease.account, lease.session_vk, lease.id, TxState.SUBMITTED.name, b"", 0,
            market.now,
        )  # fmt: skip
        note = market.note(
            lease.provider, "channel.finish", lease.session_vk.hex(), tx=tx, lease=lease.id
        )
        try:
            await market.store.apply(Change(puts=[body, note]))
        except Conflict:
            pass  # told twice at once: it is stored
    for one in await market.store.find(Lease, session_vk=lease.session_vk, state=LeaseState.ENDING):
        await maybe(market, one.id)


async def seen(market: Market, session_vk: bytes) -> None:
    """The adapter sees the channel on chain."""
    channel = await market.store.get(Channel, session_vk)
    if channel is not None and channel.state == "OPENING":
        await _set_channel(market, session_vk, state="OPEN")


async def _set_channel(market: Market, session_vk: bytes, **changes: str | int) -> None:
    for _ in range(TRIES):
        channel = await market.store.get(Channel, session_vk)
        if channel is None:
            return
        try:
            await market.store.apply(Change(sets=[replace(channel, **changes)]))  # pyright: ignore[reportArgumentType] (field names are the callers')
            return
        except Conflict:
            continue


async def claim_round(market: Market, urgent: frozenset[bytes] = frozenset()) -> int:
    """Claim what is worth it for providers that sleep; how many transactions were sent.

    The ledger keeps each id before it sends and follows its own; here is what users are shown.
    """
    ledger = market.ledger
    if ledger is None:
        return 0
    able: list[Claimable] = []
    channels = await market.store.find(Channel, state=("OPENING", "OPEN", "CLOSING"), limit=5000)
    for channel in channels:
        voucher = await market.store.get(VoucherRecord, channel.session_vk)
        if voucher is None or voucher.cumulative <= channel.claimed or not channel.open_tx:
            continue
        hurry = channel.session_vk in urgent or channel.state == "CLOSING"
        terms = Terms.decode(channel.terms)
        offer = await market.store.get(OfferRecord, terms.offer)
        if offer is None:
            continue
        address = offer.offer.payout_address
        able.append(Claimable(terms, channel.open_tx, voucher.voucher, address, hurry))
    claims = await ledger.claim(able)  # also without any: it follows what it sent before
    for claim in claims:
        sent: list[Record] = [
            Tx(claim.id, "claim", "", session_vk, "", TxState.SUBMITTED.name, claim.body, claim.fee,
               market.now)
            for session_vk in list(claim.channels)[:1]
        ]  # fmt: skip
        facts = {vk.hex(): cumulative for vk, cumulative in claim.channels.items()}
        sent.append(market.note("market", "channel.claim", claim.id, channels=facts, fee=claim.fee))
        await market.store.apply(Change(puts=sent))
        for session_vk, cumulative in claim.channels.items():
            await _set_channel(market, session_vk, claimed=cumulative)
    return len(claims)


async def send(market: Market, tx_id: str) -> None:
    """Submit a stored transaction and say so; the world may fail, the bytes are kept."""
    tx = await market.store.get(Tx, tx_id)
    if tx is None or market.ledger is None:
        return
    await market.ledger.submit(tx.body)
    state = TRANSACTION.step(TxState[tx.state], TxEvent.SENT)
    await market.store.apply(Change(sets=[replace(tx, state=state.name)]))


async def follow(market: Market) -> None:
    """Bring every open transaction's state up to date; resend what vanished."""
    if market.ledger is None:
        return
    waiting = await market.store.find(
        Tx, state=(TxState.BUILT.name, TxState.SUBMITTED.name, TxState.ROLLED_BACK.name), limit=200
    )
    for tx in waiting:
        try:
            if await market.ledger.included(tx.id):
                state = TRANSACTION.step(TxState[tx.state], TxEvent.INCLUDED)
                await market.store.apply(Change(sets=[replace(tx, state=state.name)]))
            elif tx.state == TxState.BUILT.name and tx.body:
                await send(market, tx.id)
        except (Conflict, Fault) as error:
            log.warning("transaction", tx=tx.id, error=error.line())
