"""The ledger's own unspent outputs compared with the index's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cbor2

from contracts.devnet import addresses


def differing(utxos: bytes, rows: Iterable[Any]) -> list[str]:
    """``tx#ix`` of the unspent outputs that one has alone, or with another address or amount.

    utxos: the ledger's, a CBOR map; rows: the index's.
    """
    ledger = {(tx.hex(), ix, *_held(one)) for (tx, ix), one in cbor2.loads(utxos).items()}
    index = {(row["tx"], row["ix"], row["address"], row["lovelace"]) for row in rows}
    return sorted({f"{tx}#{ix}" for tx, ix, *_ in ledger ^ index})


def _held(output: Any) -> tuple[str, int]:
    """Address and lovelace of a decoded output, of either shape."""
    value = output[1]
    return addresses.describe(output[0]).text, value if isinstance(value, int) else value[0]
