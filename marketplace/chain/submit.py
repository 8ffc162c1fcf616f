"""Sending: the id is stored before the bytes leave, and the same bytes are sent until they are in.

A transaction is a row in a :class:`TransactionLog` from before it is first sent. A crash at any
point leaves either no row (nothing was sent) or a row whose bytes may be sent again: the ledger
takes them once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from marketplace.chain import txbytes
from marketplace.chain.balance import Signed
from marketplace.chain.connect import ChainReader
from marketplace.chain.errors import TxRefused
from marketplace.chain.utxo import OutRef, Utxo
from marketplace.domain.transaction import TRANSACTION, TxEvent, TxState


@dataclass(frozen=True)
class TxRecord:
    """One transaction of ours. *purpose* is for people; *height* is its block's, once seen."""

    tx_id: bytes
    cbor: bytes
    purpose: str
    state: TxState = TxState.BUILT
    height: int | None = None

    def step(self, event: TxEvent, height: int | None = None) -> TxRecord:
        """After *event*."""
        return replace(self, state=TRANSACTION.step(self.state, event), height=height)

    @property
    def inputs(self) -> tuple[OutRef, ...]:
        """What it spends."""
        return txbytes.inputs_of(self.cbor)

    @property
    def made(self) -> tuple[Utxo, ...]:
        """What it makes."""
        return txbytes.outputs_of(self.cbor)

    @property
    def until(self) -> int | None:
        """The slot from which it can be in no block any more."""
        return txbytes.until_of(self.cbor)


class TransactionLog(Protocol):
    """Where transactions are kept. Both writes are durable when they return."""

    async def put(self, record: TxRecord) -> None:
        """Insert or replace by ``tx_id``."""
        ...

    async def pending(self) -> Sequence[TxRecord]:
        """Every record that is neither FINAL nor EXPIRED, oldest first."""
        ...


class MemoryLog:
    """For one process that may forget: a command that waits for its own transaction."""

    def __init__(self) -> None:
        self.records: dict[bytes, TxRecord] = {}

    async def put(self, record: TxRecord) -> None:
        """Keep it."""
        self.records[record.tx_id] = record

    async def pending(self) -> Sequence[TxRecord]:
        """What is not over."""
        return [r for r in self.records.values() if not TRANSACTION.is_terminal(r.state)]


class FileLog(MemoryLog):
    """A file of JSON lines, fsynced at every write: a watchtower's or a settler's own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(line)

    async def put(self, record: TxRecord) -> None:
        """Append, reach the disk, then keep."""
        await anyio.to_thread.run_sync(self._append, record)
        await super().put(record)

    def _append(self, record: TxRecord) -> None:
        row = [
            record.tx_id.hex(),
            record.cbor.hex(),
            record.purpose,
            record.state.name,
            record.height,
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, line: str) -> None:
        try:
            tx_id, cbor, purpose, state, height = json.loads(line)
        except ValueError:  # a line cut short by a crash was never acted on
            return
        record = TxRecord(
            bytes.fromhex(tx_id), bytes.fromhex(cbor), purpose, TxState[state], height
        )
        self.records[record.tx_id] = record


@dataclass(frozen=True)
class Sent:
    """A transaction that a node accepted."""

    tx_id: bytes
    fee: int
    size: int
    made: tuple[Utxo, ...]
    inputs: tuple[OutRef, ...]


async def send(chain: ChainReader, log: TransactionLog, signed: Signed, purpose: str) -> Sent:
    """Store, then submit.

    :class:`TxRefused` says whether it was a conflict; the record is then EXPIRED. On a
    :class:`ChainFault` it stays as it is and :class:`~marketplace.chain.follow.Follower` sends it again.
    """
    await send_bytes(chain, log, signed.bytes, purpose)
    return Sent(signed.tx_id, signed.fee, signed.size, signed.made, signed.inputs)


async def send_bytes(chain: ChainReader, log: TransactionLog, tx: bytes, purpose: str) -> bytes:
    """:func:`send` for signed bytes from elsewhere (a wallet); the transaction's id."""
    record = TxRecord(txbytes.split(tx).tx_id, tx, purpose)
    await log.put(record)
    try:
        await chain.submit(tx)
    except TxRefused as refused:
        if await chain.transaction(record.tx_id) is None:
            conflict = bool(await spent_elsewhere(chain, record))
            await log.put(record.step(TxEvent.IMPOSSIBLE))
            raise TxRefused(str(refused), conflict=conflict) from refused
    await log.put(record.step(TxEvent.SENT))
    return record.tx_id


async def spent_elsewhere(chain: ChainReader, record: TxRecord) -> list[OutRef]:
    """Its inputs that another transaction has spent."""
    gone: list[OutRef] = []
    for ref in record.inputs:
        output = await chain.output(ref)
        if output is not None and output.spent_by not in (None, record.tx_id):
            gone.append(ref)
    return gone
