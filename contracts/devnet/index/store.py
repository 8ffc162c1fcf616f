"""The chain on disk: blocks, transactions, outputs and what explorers ask of them. The devnet's
only SQL that writes.

Every write is one transaction, fsynced before it returns (WAL with synchronous=FULL): what was
acknowledged survives kill -9 and a power cut. Rows carry the height at which they appeared, and
outputs the height at which they were spent, so that the chain can be read as of any height and a
rollback is a deletion.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cbor2

from contracts.devnet import faucet
from contracts.devnet.decoding import read
from contracts.devnet.index.rows import Entry, Row, Source, Unstorable, entry, output_row
from contracts.devnet.index.schema import BY_HEIGHT, SCHEMA, VERSION, ExactSum
from contracts.devnet.transaction import Malformed, OutRef, Tx, blake2b

# No block stands there: where rows are put that are taken back at once.
_NOWHERE = 2**62


class Unwritable(Exception):
    """A block holds a transaction that cannot be written. tx: its id."""

    def __init__(self, tx: str, why: Exception) -> None:
        super().__init__(f"{tx}: {type(why).__name__}: {why}")
        self.tx = tx


class StateTooOld(ValueError):
    """A state on disk cannot be read by this devnet."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block's header. slot: seconds since genesis."""

    height: int
    hash: str
    previous: str | None
    slot: int


class Store:
    """One chain in one SQLite file, or in memory if ``path`` is None. Called under the node's lock
    only.
    """

    def __init__(self, path: Path | None) -> None:
        self.db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.create_aggregate("exact_sum", 1, ExactSum)  # pyright: ignore[reportArgumentType]
        try:
            self._made_ours()
        except StateTooOld:
            self.db.close()
            raise

    def _made_ours(self) -> None:
        """The tables of this version, whatever devnet wrote the file."""
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        with self._write():
            if version != VERSION and self._exists("block"):
                self._index_again()
            self._create()
            self.db.execute(f"PRAGMA user_version = {VERSION}")

    def _create(self) -> None:
        for statement in SCHEMA.split(";"):
            self.db.execute(statement)

    def _exists(self, table: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self.db.execute(query, (table,)).fetchone() is not None

    def _index_again(self) -> None:
        """Makes every table anew from the blocks' headers, the transactions' bytes and the rewards:
        an older devnet had others.

        Raises ``StateTooOld`` if that devnet took what this one's index has no place for.
        """
        blocks, rewards, pool, (genesis,) = (
            self.db.execute(query).fetchall()
            for query in (
                "SELECT height, hash, previous, slot FROM block ORDER BY height",
                "SELECT height, stake, lovelace FROM reward ORDER BY rowid",
                "SELECT raw FROM mempool ORDER BY position",
                "SELECT tx, ix, raw FROM output WHERE position = -1",
            )
        )
        txs: dict[int, list[bytes]] = {}
        for row in self.db.execute("SELECT height, raw FROM tx ORDER BY height, position"):
            txs.setdefault(row["height"], []).append(row["raw"])
        for table in (*BY_HEIGHT, "withdrawal", "reward", "mempool"):
            self.db.execute(f"DROP TABLE {table}")
        self._create()
        try:
            self._begin(Block(*blocks[0]), OutRef(genesis["tx"], genesis["ix"]), genesis["raw"])
            for row in blocks[1:]:
                self._open(Block(*row), [read(raw) for raw in txs.get(row["height"], [])])
            self.db.executemany("INSERT INTO reward VALUES (?, ?, ?)", map(tuple, rewards))
            self._set_mempool([read(row["raw"]) for row in pool])
        except (Unwritable, Unstorable, Malformed) as problem:
            raise StateTooOld(
                "this state was written by an older devnet and holds a transaction that cannot be"
                f" indexed ({problem}): start with an empty folder"
            ) from problem

    def _open(self, block: Block, txs: Sequence[Tx]) -> None:
        """A block of transactions that may spend one another's outputs."""
        within: dict[OutRef, Source] = {}
        entries: list[Entry] = []

        def resolve(ref: OutRef) -> Source | None:
            return within.get(ref) or self.source(ref)

        for tx in txs:
            entries.append(entry(tx, resolve))
            within.update(entries[-1].sources())
        self._append(block, entries)

    def close(self) -> None:
        self.db.close()

    # --- facts about the chain ---

    def meta(self, key: str) -> int | None:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row["value"]

    def set_meta(self, key: str, value: int) -> None:
        with self._write():
            self._set_meta(key, value)

    def tip(self) -> Block | None:
        row = self.db.execute("SELECT * FROM block ORDER BY height DESC LIMIT 1").fetchone()
        return row and Block(row["height"], row["hash"], row["previous"], row["slot"])

    def height_at(self, slot: int) -> int:
        """The newest block that was there at a slot; the first one's before there was another."""
        found = self.db.execute("SELECT max(height) FROM block WHERE slot <= ?", (slot,)).fetchone()
        return found[0] or 0

    def block(self, height: int) -> Block:
        row = self.db.execute("SELECT * FROM block WHERE height = ?", (height,)).fetchone()
        return Block(row["height"], row["hash"], row["previous"], row["slot"])

    def mempool(self) -> list[bytes]:
        return [row["raw"] for row in self.db.execute("SELECT raw FROM mempool ORDER BY position")]

    def transactions(self, above: int, up_to: int) -> list[tuple[int, bytes]]:
        """(height, bytes) of every transaction in blocks above < height <= up_to, in the chain's
        order.
        """
        rows = self.db.execute(
            "SELECT height, raw FROM tx WHERE height > ? AND height <= ? ORDER BY height, position",
            (above, up_to),
        )
        return [(row["height"], row["raw"]) for row in rows]

    def source(self, ref: OutRef) -> Source | None:
        """Of an output that no block has spent."""
        row = self.db.execute(
            "SELECT lovelace, payment FROM output WHERE tx = ? AND ix = ? AND spent_height IS NULL",
            ref,
        ).fetchone()
        return None if row is None else Source(row["lovelace"], row["payment"])

    def unspent(self, ref: OutRef) -> bytes | None:
        """The bytes of an output that no block has spent."""
        row = self.db.execute(
            "SELECT raw FROM output WHERE tx = ? AND ix = ? AND spent_height IS NULL", ref
        ).fetchone()
        return None if row is None else row["raw"]

    def largest(self, address: str) -> faucet.Coin | None:
        """The output with the most lovelace at an address that no block has spent."""
        row = self.db.execute(
            "SELECT tx, ix, lovelace FROM output WHERE address = ? AND spent_height IS NULL ORDER"
            " BY lovelace DESC LIMIT 1",
            (address,),
        ).fetchone()
        return None if row is None else faucet.Coin(OutRef(row["tx"], row["ix"]), row["lovelace"])

    # --- what a ledger state is made of ---

    def utxos(self, height: int) -> bytes:
        """CBOR map of every output unspent at a height, each with the very bytes that were sent."""
        rows = self.db.execute(
            "SELECT tx, ix, raw FROM output WHERE height <= ? AND (spent_height IS NULL OR"
            " spent_height > ?)",
            (height, height),
        )
        return utxo_map([(OutRef(row["tx"], row["ix"]), row["raw"]) for row in rows])

    def governing(self, height: int) -> list[tuple[int, bytes]]:
        """(height, bytes) of the transactions that changed the register of accounts, pools and
        DReps, in the chain's order.
        """
        rows = self.db.execute(
            "SELECT height, raw FROM tx WHERE governs AND height <= ? ORDER BY height, position",
            (height,),
        )
        return [(row["height"], row["raw"]) for row in rows]

    def rewarded(self, height: int) -> list[tuple[int, str, int]]:
        """(height, stake address, lovelace) of every reward that was credited, in the chain's
        order.
        """
        rows = self.db.execute(
            "SELECT * FROM reward WHERE height <= ? ORDER BY height, rowid", (height,)
        )
        return [(row["height"], row["stake"], row["lovelace"]) for row in rows]

    # --- writes ---

    def begin(self, block: Block, genesis: OutRef, raw_output: bytes, meta: dict[str, int]) -> None:
        """Writes the genesis block with its single output."""
        with self._write():
            for key, value in meta.items():
                self._set_meta(key, value)
            self._begin(block, genesis, raw_output)

    def _begin(self, block: Block, genesis: OutRef, raw_output: bytes) -> None:
        self._block(block, [], 0)
        address, lovelace = cbor2.loads(raw_output)
        row = output_row(genesis.ix, address, lovelace, {}, raw_output)
        self._output(genesis.tx, block.height, -1, row)

    def rehearse(self, one: Entry) -> None:
        """Writes a transaction's rows and takes them back; then, what waits can be written. Raises
        ``Unstorable``.
        """
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._rows(_NOWHERE, 0, one)
        except (sqlite3.Error, OverflowError, ValueError) as problem:
            raise Unstorable(f"{type(problem).__name__}: {problem}") from problem
        finally:
            self.db.execute("ROLLBACK")

    def add_to_mempool(self, tx: Tx) -> None:
        with self._write():
            self.db.execute("INSERT INTO mempool (id, raw) VALUES (?, ?)", (tx.id, tx.raw))

    def append(
        self,
        block: Block,
        entries: Sequence[Entry],
        pool: Sequence[Tx],
        rewards: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Appends a block of these transactions and leaves exactly ``pool`` in the mempool.
        rewards: (stake address, lovelace).

        Raises ``Unwritable`` with the first that cannot be written; then nothing is.
        """
        with self._write():
            self._append(block, entries)
            self.db.executemany(
                "INSERT INTO reward VALUES (?, ?, ?)", [(block.height, *one) for one in rewards]
            )
            self._set_mempool(pool)

    def _append(self, block: Block, entries: Sequence[Entry]) -> None:
        self._block(block, [one.tx for one in entries], sum(one.fee for one in entries))
        for position, one in enumerate(entries):
            try:
                self._spend(block.height, one)
                self._rows(block.height, position, one)
            except (sqlite3.IntegrityError, OverflowError, ValueError) as problem:
                raise Unwritable(one.tx.id, problem) from problem

    def truncate(self, height: int, pool: Sequence[Tx], fork: int) -> None:
        """Takes back every block above a height; the mempool becomes ``pool``. fork: how many
        rollbacks there have been.
        """
        with self._write():
            for table in (*BY_HEIGHT, "withdrawal", "reward"):
                self.db.execute(f"DELETE FROM {table} WHERE height > ?", (height,))
            self.db.execute(
                "UPDATE output SET spent_by = NULL, spent_height = NULL WHERE spent_height > ?",
                (height,),
            )
            self._set_mempool(pool)
            self._set_meta("fork", fork)

    def set_mempool(self, pool: Sequence[Tx]) -> None:
        with self._write():
            self._set_mempool(pool)

    @contextmanager
    def _write(self) -> Generator[None, None, None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def _set_meta(self, key: str, value: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _set_mempool(self, pool: Sequence[Tx]) -> None:
        self.db.execute("DELETE FROM mempool")
        self.db.executemany(
            "INSERT INTO mempool (id, raw) VALUES (?, ?)", [(tx.id, tx.raw) for tx in pool]
        )

    def _block(self, block: Block, txs: Sequence[Tx], fees: int) -> None:
        # As text: a block's outputs may come to more than SQLite's integers hold.
        output = str(sum(one.lovelace for tx in txs for _, one in tx.made))
        size = sum(len(tx.raw) for tx in txs)
        row = (block.height, block.hash, block.previous, block.slot, len(txs), size, fees, output)
        self.db.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _spend(self, height: int, entry: Entry) -> None:
        for ref in entry.tx.spent:
            done = self.db.execute(
                "UPDATE output SET spent_by = ?, spent_height = ? WHERE tx = ? AND ix = ? AND"
                " spent_by IS NULL",
                (entry.tx.id, height, *ref),
            )
            if done.rowcount != 1:
                raise Unstorable(f"index and ledger disagree about {ref.tx}#{ref.ix}")

    def _rows(self, height: int, position: int, entry: Entry) -> None:
        """Everything that a transaction adds; of one whose script fails, its collateral return
        alone.
        """
        tx, at, many = entry.tx, (height, position), self.db.executemany
        governs = bool(tx.valid and (tx.certificates or tx.withdrawals or tx.proposals))
        row = (tx.id, *at, tx.raw, entry.fee, entry.deposit, governs)
        self.db.execute("INSERT INTO tx VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for one in entry.outputs:
            self._output(tx.id, height, position, one)
        if not tx.valid:
            return
        many(
            "INSERT INTO mint VALUES (?, ?, ?, ?, ?)",
            [(unit, tx.id, *at, quantity) for unit, quantity in entry.mints],
        )
        many(
            "INSERT OR IGNORE INTO script VALUES (?, ?, ?, ?)",
            [(one.hash, height, one.kind, one.body) for one in tx.scripts],
        )
        many(
            "INSERT OR IGNORE INTO datum VALUES (?, ?, ?)",
            [(blake2b(one), height, one) for one in tx.datums],
        )
        many(
            "INSERT INTO redeemer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(script, tx.id, *at, *rest) for script, *rest in entry.redeemers],
        )
        many(
            "INSERT INTO certificate VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(tx.id, index, *at, *rest) for index, *rest in entry.certificates],
        )
        many(
            "INSERT INTO withdrawal VALUES (?, ?, ?, ?)",
            [(tx.id, stake, height, amount) for stake, amount in entry.withdrawals],
        )

    def _output(self, tx: str, height: int, position: int, row: Row) -> None:
        index, *rest = row
        self.db.execute(
            "INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
            (tx, index, height, position, *rest),
        )


def utxo_map(entries: Sequence[tuple[OutRef, bytes]]) -> bytes:
    """A CBOR map of inputs to outputs whose outputs keep their bytes."""
    count = cbor2.dumps(len(entries))
    parts = [bytes([count[0] | 0xA0]), count[1:]]
    for ref, raw in entries:
        parts += [cbor2.dumps([bytes.fromhex(ref.tx), ref.ix]), raw]
    return b"".join(parts)
