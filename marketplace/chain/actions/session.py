"""Each thing that a party does on chain, from a URL and a key: read, build, evaluate, sign, log,
send.

The order never varies: the transaction's id is in the log before its bytes leave. Nothing here
retries; a :class:`~marketplace.chain.errors.ChainFault` or a conflict is the caller's to repeat,
and repeating is safe because everything is read anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft
from marketplace.chain.build.plans import Batch, Move, Opening, Settlement
from marketplace.chain.build.wallet import Funds, Wallet
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import (
    FOREIGN,
    OPEN,
    MemoryLog,
    Sent,
    TransactionLog,
    TxRecord,
    send,
)
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.chain.transaction.signing import Unsigned
from marketplace.chain.transaction.snapshot import Scripts, Snapshot
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import TopUp, Will
from marketplace.domain.money.voucher import Voucher

CLOSE_WITHIN_MS = 5 * 60_000
"""A Close's upper bound: expire_at counts from it, so it is kept near."""


@dataclass(frozen=True)
class Desk:
    """What every action needs: the chain, whose money pays, the instance, and the log.

    ``Desk(chain, wallet)`` is ADA with a log in memory.
    """

    chain: ChainReader
    wallet: Wallet
    asset: str = ""
    log: TransactionLog | None = None

    @property
    def scripts(self) -> Scripts:
        """Of the desk's asset."""
        return scripts_for(self.asset)

    @property
    def unit(self) -> bytes:
        """Of the desk's asset, as bytes; empty for ADA."""
        return bytes.fromhex(self.asset)

    async def funds(self) -> tuple[Funds, dict[OutRef, Utxo]]:
        """What may be spent, our own unfinished transactions counted in, and what of it is not yet
        in any block.
        """
        pending = await self._in_no_block()  # asked first: what is included meanwhile counts once
        utxos = {u.ref: u for u in await self.chain.utxos(self.wallet.address)}
        spent = {ref for record in pending for ref in record.inputs}
        made = [u for record in pending for u in record.made]
        fresh = {
            u.ref: u
            for u in made
            if u.address == self.wallet.address and u.ref not in utxos and u.ref not in spent
        }
        usable = [u for ref, u in {**utxos, **fresh}.items() if ref not in spent]
        return Funds.of(self.wallet.address, usable), fresh

    async def _in_no_block(self) -> list[TxRecord]:
        """Our transactions that may still be included: of all others the chain itself tells. What
        we only consented to, or were handed, is somebody else's, and may never be included.
        """
        pending = await self.log.pending() if self.log is not None else ()
        pending = [r for r in pending if r.purpose not in FOREIGN]
        if not pending:
            return []
        tip = await self.chain.tip()
        waiting = [r for r in pending if r.until is None or tip.slot < r.until]
        return [r for r in waiting if await self.chain.transaction(r.tx_id) is None]

    async def look(self) -> tuple[Snapshot, Funds, dict[OutRef, Utxo]]:
        """Everything a builder needs, read now."""
        snapshot = await self.chain.snapshot(self.scripts)
        funds, fresh = await self.funds()
        return snapshot, funds, fresh

    async def finish(self, draft: Draft, fresh: Mapping[OutRef, Utxo]) -> Unsigned:
        """*draft* with exact units."""
        if not draft.scripted:
            return draft.finish()
        pledged = (draft.collateral,) if draft.collateral and not draft.pledges_an_input else ()
        unconfirmed = [u for u in (*draft.inputs, *pledged) if u.ref in fresh]
        return draft.finish(await self.chain.evaluate(draft.bytes, unconfirmed))

    async def send(self, unsigned: Unsigned, purpose: str, *keys: Signer) -> Sent:
        """Sign with the wallet and *keys*, log, submit."""
        signed = unsigned.sign(self.wallet.signer, *keys)
        return await send(self.chain, self.log or MemoryLog(), signed, purpose)


@dataclass(frozen=True)
class Opened:
    """Channels opened by one transaction; *refs* in the order asked for."""

    sent: Sent
    refs: tuple[OutRef, ...]


async def open_channels(desk: Desk, openings: Sequence[Opening]) -> Opened:
    """Open channels from the desk's wallet. A fresh session key each: see :class:`Opening`."""
    snapshot, funds, _ = await desk.look()
    draft = plans.open_channels(snapshot, funds, openings, desk.unit)
    sent = await desk.send(draft.finish(), OPEN)
    return Opened(sent, tuple(OutRef(sent.tx_id, i) for i in range(len(openings))))


@dataclass(frozen=True)
class Settled:
    """A settlement that was sent, and what it does to each channel."""

    sent: Sent
    moves: tuple[Move, ...]
    wills: tuple[Will, ...]
    subsidy: int

    @property
    def claimed(self) -> int:
        """What left the channels."""
        return sum(w.taken for w in self.wills)


async def settle(
    desk: Desk, batch: Batch, purpose: str, *keys: Signer, waiting: Sequence[Utxo] = ()
) -> Settled:
    """One transaction for every move of *batch*, signed by the desk's wallet and *keys*.

    *waiting*: channels of it that only the mempool holds yet
    (:mod:`marketplace.chain.channels.mempool`).
    """
    snapshot, funds, fresh = await desk.look()
    planned = plans.settle(behind(snapshot, waiting), funds, batch)
    known = {**fresh, **{u.ref: u for u in waiting}}
    return await settle_planned(desk, planned, known, purpose, *keys)


def behind(snapshot: Snapshot, waiting: Sequence[Utxo]) -> Snapshot:
    """*snapshot* for a settlement behind another one that waits: that one takes settle's
    rewards.
    """
    return replace(snapshot, rewards=0) if waiting and snapshot.rewards else snapshot


async def settle_planned(
    desk: Desk, planned: Settlement, fresh: Mapping[OutRef, Utxo], purpose: str, *keys: Signer
) -> Settled:
    """Evaluate, sign and send what was planned."""
    unsigned = await desk.finish(planned.draft, fresh)
    sent = await desk.send(unsigned, purpose, *keys)
    return Settled(sent, planned.moves, planned.wills, planned.subsidy)


async def claim(
    desk: Desk,
    claims: Sequence[tuple[ChannelView, Voucher]],
    payouts: Mapping[bytes, bytes],
    most: int | None = None,
    waiting: Sequence[Utxo] = (),
) -> Settled:
    """Push vouchers onto the chain; needs nobody's key but the fee payer's. *most*: take no more of
    each, because no more was delivered; *waiting* as in :func:`settle`."""
    moves = tuple(
        Move(
            view.utxo,
            plans.claim_step(v, v.cumulative if most is None else min(v.cumulative, most)),
        )
        for view, v in claims
    )
    batch = Batch(moves, payouts, unit=desk.unit, reserve_collateral=True)
    return await settle(desk, batch, "claim", waiting=waiting)


async def finish_channels(
    desk: Desk,
    finishes: Sequence[tuple[ChannelView, Voucher | None]],
    payouts: Mapping[bytes, bytes],
    adapter: Signer | None = None,
    most: int | None = None,
    waiting: Sequence[Utxo] = (),
) -> Settled:
    """End channels: the last due to the provider, the exact rest home, in one transaction.

    *most*: take no more of each voucher than that, because no more was delivered; *waiting* as in
    :func:`settle`.
    With *adapter* at any time; without it only channels whose close period is over, by anyone
    (:class:`~marketplace.domain.money.channel_refusals.MayNotFinish` before that).
    """
    moves = tuple(
        Move(view.utxo, plans.finish_step(voucher, view.claimed, most))
        for view, voucher in finishes
    )
    if adapter is not None:
        batch = Batch(moves, payouts, (adapter.key_hash,), unit=desk.unit, reserve_collateral=True)
        return await settle(desk, batch, "finish", adapter, waiting=waiting)
    now_ms = (await desk.chain.tip()).time_ms  # the twin says how long is left, where any is
    batch = Batch(moves, payouts, since_ms=now_ms, unit=desk.unit, reserve_collateral=True)
    return await settle(desk, batch, "finish", waiting=waiting)


async def top_up(desk: Desk, view: ChannelView, amount: int) -> Settled:
    """Add *amount* of the asset; the desk's wallet is the consumer's."""
    return await _by_consumer(desk, Batch((Move(view.utxo, TopUp(amount)),)), "top up")


async def close_channel(desk: Desk, view: ChannelView) -> Settled:
    """Start the close period; after it anybody may finish. The desk's wallet is the consumer's."""
    tip = await desk.chain.tip()
    batch = plans.closing_batch(
        view.utxo, desk.wallet.signer.key_hash, tip.time_ms + CLOSE_WITHIN_MS
    )
    return await _by_consumer(desk, batch, "close")


async def _by_consumer(desk: Desk, batch: Batch, purpose: str) -> Settled:
    whole = Batch(
        batch.moves, {}, (desk.wallet.signer.key_hash,), until_ms=batch.until_ms, unit=desk.unit
    )
    return await settle(desk, whole, purpose)


async def deploy(desk: Desk) -> Sent | None:
    """Reference scripts and stake registration, once per chain and asset; None if all is there."""
    snapshot, funds, fresh = await desk.look()
    if snapshot.deployment is not None and snapshot.rewards is not None:
        return None
    unsigned = await desk.finish(plans.deploy(snapshot, funds), fresh)
    return await desk.send(unsigned, "deploy")


async def pay(desk: Desk, outputs: Sequence[Out], purpose: str = "pay") -> Sent:
    """A plain payment from the desk's wallet."""
    snapshot, funds, _ = await desk.look()
    return await desk.send(plans.pay(snapshot, funds, outputs).finish(), purpose)
