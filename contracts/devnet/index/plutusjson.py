"""Plutus data as JSON, read from its bytes: maps whose keys are maps, and keys that occur twice,
come out as they stand.

Decoding to Python's dictionaries first would lose both. Shape: the detailed schema of cardano-cli,
which is Blockfrost's ``json_value``.
"""

from __future__ import annotations

from typing import Any

import cbor2

from contracts.devnet import cbor

_BIGNUMS = (2, 3)


def detailed(raw: bytes) -> dict[str, Any]:
    """One value in the detailed schema. Raises ValueError where the bytes are no Plutus data."""
    major, argument, at = cbor.head(raw, 0)
    if major in (0, 1) or (major == 6 and argument in _BIGNUMS):
        return {"int": cbor2.loads(raw)}
    if major == 2:
        return {"bytes": cbor2.loads(raw).hex()}
    if major == 4:
        return {"list": [detailed(one) for one in cbor.elements(raw)]}
    if major == 5:
        return {"map": [{"k": detailed(key), "v": detailed(one)} for key, one in cbor.pairs(raw)]}
    if major == 6 and argument is not None:
        constructor, fields = _constructor(argument, raw[at:])
        return {"constructor": constructor, "fields": [detailed(one) for one in fields]}
    raise ValueError("not Plutus data")


def _constructor(tag: int, inner: bytes) -> tuple[int, list[bytes]]:
    """Number and fields of a constructor, by the tag that it is written with."""
    if tag == 102:
        number, fields = cbor.elements(inner)
        return cbor.uint(number), cbor.elements(fields)
    return tag - 121 if tag < 1280 else tag - 1280 + 7, cbor.elements(inner)
