"""Following our transactions to their end: seen, deep, vanished by a rollback, or impossible.

One look asks the chain once per unfinished transaction. A vanished one is sent again with the same
bytes; one whose slot has passed, or whose inputs another transaction took, is EXPIRED, and whoever
planned it plans anew from the chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from marketplace.chain.errors import ChainFault, TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import CONSENT, TransactionLog, TxRecord, spent_elsewhere
from marketplace.chain.transaction.snapshot import Tip
from marketplace.domain.money.transaction import (
    FINAL_DEPTH,
    TxEvent,
    TxState,
    depth,
    looked_at,
)


@dataclass(frozen=True)
class Change:
    """A record that moved, and by what."""

    record: TxRecord
    event: TxEvent


class Follower:
    """Moves every pending record of *log* by what the chain says. *final_depth* is in blocks."""

    def __init__(
        self, chain: ChainReader, log: TransactionLog, *, final_depth: int = FINAL_DEPTH
    ) -> None:
        self._chain = chain
        self._log = log
        self._final_depth = final_depth

    async def look(self) -> list[Change]:
        """One pass; what moved. :class:`ChainFault` if the chain cannot be asked at all."""
        records = await self._log.pending()
        if not records:
            return []
        tip = await self._chain.tip()
        changes: list[Change] = []
        for record in records:
            changes += await self._look_at(record, tip)
        return changes

    async def wait(self, tx_id: bytes, blocks: int = 1, *, poll_s: float = 1.0) -> int:
        """The height of its block once *blocks* hold it; :class:`TxRefused` if it expires.

        Looks after every pending record meanwhile; deadlines are the caller's.
        """
        kept = await self._keeps(tx_id)
        while True:
            included = await self._chain.transaction(tx_id)
            if included is not None:
                tip = await self._chain.tip()
                if depth(tip.height, included.height) >= blocks:
                    await self.look()
                    return included.height
            elif kept:
                await self.look()
                kept = await self._keeps(tx_id)
                if not kept and await self._chain.transaction(tx_id) is None:
                    raise TxRefused("the transaction can never be included", conflict=True)
            await anyio.sleep(poll_s)

    async def _keeps(self, tx_id: bytes) -> bool:
        return any(record.tx_id == tx_id for record in await self._log.pending())

    async def _look_at(self, record: TxRecord, tip: Tip) -> list[Change]:
        included = await self._chain.transaction(record.tx_id)
        height = included.height if included is not None else None
        blocks = max(1, depth(tip.height, height)) if height is not None else 0
        dead = height is None and record.until is not None and tip.slot >= record.until
        changes: list[Change] = []
        for event in looked_at(record.state, blocks, dead=dead, final_depth=self._final_depth):
            same = record.state is TxState.SEEN and record.height == height
            if event is not TxEvent.INCLUDED or not same:
                record = await self._move(record, event, changes, height)
        if height is None and not dead:
            await self._send_again(record, changes)
        return changes

    async def _send_again(self, record: TxRecord, changes: list[Change]) -> None:
        """Submit a record's bytes once more; a node that has them refuses, which says nothing."""
        if record.purpose == CONSENT:  # its sender's to send; its inputs are too many to look at
            return
        try:
            await self._chain.submit(record.cbor)
        except TxRefused:
            if await spent_elsewhere(self._chain, record):
                await self._move(record, TxEvent.IMPOSSIBLE, changes)
            return
        except ChainFault:
            return
        if record.state is not TxState.SUBMITTED:
            await self._move(record, TxEvent.SENT, changes)

    async def _move(
        self, record: TxRecord, event: TxEvent, changes: list[Change], height: int | None = None
    ) -> TxRecord:
        moved = record.step(event, height)
        await self._log.put(moved)
        changes.append(Change(moved, event))
        return moved
