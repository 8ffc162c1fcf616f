"""What explorers ask of the index beyond what wallets do: by asset, by script, by block, by
account. Reads only.

Every function takes a ``View`` and sees the chain as of its height.
"""

from __future__ import annotations

from contracts.devnet.index.views import Page, Row, View

_UNSPENT = "output.height <= :h AND (spent_height IS NULL OR spent_height > :h)"
_PLACED = "tx.id, tx.position, tx.height, block.slot FROM tx JOIN block USING (height)"
# A transaction's place: (height, position in its block).
Span = tuple[tuple[int, int], tuple[int, int]]


def _span(span: Span) -> dict[str, int]:
    (height_a, position_a), (height_b, position_b) = span
    return {"ha": height_a, "pa": position_a, "hb": height_b, "pb": position_b}


def transactions_at(view: View, column: str, key: str, page: Page, span: Span) -> list[Row]:
    """Transactions that made or spent an output by address, payment credential or stake address;
    both ends of the span count.

    Rows: id, position, height, slot.
    """
    return view.rows(
        f"""SELECT {_PLACED} WHERE tx.height <= :h
            AND (tx.height, tx.position) >= (:ha, :pa) AND (tx.height, tx.position) <= (:hb, :pb)
            AND tx.id IN (
                SELECT tx FROM output WHERE {column} = :key
                UNION SELECT spent_by FROM output WHERE {column} = :key)
            ORDER BY tx.height {page.way}, tx.position {page.way}{page.sql}""",
        key=key,
        **_span(span),
    )


def stake_transactions(view: View, stake: str, page: Page, span: Span) -> list[Row]:
    """Every address of an account in every transaction that made or spent an output there. Rows: as
    above, and address.
    """
    return view.rows(
        f"""SELECT touched.address, {_PLACED} JOIN (
                SELECT address, tx AS id FROM output WHERE stake = :stake
                UNION SELECT address, spent_by FROM output
                    WHERE stake = :stake AND spent_by IS NOT NULL
            ) AS touched ON touched.id = tx.id
            WHERE tx.height <= :h
            AND (tx.height, tx.position) >= (:ha, :pa) AND (tx.height, tx.position) <= (:hb, :pb)
            ORDER BY tx.height {page.way}, tx.position {page.way},
                touched.address {page.way}{page.sql}""",
        stake=stake,
        **_span(span),
    )


def asset_transactions(view: View, unit: str, page: Page) -> list[Row]:
    """Transactions with an output that holds an asset. Rows: id, position, height, slot."""
    return view.rows(
        f"""SELECT {_PLACED} WHERE tx.height <= :h
            AND tx.id IN (SELECT tx FROM output WHERE instr(assets, :unit))
            ORDER BY tx.height {page.way}, tx.position {page.way}{page.sql}""",
        unit=f'"{unit}"',
    )


def asset_outputs(view: View, unit: str, page: Page) -> list[Row]:
    """Unspent outputs that hold an asset."""
    return _outputs(view, "instr(assets, :key)", f'"{unit}"', page)


def script_outputs(view: View, script_hash: str, page: Page) -> list[Row]:
    """Unspent outputs that carry a reference script."""
    return _outputs(view, "script_hash = :key", script_hash, page)


def _outputs(view: View, where: str, key: str, page: Page) -> list[Row]:
    return view.rows(
        f"""SELECT * FROM output WHERE {where} AND {_UNSPENT}
            ORDER BY height {page.way}, position {page.way}, ix {page.way}{page.sql}""",
        key=key,
    )


def newest_with(view: View, unit: str) -> Row | None:
    """The newest output, spent or not, that held an asset and has a datum."""
    rows = view.rows(
        """SELECT * FROM output
           WHERE height <= :h AND instr(assets, :unit) AND datum_hash IS NOT NULL
           ORDER BY height DESC, position DESC, ix DESC LIMIT 1""",
        unit=f'"{unit}"',
    )
    return rows[0] if rows else None


def block_addresses(view: View, height: int, page: Page) -> dict[str, list[str]]:
    """Transactions of a block by the addresses that they touch; addresses in alphabetical order."""
    rows = view.rows(
        """SELECT touched.address, tx.id FROM tx JOIN (
               SELECT address, tx AS id FROM output WHERE height = :height
               UNION SELECT address, spent_by FROM output WHERE spent_height = :height
           ) AS touched ON touched.id = tx.id
           WHERE tx.height = :height AND tx.height <= :h ORDER BY touched.address, tx.position""",
        height=height,
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["address"], []).append(row["id"])
    start = (page.number - 1) * page.count
    return {name: found[name] for name in list(found)[start : start + page.count]}


def block_cbor(view: View, height: int, page: Page) -> list[Row]:
    """id and raw of a block's transactions."""
    return view.rows(
        "SELECT id, raw FROM tx WHERE height = :height AND height <= :h ORDER BY position"
        f" {page.way}{page.sql}",
        height=height,
    )


def hashes_between(view: View, first_slot: int, last_slot: int, page: Page) -> list[str]:
    """Hashes of the blocks in a range of slots."""
    rows = view.rows(
        "SELECT hash FROM block WHERE height <= :h AND slot BETWEEN :a AND :b ORDER BY height"
        f" {page.way}{page.sql}",
        a=first_slot,
        b=last_slot,
    )
    return [row["hash"] for row in rows]


def transaction_ids(view: View) -> list[str]:
    """Every transaction, oldest first."""
    return [
        row["id"]
        for row in view.rows("SELECT id FROM tx WHERE height <= :h ORDER BY height, position")
    ]


def credited(view: View, stake: str, page: Page) -> list[Row]:
    """Rewards credited to an account: slot and lovelace."""
    return view.rows(
        f"""SELECT block.slot, reward.lovelace FROM reward JOIN block USING (height)
            WHERE height <= :h AND stake = :stake ORDER BY height {page.way}{page.sql}""",
        stake=stake,
    )
