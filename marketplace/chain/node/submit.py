"""Sending: the id is stored before the bytes leave, and the same bytes are sent until they are in.

A transaction is a row in a :class:`TransactionLog` from before it is first sent. A crash at any
point leaves either no row (nothing was sent) or a row whose bytes may be sent again: the ledger
takes them once.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread
import structlog

from marketplace import disk
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.transaction.signing import Signed
from marketplace.disk import Files
from marketplace.domain.money.transaction import TRANSACTION, TxEvent, TxState

OPEN: Final = "open"
"""The purpose of a transaction that opens channels."""
CONSENT: Final = "consent"
"""The purpose of one that somebody else built and sends, and that we gave our signature to: kept
without signatures, followed, and never sent by us."""
HANDED: Final = "handed"
"""The purpose of one that its payer signed and handed over, and that we send too: followed, and its
outputs are none of ours to spend."""
FOREIGN: Final = (CONSENT, HANDED)
"""Purposes of transactions that are somebody else's."""
_log = structlog.get_logger(__name__)


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

    async def known(self) -> Sequence[TxRecord]:
        """Every record, oldest first."""
        return list(self.records.values())


_OPENS_KEPT: Final = 200  # finished opens that a rewritten file still names: see `known`


class FileLog(MemoryLog):
    """A file of JSON lines, fsynced at every write: a wallet's, a watchtower's or a settler's own.

    Several processes may share it: each write is made under a lock, and what others wrote is read
    before anything is answered. Finished transactions are dropped when the file grows, but the
    latest opens. A write that fails is cut back and raises :class:`~marketplace.disk.DiskFault`; a
    line at the end that a crash damaged was never acted on and is set aside; one before a readable
    line is a :class:`~marketplace.disk.JournalDamaged`. *files* are the operating system's calls.
    """

    def __init__(self, path: Path, *, compact_above: int = 4 << 20, files: Files = disk.OS) -> None:
        super().__init__()
        self._path = path
        self._compact_above = compact_above
        self._files = files
        self._read_to = 0
        self._file_id: tuple[int, int] | None = None

    async def put(self, record: TxRecord) -> None:
        """Append, reach the disk, then keep."""
        await anyio.to_thread.run_sync(self._append, record)
        await super().put(record)

    async def pending(self) -> Sequence[TxRecord]:
        """What is not over, as every process that shares the file left it."""
        await anyio.to_thread.run_sync(self._catch_up)
        return await super().pending()

    async def known(self) -> Sequence[TxRecord]:
        """The same, and those that are over as far as the file still has them."""
        await anyio.to_thread.run_sync(self._catch_up)
        return await super().known()

    def _append(self, record: TxRecord) -> None:
        with self._locked():
            self._read_new(writing=True)
            known = self.records.get(record.tx_id)
            cbor = None if known is not None and known.cbor == record.cbor else record.cbor.hex()
            row = [record.tx_id.hex(), cbor, record.purpose, record.state.name, record.height]
            rows = disk.Rows(self._path, self._files)
            try:
                rows.add(_lines([row]))
            finally:
                rows.close()
            self.records[record.tx_id] = record
            if self._path.stat().st_size > self._compact_above:
                self._compact()

    def _catch_up(self) -> None:
        with self._locked():
            self._read_new()

    @contextmanager
    def _locked(self) -> Generator[None, None, None]:
        path = self._path.with_suffix(".lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            guard = self._files.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise disk.fault(error, "a log of transactions cannot be locked", path) from error
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield
        finally:
            os.close(guard)

    def _read_new(self, *, writing: bool = False) -> None:
        """What was appended since the last look; from the beginning if the file was replaced. Who
        is *writing* sets a damaged end aside first: nothing may be put behind it.
        """
        if not self._path.exists():
            return
        try:
            at = self._path.stat()
            if self._file_id != (at.st_dev, at.st_ino) or at.st_size < self._read_to:
                self._file_id, self._read_to = (at.st_dev, at.st_ino), 0
                self.records = {}  # a compacted file holds all that is not over
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read()
        except OSError as error:
            raise disk.fault(error, "a log of transactions cannot be read", self._path) from error
        rows, end = disk.good_rows(data, _row, self._path.name)
        for row in rows:
            self._take(row)
        self._read_to += end
        if writing and end < len(data):
            side = disk.set_aside(self._path, self._read_to, self._files)
            _log.warning("log_end_damaged", log=str(self._path), kept=side.name)

    def _take(self, row: _Row) -> None:
        tx_id, cbor, purpose, state, height = row
        known = self.records.get(tx_id)
        raw = cbor if cbor is not None else known.cbor if known else b""
        self.records[tx_id] = TxRecord(tx_id, raw, purpose, state, height)

    def _compact(self) -> None:
        over = [r for r in self.records.values() if TRANSACTION.is_terminal(r.state)]
        kept = {r.tx_id for r in [r for r in over if r.purpose == OPEN][-_OPENS_KEPT:]}
        live = [
            r
            for r in self.records.values()
            if r.tx_id in kept or not TRANSACTION.is_terminal(r.state)
        ]
        rows = [[r.tx_id.hex(), r.cbor.hex(), r.purpose, r.state.name, r.height] for r in live]
        disk.write_whole(self._path, _lines(rows), self._files)
        self.records = {r.tx_id: r for r in live}
        self._file_id = None
        self._compact_above = max(self._compact_above, 2 * self._path.stat().st_size)


_Row = tuple[bytes, bytes | None, str, TxState, int | None]


def _lines(rows: Sequence[Sequence[object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _row(line: bytes) -> _Row:
    """One line; ``ValueError`` if it is none of ours."""
    try:
        tx_id, cbor, purpose, state, height = json.loads(line)
        raw = None if cbor is None else bytes.fromhex(cbor)
        return bytes.fromhex(tx_id), raw, str(purpose), TxState[state], height
    except (TypeError, KeyError) as error:
        raise ValueError(f"no transaction: {error}") from error


@dataclass(frozen=True)
class Sent:
    """A transaction that a node accepted."""

    tx_id: bytes
    fee: int
    size: int
    made: tuple[Utxo, ...]
    inputs: tuple[OutRef, ...]
    bytes: bytes = b""


async def send(chain: ChainReader, log: TransactionLog, signed: Signed, purpose: str) -> Sent:
    """Store, then submit.

    :class:`TxRefused` says whether it was a conflict; the record is then EXPIRED. On a
    :class:`ChainFault` it stays as it is and :class:`~marketplace.chain.node.follow.Follower` sends
    it again.
    """
    await send_bytes(chain, log, signed.bytes, purpose)
    return Sent(signed.tx_id, signed.fee, signed.size, signed.made, signed.inputs, signed.bytes)


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


async def in_flight(log: TransactionLog) -> set[OutRef]:
    """What transactions of ours that are not deep yet spend: nothing else of ours may spend it
    too.
    """
    return {ref for record in await log.pending() for ref in record.inputs}


async def spent_elsewhere(chain: ChainReader, record: TxRecord) -> list[OutRef]:
    """Its inputs that another transaction has spent."""
    gone: list[OutRef] = []
    for ref in record.inputs:
        output = await chain.output(ref)
        if output is not None and output.spent_by not in (None, record.tx_id):
            gone.append(ref)
    return gone
