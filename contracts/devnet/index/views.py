"""The chain as of one height, read from the index: what an indexer that has seen just these blocks
would know.

Rows are ``sqlite3.Row``; the face turns them into Blockfrost's JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.devnet import faucet
from contracts.devnet.decoding import read
from contracts.devnet.transaction import OutRef, Tx

Row = sqlite3.Row
_UNSPENT = "height <= :h AND (spent_height IS NULL OR spent_height > :h)"


@dataclass(frozen=True, slots=True)
class Page:
    """Blockfrost's pagination: up to 100 items a page, pages from 1, oldest first unless
    ``descending``.
    """

    count: int = 100
    number: int = 1
    descending: bool = False

    @property
    def sql(self) -> str:
        return f" LIMIT {self.count} OFFSET {(self.number - 1) * self.count}"

    @property
    def way(self) -> str:
        return "DESC" if self.descending else "ASC"


@dataclass(frozen=True, slots=True)
class Chained:
    """A transaction in a block."""

    tx: Tx
    row: Row
    block: Row


class View:
    """Reads as of ``height``; later blocks do not exist. system_start: POSIX seconds of slot 0."""

    def __init__(self, db: sqlite3.Connection, height: int, system_start: int) -> None:
        self._db = db
        self.height = height
        self.system_start = system_start

    # --- blocks ---

    def block(self, name: str | int) -> Row | None:
        """A block by height or hash, or the newest one for "latest"."""
        if name == "latest":
            name = self.height
        column = "height" if str(name).isdecimal() and len(str(name)) < 19 else "hash"
        return self._one(f"SELECT * FROM block WHERE height <= :h AND {column} = :name", name=name)

    def block_at_slot(self, slot: int) -> Row | None:
        return self._one(
            "SELECT * FROM block WHERE height <= :h AND slot = :slot ORDER BY height DESC",
            slot=slot,
        )

    def blocks(self, above: int, below: int, page: Page) -> list[Row]:
        """Blocks with above < height < below."""
        return self._all(
            "SELECT * FROM block WHERE height <= :h AND height > :above AND height < :below ORDER"
            f" BY height {page.way}{page.sql}",
            above=above,
            below=below,
        )

    def block_txs(self, height: int, page: Page) -> list[str]:
        rows = self._all(
            "SELECT id FROM tx WHERE height <= :h AND height = :height ORDER BY position"
            f" {page.way}{page.sql}",
            height=height,
        )
        return [row["id"] for row in rows]

    def totals(self, first_slot: int, last_slot: int) -> Row:
        """Over the blocks of a range of slots: blocks, txs, first and last slot; fees and output,
        which are text.
        """
        row = self._one(
            "SELECT count(*) AS blocks, coalesce(sum(txs), 0) AS txs, coalesce(exact_sum(fees), 0)"
            " AS fees, coalesce(exact_sum(output), 0) AS output, coalesce(min(slot), 0) AS first,"
            " coalesce(max(slot), 0) AS last FROM block WHERE height <= :h AND slot BETWEEN :a"
            " AND :b",
            a=first_slot,
            b=last_slot,
        )
        assert row is not None
        return row

    # --- outputs ---

    def known(self, column: str, key: str) -> bool:
        """Whether any output was ever at this address, payment credential or stake address."""
        return (
            self._one(f"SELECT 1 FROM output WHERE height <= :h AND {column} = :key", key=key)
            is not None
        )

    def unspent(
        self, column: str, key: str, page: Page | None = None, unit: str | None = None
    ) -> list[Row]:
        """Unspent outputs by address, payment credential or stake address, oldest first.

        ``unit`` keeps those with an asset, and "lovelace", as at Blockfrost, those with nothing
        else.
        """
        having = "" if unit is None else " AND instr(assets, :unit)"
        if unit == "lovelace":
            having = " AND assets = '{}'"
        way, limit = (page.way, page.sql) if page else ("ASC", "")
        return self._all(
            f"SELECT * FROM output WHERE {column} = :key AND {_UNSPENT}{having} ORDER BY height"
            f" {way}, position {way}, ix {way}{limit}",
            key=key,
            unit=f'"{unit}"',
        )

    def every_unspent(self) -> list[Row]:
        """All of them, in no order: what the ledger's own set is compared with."""
        return self._all(f"SELECT tx, ix, address, lovelace FROM output WHERE {_UNSPENT}")

    def received(self, column: str, key: str) -> list[Row]:
        """Every output that was ever at an address, spent or not."""
        return self._all(f"SELECT * FROM output WHERE height <= :h AND {column} = :key", key=key)

    def address_txs(self, column: str, key: str, page: Page, first: int, last: int) -> list[Row]:
        """Transactions that made or spent an output at an address: id, position, height, slot;
        heights first..last.
        """
        return self._all(
            f"""SELECT tx.id, tx.position, tx.height, block.slot FROM tx JOIN block USING (height)
                WHERE tx.height <= :h AND tx.height BETWEEN :first AND :last
                AND tx.id IN (
                    SELECT tx FROM output WHERE {column} = :key
                    UNION SELECT spent_by FROM output WHERE {column} = :key)
                ORDER BY tx.height {page.way}, tx.position {page.way}{page.sql}""",
            key=key,
            first=first,
            last=last,
        )

    def holders(self, unit: str) -> dict[str, int]:
        """Quantity of an asset by address, in order of first receipt."""
        found: dict[str, int] = {}
        rows = self._all(
            f"SELECT address, assets FROM output WHERE instr(assets, :unit) AND {_UNSPENT} ORDER BY"
            " height, position, ix",
            unit=f'"{unit}"',
        )
        for row in rows:
            found[row["address"]] = found.get(row["address"], 0) + json.loads(row["assets"])[unit]
        return found

    def output(self, ref: OutRef) -> Row | None:
        return self._one(
            "SELECT * FROM output WHERE height <= :h AND tx = :tx AND ix = :ix",
            tx=ref.tx,
            ix=ref.ix,
        )

    def outputs_of(self, tx: str) -> list[Row]:
        return self._all("SELECT * FROM output WHERE height <= :h AND tx = :tx ORDER BY ix", tx=tx)

    # --- transactions ---

    def tx(self, name: str) -> Chained | None:
        row = self._one("SELECT * FROM tx WHERE height <= :h AND id = :id", id=name)
        if row is None:
            return None
        block = self.block(row["height"])
        assert block is not None
        return Chained(read(row["raw"]).effect, row, block)

    def redeemers(self, column: str, key: str, page: Page) -> list[Row]:
        """Redeemers of a transaction or, in the chain's order, of a script."""
        return self._all(
            f"SELECT * FROM redeemer WHERE height <= :h AND {column} = :key ORDER BY height"
            f" {page.way}, position {page.way}, tag, ix{page.sql}",
            key=key,
        )

    # --- scripts, assets, accounts ---

    def script(self, name: str) -> Row | None:
        return self._one("SELECT * FROM script WHERE height <= :h AND hash = :hash", hash=name)

    def scripts(self, page: Page) -> list[str]:
        rows = self._all(
            f"SELECT hash FROM script WHERE height <= :h ORDER BY height {page.way}, hash{page.sql}"
        )
        return [row["hash"] for row in rows]

    def datum(self, name: str) -> bytes | None:
        row = self._one("SELECT body FROM datum WHERE height <= :h AND hash = :hash", hash=name)
        return None if row is None else row["body"]

    def mints(self, unit: str) -> list[Row]:
        """Mints and burns of an asset, oldest first."""
        return self._all(
            "SELECT * FROM mint WHERE height <= :h AND unit = :unit ORDER BY height, position",
            unit=unit,
        )

    def assets(self, prefix: str, page: Page) -> list[Row]:
        """unit and quantity in circulation, as text, of every asset whose unit begins with
        ``prefix``.
        """
        return self._all(
            f"""SELECT unit, exact_sum(quantity) AS quantity FROM mint
                WHERE height <= :h AND substr(unit, 1, length(:prefix)) = :prefix
                GROUP BY unit ORDER BY min(height) {page.way}, unit{page.sql}""",
            prefix=prefix,
        )

    def certificates(self, stake: str, page: Page) -> list[Row]:
        return self._all(
            "SELECT * FROM certificate WHERE height <= :h AND stake = :stake ORDER BY height"
            f" {page.way}, position {page.way}, ix {page.way}{page.sql}",
            stake=stake,
        )

    def withdrawals(self, stake: str, page: Page) -> list[Row]:
        return self._all(
            "SELECT * FROM withdrawal WHERE height <= :h AND stake = :stake ORDER BY height"
            f" {page.way}{page.sql}",
            stake=stake,
        )

    def rewarded(self, stake: str) -> int:
        row = self._one(
            "SELECT coalesce(exact_sum(lovelace), 0) AS total FROM reward WHERE height <= :h AND"
            " stake = :stake",
            stake=stake,
        )
        assert row is not None
        return int(row["total"])

    # --- the whole chain ---

    def sums(self) -> dict[str, int]:
        """All lovelace there is: genesis + rewards = unspent + fees + deposits + accounts.

        faucet_paid: what the faucet sent to others; so faucet_paid + rewards - returned = wallets +
        other_fees + deposits + accounts.
        """

        def total(query: str) -> int:
            row = self._one(f"SELECT coalesce(exact_sum({query}", faucet=faucet.ADDRESS)
            assert row is not None
            return int(row[0])

        ours = "IN (SELECT spent_by FROM output WHERE address = :faucet AND spent_by IS NOT NULL)"
        unspent = total(f"lovelace), 0) FROM output WHERE {_UNSPENT}")
        in_faucet = total(f"lovelace), 0) FROM output WHERE address = :faucet AND {_UNSPENT}")
        rewards = total("lovelace), 0) FROM reward WHERE height <= :h")
        fees = total("fee), 0) FROM tx WHERE height <= :h")
        faucet_fees = total(f"fee), 0) FROM tx WHERE height <= :h AND id {ours}")
        return {
            "genesis": total("lovelace), 0) FROM output WHERE position = -1"),
            "rewards": rewards,
            "unspent": unspent,
            "wallets": unspent - in_faucet,
            "fees": fees,
            "other_fees": fees - faucet_fees,
            "deposits": total("deposit), 0) FROM tx WHERE height <= :h"),
            "accounts": rewards - total("lovelace), 0) FROM withdrawal WHERE height <= :h"),
            "faucet_paid": total(
                "lovelace), 0) FROM output WHERE height <= :h AND position >= 0 AND address <>"
                f" :faucet AND tx {ours}"
            ),
            "returned": total(
                "lovelace), 0) FROM output WHERE height <= :h AND position >= 0 AND address ="
                f" :faucet AND tx NOT {ours}"
            ),
        }

    def rows(self, query: str, **values: Any) -> list[Row]:
        """Rows of a reading query that names its values; ``:h`` is this view's height."""
        return self._all(query, **values)

    def _all(self, query: str, **values: Any) -> list[Row]:
        return self._db.execute(query, {"h": self.height, **values}).fetchall()

    def _one(self, query: str, **values: Any) -> Row | None:
        rows: Sequence[Row] = self._db.execute(query, {"h": self.height, **values}).fetchmany(1)
        return rows[0] if rows else None
