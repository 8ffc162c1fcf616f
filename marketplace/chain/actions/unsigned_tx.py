"""A transaction that somebody else built, read from its bytes: what ``judge`` looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import cbor2

from marketplace.chain.encoding import cursor, txbytes
from marketplace.chain.encoding.plain_cbor import is_plain
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.domain.canonical import want_bytes, want_int, want_list
from marketplace.domain.errors import Malformed


@dataclass
class UnsignedTx:
    """Its body and witnesses by key; *outputs* and *inputs* read."""

    body: dict[int, Any]
    witnesses: dict[int, bytes]
    inputs: tuple[OutRef, ...]
    outputs: tuple[Utxo, ...]
    odd: frozenset[int]  # outputs with more than an address, a value and an inline datum


def read_unsigned(tx: bytes) -> UnsignedTx:
    """*tx*, if it is plain, valid and carries nothing beside; if not, :class:`Malformed` or what
    reading odd bytes raises (ValueError, TypeError, KeyError, IndexError, AttributeError).
    """
    parts = txbytes.split(tx)
    if parts.rest != b"\xf5\xf6" or not is_plain(parts.body) or not is_plain(parts.witnesses):
        raise Malformed("not plain, not valid, or something is attached")
    body: dict[int, Any] = txbytes.body_of(tx)
    inputs = txbytes.inputs_of(tx)
    if len(set(inputs)) != len(inputs) or any(len(ref.tx_id) != 32 for ref in inputs):
        raise Malformed("an input twice, or none")
    rows = list(txbytes.map_items(parts.witnesses))
    outputs = txbytes.outputs_of(tx)
    want_int(body[2], "fee")
    odd = frozenset(n for n, raw in enumerate(body[1]) if is_odd(raw))
    return UnsignedTx(body, dict(rows), inputs, outputs, odd)


def is_odd(raw: Any) -> bool:
    """Whether an output has more than an address, a value and an inline datum."""
    if isinstance(raw, (list, tuple)):
        return len(cast("list[Any]", raw)) != 2
    fields = cast("dict[int, Any]", raw)
    return bool(fields.keys() - {0, 1, 2}) or (2 in fields and fields[2][0] != 1)


def items_of(value: Any) -> list[Any]:
    """A list, or a set of the CDDL (tag 258)."""
    plain: Any = value.value if isinstance(value, cbor2.CBORTag) and value.tag == 258 else value
    if not isinstance(plain, (list, tuple)):
        raise Malformed("no list")
    return list(cast("list[Any]", plain))


def refs_of(value: Any) -> list[OutRef]:
    """Inputs, of any of the body's lists of them."""
    return [OutRef(tx_id, index) for tx_id, index in map(_pair, items_of(value))]


def _pair(value: Any) -> tuple[bytes, int]:
    tx_id, index = want_list(value, 2, "an input")
    return want_bytes(tx_id, 32, "id"), want_int(index, "index")


def redeemers_of(raw: bytes) -> list[tuple[int, int, bytes]]:
    """(tag, index, data as its bytes) of either form, in order, duplicates kept."""
    rows: Sequence[list[bytes]]
    if cursor.head_of(raw, 0)[0] == 5:
        flat = cursor.items(raw, major=5)
        rows = [
            [*_row(key, 2), *_row(value, 2)]
            for key, value in zip(flat[::2], flat[1::2], strict=True)
        ]
    else:
        rows = [_row(row, 4) for row in cursor.items(raw)]
    return [(cbor2.loads(row[0]), cbor2.loads(row[1]), row[2]) for row in rows]


def _row(raw: bytes, length: int) -> list[bytes]:
    parts = cursor.items(raw)
    if len(parts) != length:
        raise Malformed("a redeemer has other parts")
    return parts
