"""The chain on disk: blocks, transactions, outputs and what explorers ask of them. The devnet's only SQL that writes.

Every write is one transaction, fsynced before it returns (WAL with synchronous=FULL): what was acknowledged survives kill -9 and a
power cut. Rows carry the height at which they appeared, and outputs the height at which they were spent, so that the chain can be read
as of any height and a rollback is a deletion.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2

from contracts.devnet import addresses
from contracts.devnet.engine import Registration
from contracts.devnet.transaction import PLAIN_CERTIFICATES, OutRef, Tx, blake2b

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS block (
    height INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, previous TEXT, slot INTEGER NOT NULL,
    txs INTEGER NOT NULL, size INTEGER NOT NULL, fees INTEGER NOT NULL, output INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tx (
    id TEXT PRIMARY KEY, height INTEGER NOT NULL, position INTEGER NOT NULL, raw BLOB NOT NULL,
    fee INTEGER NOT NULL, deposit INTEGER NOT NULL, UNIQUE (height, position));
CREATE TABLE IF NOT EXISTS output (
    tx TEXT NOT NULL, ix INTEGER NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    address TEXT NOT NULL, payment TEXT NOT NULL, is_script INTEGER NOT NULL, stake TEXT,
    lovelace INTEGER NOT NULL, assets TEXT NOT NULL, datum_hash TEXT, inline_datum TEXT, script_hash TEXT,
    raw BLOB NOT NULL, spent_by TEXT, spent_height INTEGER, PRIMARY KEY (tx, ix)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS output_address ON output (address);
CREATE INDEX IF NOT EXISTS output_payment ON output (payment);
CREATE INDEX IF NOT EXISTS output_stake ON output (stake);
CREATE INDEX IF NOT EXISTS output_spent ON output (spent_by);
CREATE INDEX IF NOT EXISTS output_height ON output (height);
CREATE INDEX IF NOT EXISTS output_spent_height ON output (spent_height);
CREATE TABLE IF NOT EXISTS mint (
    unit TEXT NOT NULL, tx TEXT NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL, quantity INTEGER NOT NULL,
    PRIMARY KEY (unit, tx));
CREATE TABLE IF NOT EXISTS script (hash TEXT PRIMARY KEY, height INTEGER NOT NULL, kind INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS datum (hash TEXT PRIMARY KEY, height INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS redeemer (
    script_hash TEXT, tx TEXT NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL, tag INTEGER NOT NULL,
    ix INTEGER NOT NULL, data_hash TEXT NOT NULL, memory INTEGER NOT NULL, steps INTEGER NOT NULL, PRIMARY KEY (tx, tag, ix));
CREATE TABLE IF NOT EXISTS certificate (
    tx TEXT NOT NULL, ix INTEGER NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    kind INTEGER NOT NULL, stake TEXT, pool TEXT, PRIMARY KEY (tx, ix));
CREATE TABLE IF NOT EXISTS withdrawal (
    tx TEXT NOT NULL, stake TEXT NOT NULL, height INTEGER NOT NULL, lovelace INTEGER NOT NULL, PRIMARY KEY (tx, stake));
CREATE TABLE IF NOT EXISTS reward (height INTEGER NOT NULL, stake TEXT NOT NULL, lovelace INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS mempool (position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, raw BLOB NOT NULL);
"""
_BY_HEIGHT = ("block", "tx", "output", "mint", "script", "datum", "redeemer", "certificate")
_REGISTERS = (0, 7, 11, 12, 13)


@dataclass(frozen=True, slots=True)
class Block:
    """A block's header. slot: seconds since genesis."""

    height: int
    hash: str
    previous: str | None
    slot: int


class Store:
    """One chain in one SQLite file, or in memory if ``path`` is None. Called under the node's lock only."""

    def __init__(self, path: Path | None) -> None:
        self.db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.executescript(_SCHEMA)

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

    def block(self, height: int) -> Block:
        row = self.db.execute("SELECT * FROM block WHERE height = ?", (height,)).fetchone()
        return Block(row["height"], row["hash"], row["previous"], row["slot"])

    def mempool(self) -> list[bytes]:
        return [row["raw"] for row in self.db.execute("SELECT raw FROM mempool ORDER BY position")]

    def transactions(self, above: int, up_to: int) -> list[tuple[int, bytes]]:
        """(height, bytes) of every transaction in blocks above < height <= up_to, in the chain's order."""
        rows = self.db.execute(
            "SELECT height, raw FROM tx WHERE height > ? AND height <= ? AND position >= 0 ORDER BY height, position",
            (above, up_to),
        )
        return [(row["height"], row["raw"]) for row in rows]

    def unspent(self, ref: OutRef) -> bytes | None:
        """The bytes of an output that no block has spent."""
        row = self.db.execute(
            "SELECT raw FROM output WHERE tx = ? AND ix = ? AND spent_height IS NULL", ref
        ).fetchone()
        return None if row is None else row["raw"]

    # --- what a ledger state is made of ---

    def utxos(self, height: int) -> bytes:
        """CBOR map of every output unspent at a height, each with the very bytes that were sent."""
        rows = self.db.execute(
            "SELECT tx, ix, raw FROM output WHERE height <= ? AND (spent_height IS NULL OR spent_height > ?)",
            (height, height),
        )
        return utxo_map([(OutRef(row["tx"], row["ix"]), row["raw"]) for row in rows])

    def registrations(self, height: int) -> list[Registration]:
        """Stake credentials registered at a height, with their rewards."""
        last: dict[str, bool] = {}
        for row in self.db.execute(
            "SELECT kind, stake FROM certificate WHERE height <= ? AND stake IS NOT NULL ORDER BY height, position, ix",
            (height,),
        ):
            if row["kind"] in (*_REGISTERS, 1, 8):
                last[row["stake"]] = row["kind"] in _REGISTERS
        found: list[Registration] = []
        for stake in (stake for stake, registered in last.items() if registered):
            is_script, credential = addresses.stake_credential(stake)
            kind = "script" if is_script else "key"
            found.append(Registration(kind, credential, self.rewards(stake, height)))
        return found

    def rewards(self, stake: str, height: int) -> int:
        """Lovelace that a stake address may withdraw at a height."""
        return self._sum("reward", stake, height) - self._sum("withdrawal", stake, height)

    def first_unusual_certificate(self, height: int) -> int | None:
        """Height of the first certificate that is no plain (de)registration: from there a state needs the transactions themselves."""
        marks = ",".join(map(str, PLAIN_CERTIFICATES))
        query = f"SELECT min(height) AS height FROM certificate WHERE height <= ? AND kind NOT IN ({marks})"
        return self.db.execute(query, (height,)).fetchone()["height"]

    # --- writes ---

    def begin(self, block: Block, genesis: OutRef, raw_output: bytes, meta: dict[str, int]) -> None:
        """Writes the genesis block with its single output."""
        with self._write():
            for key, value in meta.items():
                self._set_meta(key, value)
            self._block(block, 0, 0, 0, 0)
            address, lovelace = cbor2.loads(raw_output)
            self._output(
                genesis, block.height, -1, address, lovelace, {}, None, None, None, raw_output
            )

    def add_to_mempool(self, tx: Tx) -> None:
        with self._write():
            self.db.execute("INSERT INTO mempool (id, raw) VALUES (?, ?)", (tx.id, tx.raw))

    def append(
        self,
        block: Block,
        txs: Sequence[Tx],
        pool: Sequence[Tx],
        rewards: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Appends a block of these transactions and leaves exactly ``pool`` in the mempool. rewards: (stake address, lovelace)."""
        with self._write():
            output = sum(one.lovelace for tx in txs for one in tx.outputs)
            size, fees = sum(len(tx.raw) for tx in txs), sum(tx.fee for tx in txs)
            self._block(block, len(txs), size, fees, output)
            for position, tx in enumerate(txs):
                self._transaction(block.height, position, tx)
            self.db.executemany(
                "INSERT INTO reward VALUES (?, ?, ?)", [(block.height, *one) for one in rewards]
            )
            self._set_mempool(pool)

    def truncate(self, height: int, pool: Sequence[Tx], fork: int) -> None:
        """Takes back every block above a height; the mempool becomes ``pool``. fork: how many rollbacks there have been."""
        with self._write():
            for table in (*_BY_HEIGHT, "withdrawal", "reward"):
                self.db.execute(f"DELETE FROM {table} WHERE height > ?", (height,))
            self.db.execute(
                "UPDATE output SET spent_by = NULL, spent_height = NULL WHERE spent_height > ?",
                (height,),
            )
            self._set_mempool(pool)
            self._set_meta("fork", fork)

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

    def _block(self, block: Block, txs: int, size: int, fees: int, output: int) -> None:
        row = (block.height, block.hash, block.previous, block.slot, txs, size, fees, output)
        self.db.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _transaction(self, height: int, position: int, tx: Tx) -> None:
        consumed = 0
        for ref in tx.inputs:
            row = self.db.execute(
                "UPDATE output SET spent_by = ?, spent_height = ? WHERE tx = ? AND ix = ? AND spent_by IS NULL RETURNING lovelace",
                (tx.id, height, *ref),
            ).fetchone()
            if row is None:
                raise RuntimeError(f"index and ledger disagree about {ref.tx}#{ref.ix}")
            consumed += row["lovelace"]
        produced = sum(one.lovelace for one in tx.outputs) + tx.fee + tx.donation
        # The ledger has checked the balance, so what is missing from it is the deposit (negative: a refund).
        deposit = consumed + sum(amount for _, amount in tx.withdrawals) - produced
        row = (tx.id, height, position, tx.raw, tx.fee, deposit)
        self.db.execute("INSERT INTO tx VALUES (?, ?, ?, ?, ?, ?)", row)
        for ix, one in enumerate(tx.outputs):
            inline = None if one.inline_datum is None else one.inline_datum.hex()
            script = None if one.script is None else one.script.hash
            self._output(
                OutRef(tx.id, ix),
                height,
                position,
                one.address,
                one.lovelace,
                one.assets,
                one.datum_hash,
                inline,
                script,
                one.raw,
            )
        self._particulars(height, position, tx)

    def _output(
        self,
        ref: OutRef,
        height: int,
        position: int,
        address: bytes,
        lovelace: int,
        assets: dict[str, int],
        datum_hash: str | None,
        inline: str | None,
        script: str | None,
        raw: bytes,
    ) -> None:
        at = addresses.describe(address)
        row: tuple[Any, ...] = (*ref, height, position, at.text, at.payment, at.is_script)
        row += (at.stake_address, lovelace, json.dumps(assets), datum_hash, inline, script, raw)
        self.db.execute(
            "INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", row
        )

    def _particulars(self, height: int, position: int, tx: Tx) -> None:
        """Mints, scripts, datums, redeemers, certificates and withdrawals of a transaction."""
        many = self.db.executemany
        many(
            "INSERT INTO mint VALUES (?, ?, ?, ?, ?)",
            [(unit, tx.id, height, position, quantity) for unit, quantity in tx.mint.items()],
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
            [
                (
                    self._script_of(tx, one.tag, one.index),
                    tx.id,
                    height,
                    position,
                    one.tag,
                    one.index,
                    blake2b(one.data),
                    one.memory,
                    one.steps,
                )
                for one in tx.redeemers
            ],
        )
        for ix, one in enumerate(tx.certificates):
            stake = one.credential and addresses.stake_address(one.credential[1], one.credential[0])
            pool = one.pool and addresses.pool_id(one.pool)
            row = (tx.id, ix, height, position, one.kind, stake, pool)
            self.db.execute("INSERT INTO certificate VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for account, lovelace in tx.withdrawals:
            stake = addresses.stake_address(account[1:], is_script=bool(account[0] & 0x10))
            row = (tx.id, stake, height, lovelace)
            self.db.execute("INSERT INTO withdrawal VALUES (?, ?, ?, ?)", row)

    def _script_of(self, tx: Tx, tag: int, index: int) -> str | None:
        """The hash of the script that a redeemer is for: redeemers point into the sorted parts of the body."""
        if tag == 0:
            row = self.db.execute(
                "SELECT payment FROM output WHERE tx = ? AND ix = ?", tx.inputs[index]
            ).fetchone()
            return row["payment"]
        if tag == 1:
            return sorted({unit[:56] for unit in tx.mint})[index]
        if tag == 2:
            credential = tx.certificates[index].credential
            return None if credential is None else credential[1].hex()
        return tx.withdrawals[index][0][1:].hex() if tag == 3 else None

    def _sum(self, table: str, stake: str, height: int) -> int:
        query = f"SELECT coalesce(sum(lovelace), 0) AS total FROM {table} WHERE stake = ? AND height <= ?"
        return self.db.execute(query, (stake, height)).fetchone()["total"]


def utxo_map(entries: Sequence[tuple[OutRef, bytes]]) -> bytes:
    """A CBOR map of inputs to outputs whose outputs keep their bytes."""
    count = cbor2.dumps(len(entries))
    parts = [bytes([count[0] | 0xA0]), count[1:]]
    for ref, raw in entries:
        parts += [cbor2.dumps([bytes.fromhex(ref.tx), ref.ix]), raw]
    return b"".join(parts)
