"""Bytes that hurt a general CBOR decoder, by name: the known bombs, at a size of one's choice."""

from __future__ import annotations

from collections.abc import Mapping

import cbor2

from marketplace.chain.encoding.plutus import head

_PRIME = 2**61 - 1  # CPython hashes an integer by its remainder from it


def bombs(size: int) -> Mapping[str, bytes]:
    """About *size* bytes each, where the kind has a size."""
    keys = size // 10
    return {
        "keys of one hash": head(5, keys)
        + b"".join(cbor2.dumps(i * _PRIME) + b"\x00" for i in range(keys)),
        "big keys of one hash": head(5, keys)
        + b"".join(cbor2.dumps((i + 8) * _PRIME) + b"\x00" for i in range(keys)),
        "lists as keys": head(5, keys)
        + b"".join(b"\x82\x00" + cbor2.dumps(i * _PRIME) + b"\x00" for i in range(keys)),
        "regular expression": b"\xd8\x23" + cbor2.dumps("(" * (size // 2) + ")" * (size // 2)),
        "classes": b"\xd8\x23"
        + cbor2.dumps("|".join(f"[a-z]{{1,{i}}}" for i in range(size // 12))),
        "decimal overflow": bytes.fromhex("c4821b7fffffffffffffff01"),
        "bigfloat": bytes.fromhex("c5821a3b9aca0001"),
        "bigfloat of a huge exponent": bytes.fromhex("c5821b7fffffffffffffff01"),
        "rational by zero": bytes.fromhex("d81e820100"),
        "date": bytes.fromhex("c074") + b"9999-99-99T99:99:99Z",
        "epoch": bytes.fromhex("c1fb7e37e43c8800759c"),
        "address": bytes.fromhex("d90104450102030405"),
        "itself": bytes.fromhex("d81c81d81d00"),
        "deep lists": b"\x81" * size + b"\x00",
        "deep maps": b"\xa1\x00" * (size // 2) + b"\x00",
        "deep tags": b"\xc6" * size + b"\x00",
        "deep open lists": b"\x9f" * size,
        "a list that is not there": bytes.fromhex("9b000000ffffffffff"),
        "a map that is not there": bytes.fromhex("bb7fffffffffffffff"),
        "bytes that are not there": bytes.fromhex("5b000000ffffffffff"),
        "text that is not there": bytes.fromhex("7bffffffffffffffff"),
        "sets within sets": b"\xd9\x01\x02\x81" * (size // 4) + b"\x80",
        "many items": head(4, size) + b"\x00" * size,
        "many empty maps": head(4, size) + b"\xa0" * size,
        "many empty pieces": b"\x5f" + b"\x40" * size + b"\xff",
        "one key again and again": head(5, size // 3) + b"\x61a\x00" * (size // 3),
        "a big integer": b"\xc2" + cbor2.dumps(b"\xff" * size),
        "half a character": b"\x62\xc3\x28",
        "a break": b"\xff",
    }
