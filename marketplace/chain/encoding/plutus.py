"""Plutus Data as bytes, in the shortest form that the ledger takes.

Lists are written with their length, which is a byte less each than the open lists that the builtin
``serialiseData`` writes: a datum and a redeemer count by their value alone. (Where a hash must
agree with the script's, the twin writes it:
:meth:`marketplace.domain.money.address.Address.plutus`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import cbor2

from marketplace.domain import cbor
from marketplace.domain.errors import Malformed

Data: TypeAlias = "Constr | tuple[Data, ...] | int | bytes"
_CHUNK = 64  # bytes longer than this are cut into pieces of this length


@dataclass(frozen=True, slots=True)
class Constr:
    """A constructor and its fields."""

    tag: int
    fields: tuple[Data, ...] = ()


def encode(data: Data) -> bytes:
    """The shortest encoding."""
    match data:
        case Constr(tag, fields):
            return _constr_head(tag) + head(4, len(fields)) + b"".join(map(encode, fields))
        case tuple():
            return head(4, len(data)) + b"".join(map(encode, data))
        case bytes():
            return _bytes(data)
        case _:
            return cbor2.dumps(data)


def decode(encoded: bytes) -> Data:
    """The value of *encoded*; :class:`Malformed` for maps and for what is not Plutus Data.

    No datum or redeemer of ours holds a map.
    """
    return from_cbor(cbor.ledger(encoded))


def from_cbor(value: Any) -> Data:
    """The Data of a value that a CBOR library has read."""
    match value:
        case bool():
            raise Malformed("not Plutus Data")
        case int() | bytes():
            return value
        case list():
            return tuple(from_cbor(item) for item in cast(list[Any], value))
        case cbor2.CBORTag(tag=102, value=[int() as number, list()]) if number >= 0:
            return Constr(number, tuple(from_cbor(item) for item in value.value[1]))
        case cbor2.CBORTag(tag=tag, value=list()):
            return Constr(_constr_number(tag), tuple(from_cbor(item) for item in value.value))
        case _:
            raise Malformed("not Plutus Data")


def _constr_number(tag: int) -> int:
    if 121 <= tag <= 127:
        return tag - 121
    if 1280 <= tag <= 1400:
        return tag - 1280 + 7
    raise Malformed("a constructor's tag is out of range")


def _constr_head(tag: int) -> bytes:
    return head(6, 121 + tag if tag < 7 else 1280 + tag - 7)


def head(major: int, number: int) -> bytes:
    """A CBOR head: 3 bits of type and the shortest form of *number* (RFC 8949 §3)."""
    if number < 24:
        return bytes([major << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | code]) + number.to_bytes(size, "big")
    raise Malformed("a CBOR head above 64 bits")


def _bytes(value: bytes) -> bytes:
    if len(value) <= _CHUNK:
        return head(2, len(value)) + value
    cut = (value[i : i + _CHUNK] for i in range(0, len(value), _CHUNK))
    return b"\x5f" + b"".join(head(2, len(piece)) + piece for piece in cut) + b"\xff"
