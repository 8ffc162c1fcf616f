"""The adapter's books, written from what its own door to the chain shows, to the lovelace.

Whose transaction it was does not matter: what left our channels, what the payout got and what the
fee key lost is read from inputs and outputs, so that a market cannot tell of money that never came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio.to_thread
import structlog

from adapter.journal.payments import Payment, Payments
from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.node.answers import Moves
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import FOREIGN, TxRecord
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.errors import Malformed
from marketplace.domain.money.transaction import FINAL_DEPTH

OTHERS: Final = "settled by others"
_MOST_STEPS: Final = 200

_log = structlog.get_logger("adapter.accounts")


class Accounts:
    """*payout* is an address, *fees* those of our own keys; *unit* the channels' asset."""

    def __init__(
        self, chain: ChainReader, payments: Payments, payout: bytes, fees: frozenset[bytes],
        unit: bytes,
    ) -> None:  # fmt: skip
        self._chain = chain
        self._payments = payments
        self._payout = payout
        self._fees = fees
        self._unit = unit
        self._checked = -1
        self._sent: dict[bytes, TxRecord] = {}

    @property
    def waiting(self) -> bool:
        """Whether anything that we sent is to be booked."""
        return bool(self._sent)

    def sent(self, records: Iterable[TxRecord]) -> None:
        """Our own transactions, to be booked once a block is seen to hold them."""
        for record in records:
            if record.purpose not in FOREIGN and record.height is not None:
                self._sent[record.tx_id] = record

    async def seen(self, at: ChannelView | ChannelEnded, snapshot: Snapshot) -> None:
        """What was taken from a channel since it was last seen, back to what is known."""
        vk, total, tx = at.session_vk, at.claimed, at.claimed_by
        booked = self._payments.booked(vk)
        if isinstance(at, ChannelEnded) and at.finished_by != tx:
            await self._nothing_taken(at, snapshot)
        for _ in range(_MOST_STEPS):
            if not tx or total <= booked:
                return
            moves = await self._chain.moves(tx)
            before = None if moves is None else self._channel(moves.inputs, vk)
            if moves is None or before is None:
                return  # rolled back meanwhile, or its open: nothing was taken there
            was = datum.read_stage(before.datum or b"").claimed
            if total > was:
                await self._book(tx, moves, snapshot, {vk: total - was})
            total, tx = was, before.ref.tx_id

    async def _nothing_taken(self, ended: ChannelEnded, snapshot: Snapshot) -> None:
        """An end that took nothing may have cost us a fee, and that is this channel's."""
        known = self._payments.get(ended.finished_by)
        moves = await self._chain.moves(ended.finished_by)
        if moves is not None and (known is None or ended.session_vk not in known.channels):
            await self._book(ended.finished_by, moves, snapshot, {ended.session_vk: 0})

    async def settle_up(self, snapshot: Snapshot) -> None:
        """Book what we sent, and take out again what a rollback took out of the chain."""
        for record in list(self._sent.values()):
            known = self._payments.get(record.tx_id)
            moves = await self._chain.moves(record.tx_id) if not (known and known.fee) else None
            if moves is not None:
                await self._book(record.tx_id, moves, snapshot, {}, record)
            del self._sent[record.tx_id]
        height = snapshot.tip.height
        if height == self._checked:
            return
        for one in self._payments.since(height - FINAL_DEPTH):
            if await self._chain.transaction(one.tx) is None:
                _log.warning("a rollback took it", tx=one.tx.hex(), net=one.net)
                await anyio.to_thread.run_sync(self._payments.drop, one.tx)
        self._checked = height

    async def _book(
        self, tx: bytes, moves: Moves, snapshot: Snapshot, taken: dict[bytes, int],
        record: TxRecord | None = None,
    ) -> None:  # fmt: skip
        included = await self._chain.transaction(tx)
        if included is None:
            return
        known = self._payments.get(tx)
        outputs = [o.utxo for o in moves.outputs]
        spent = _lovelace(moves.inputs, self._fees) - _lovelace(outputs, self._fees)
        apart = self._payout not in self._fees
        arrived = self._held(outputs) - self._held(moves.inputs) if apart else 0
        fee = 0 if known is None else known.fee
        purpose = OTHERS if known is None else known.purpose
        if record is not None:
            fee, purpose = txbytes.fee_of(record.cbor), record.purpose
        at_ms = snapshot.ms_at(included.slot)
        row = Payment(tx, at_ms, included.height, purpose, fee, spent, arrived, taken)
        await anyio.to_thread.run_sync(self._payments.put, row)
        _log.info("booked", tx=tx.hex(), purpose=purpose, claimed=row.claimed, fee=fee, net=row.net)

    def _held(self, utxos: Iterable[Utxo]) -> int:
        return sum(u.quantity(self._unit) for u in utxos if u.address == self._payout)

    def _channel(self, utxos: Iterable[Utxo], session_vk: bytes) -> Utxo | None:
        """The one channel of that key that the transaction spends, in the chain's order."""
        for utxo in utxos:
            try:
                found = datum.read_stage(utxo.datum or b"")
            except Malformed:
                continue
            if found.consts.session_vk == session_vk:
                return utxo
        return None


def _lovelace(utxos: Iterable[Utxo], addresses: frozenset[bytes]) -> int:
    return sum(u.lovelace for u in utxos if u.address in addresses)
