"""The adapter's own transactions, kept in its journal from before they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio.to_thread

from adapter.journal.journal import Journal, StoredTx
from marketplace.chain.node.submit import TxRecord
from marketplace.domain.money.transaction import TxState


class JournalLog:
    """``TransactionLog`` in the adapter's journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def put(self, record: TxRecord) -> None:
        """Durable when it returns."""
        row = StoredTx(record.tx_id, record.cbor, record.purpose, record.state.name, record.height)
        await anyio.to_thread.run_sync(self._journal.put_transaction, row)

    async def waiting_ends(self) -> dict[bytes, int]:
        """Since when each channel's end waits for others', ms of the chain's clock."""
        return await anyio.to_thread.run_sync(self._journal.waiting_ends)

    async def put_waiting_ends(self, since: Mapping[bytes, int]) -> None:
        """Durable when it returns."""
        await anyio.to_thread.run_sync(self._journal.put_waiting_ends, dict(since))

    async def find(self, tx_id: bytes) -> TxRecord | None:
        """The record of one transaction, over or not."""
        row = await anyio.to_thread.run_sync(self._journal.transaction, tx_id)
        if row is None:
            return None
        return TxRecord(row.id, row.body, row.purpose, TxState[row.state], row.height)

    async def pending(self) -> Sequence[TxRecord]:
        """Every record that is neither FINAL nor EXPIRED, oldest first."""
        return await self._records((TxState.FINAL.name, TxState.EXPIRED.name))

    async def known(self) -> Sequence[TxRecord]:
        """Every record that the journal still has."""
        return await self._records(())

    async def _records(self, without: tuple[str, ...]) -> Sequence[TxRecord]:
        rows = await anyio.to_thread.run_sync(self._journal.transactions, without)
        return [
            TxRecord(row.id, row.body, row.purpose, TxState[row.state], row.height) for row in rows
        ]
