"""A transaction's bytes taken apart without ever writing them anew.

A wallet signs the hash of the body's bytes: decoding and encoding them again may give other bytes
of the same meaning, and another hash. So the parts here are slices of what was received.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cbor2

from marketplace.chain import plutus
from marketplace.chain.utxo import OutRef, Utxo, assets_of
from marketplace.domain.canonical import blake2b_224, blake2b_256
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import verifies

_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class TxParts:
    """[body, witness set, valid, auxiliary data], each exactly as received."""

    body: bytes
    witnesses: bytes
    rest: bytes

    @property
    def tx_id(self) -> bytes:
        """blake2b_256 of the body as received."""
        return blake2b_256(self.body)

    def join(self) -> bytes:
        """The transaction again, byte for byte."""
        return b"\x84" + self.body + self.witnesses + self.rest


def split(tx: bytes) -> TxParts:
    """*tx* taken apart; :class:`Malformed` unless it is one transaction of four parts."""
    if not tx or tx[0] != 0x84:
        raise Malformed("a transaction is an array of four")
    body_end = _skip(tx, 1)
    witnesses_end = _skip(tx, body_end)
    if _skip(tx, _skip(tx, witnesses_end)) != len(tx):
        raise Malformed("bytes follow the transaction")
    return TxParts(tx[1:body_end], tx[body_end:witnesses_end], tx[witnesses_end:])


def inputs_of(tx: bytes) -> tuple[OutRef, ...]:
    """What it spends."""
    return tuple(OutRef(bytes(i[0]), int(i[1])) for i in _plain(_body(tx)[0]))


def outputs_of(tx: bytes) -> tuple[Utxo, ...]:
    """What it makes."""
    tx_id = split(tx).tx_id
    return tuple(_output(OutRef(tx_id, n), raw) for n, raw in enumerate(_body(tx)[1]))


def until_of(tx: bytes) -> int | None:
    """The slot from which it can be in no block any more; None if it never expires."""
    return _body(tx).get(3)


def required_signers_of(tx: bytes) -> tuple[bytes, ...]:
    """Key hashes that scripts must see (body field 14)."""
    return tuple(bytes(h) for h in _plain(_body(tx).get(14, [])))


def read_utxo(raw: bytes) -> Utxo:
    """One output of a CIP-30 wallet's ``getUtxos``: CBOR of [[id, index], output]."""
    try:
        place, output = cast("tuple[list[Any], Any]", cbor2.loads(raw))
        return _output(OutRef(bytes(place[0]), int(place[1])), output)
    except (cbor2.CBORError, ValueError, TypeError, KeyError, IndexError) as error:
        raise Malformed("not an unspent output as CIP-30 gives it") from error


def body_of(tx: bytes) -> dict[int, Any]:
    """The body's fields by number (Conway CDDL)."""
    return _body(tx)


def settle_steps(tx: bytes) -> plutus.Data | None:
    """The redeemer of its withdrawal, which is what settle was told; None if it has none."""
    for key, raw in map_items(split(tx).witnesses):
        if key != 5:
            continue
        value: Any = cbor2.loads(raw)
        if isinstance(value, dict):
            rows = [(tag, data) for (tag, _), (data, _) in cast(dict[Any, Any], value).items()]
        else:
            rows = [(row[0], row[2]) for row in cast(list[list[Any]], value)]
        for tag, data in rows:
            if tag == 3:
                return plutus.from_cbor(data)
    return None


def map_items(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and raw value of each entry of a CBOR map with small integer keys."""
    count, at = _head_of(raw, 0, 5)
    seen = 0
    while count is None or seen < count:
        if count is None and raw[at] == 0xFF:
            break
        key, value = at, _skip(raw, at)
        at = _skip(raw, value)
        seen += 1
        yield cast(int, cbor2.loads(raw[key:value])), raw[value:at]


def key_witnesses(raw: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """(verification key, signature) of every key witness in a witness set."""
    for key, value in map_items(raw):
        if key == 0:
            items: Any = cbor2.loads(value)
            pairs = _plain(items)
            if not all(len(p) == 2 and len(p[0]) == 32 and len(p[1]) == 64 for p in pairs):
                raise Malformed("a key witness is a key of 32 and a signature of 64 bytes")
            return tuple((bytes(p[0]), bytes(p[1])) for p in pairs)
    return ()


def insert_witnesses(tx: bytes, witness_set: bytes) -> bytes:
    """*tx* with the key witnesses of *witness_set* (what a CIP-30 wallet's ``signTx`` returns).

    The body and every other witness stay as they are. :class:`Malformed` if a signature is not
    over this very body.
    """
    parts = split(tx)
    merged = dict(key_witnesses(parts.witnesses))
    for key, signature in key_witnesses(witness_set):
        if not verifies(key, parts.tx_id, signature):
            raise Malformed("the wallet signed another transaction than the one it was shown")
        merged[key] = signature
    if not merged:
        raise Malformed("the wallet returned no signature")
    others = [(key, raw) for key, raw in map_items(parts.witnesses) if key != 0]
    rows = b"".join(
        b"\x82\x58\x20" + key + b"\x58\x40" + sig for key, sig in sorted(merged.items())
    )
    items = [(0, plutus.head(4, len(merged)) + rows), *others]
    witnesses = plutus.head(5, len(items)) + b"".join(plutus.head(0, k) + raw for k, raw in items)
    return TxParts(parts.body, witnesses, parts.rest).join()


def _body(tx: bytes) -> dict[int, Any]:
    value: Any = cbor2.loads(split(tx).body)
    if not isinstance(value, dict):
        raise Malformed("a transaction's body is a map")
    return cast(dict[int, Any], value)


def _plain(value: Any) -> list[Any]:
    """The items of a list or of a set in either of its two forms."""
    if isinstance(value, cbor2.CBORTag):
        value = value.value
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise Malformed("expected a list or a set")
    return list(cast(list[Any], value))


def _output(ref: OutRef, raw: Any) -> Utxo:
    if isinstance(raw, list):
        address, value, *hashed = cast(list[Any], raw)
        datum, datum_hash = None, bytes(hashed[0]) if hashed else None
        script = None
    else:
        fields = cast(dict[int, Any], raw)
        address, value, script = fields[0], fields[1], fields.get(3)
        option = cast("list[Any] | None", fields.get(2))
        datum = bytes(option[1].value) if option and option[0] == 1 else None
        datum_hash = bytes(option[1]) if option and option[0] == 0 else None
    lovelace, bundle = (value, {}) if isinstance(value, int) else value
    amounts = {
        bytes(policy) + bytes(name): int(n)
        for policy, names in cast(dict[bytes, dict[bytes, int]], bundle).items()
        for name, n in names.items()
    }
    script_hash = None if script is None else _script_hash(bytes(script.value))
    return Utxo(
        ref, bytes(address), int(lovelace), assets_of(amounts), datum, datum_hash, script_hash
    )


def _script_hash(encoded: bytes) -> bytes:
    version, script = cast("tuple[int, Any]", cbor2.loads(encoded))
    raw = bytes(script) if isinstance(script, bytes) else cbor2.dumps(script)
    return blake2b_224(bytes([version]) + raw)


def _head_of(raw: bytes, at: int, major: int) -> tuple[int | None, int]:
    """Count (None: until a break) and where the content begins, of an item of type *major*."""
    kind, info, number, after = _read_head(raw, at)
    if kind != major:
        raise Malformed("CBOR of another type than expected")
    return (None if info == 31 else number), after


def _read_head(raw: bytes, at: int) -> tuple[int, int, int, int]:
    if at >= len(raw):
        raise Malformed("CBOR ends early")
    kind, info = raw[at] >> 5, raw[at] & 31
    if info < 24 or info == 31:
        return kind, info, info, at + 1
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(info)
    if size is None or at + 1 + size > len(raw):
        raise Malformed("CBOR ends early")
    return kind, info, int.from_bytes(raw[at + 1 : at + 1 + size], "big"), at + 1 + size


def _skip(raw: bytes, at: int, depth: int = 0) -> int:
    """Where the item that begins at *at* ends (RFC 8949 §3)."""
    if depth > _DEEPEST:
        raise Malformed("CBOR nested too deeply")
    kind, info, number, after = _read_head(raw, at)
    endless = info == 31
    if endless and kind in (0, 1, 6, 7):
        raise Malformed("CBOR with a stray break")
    if kind in (0, 1, 7):
        return after
    if kind == 6:
        return _skip(raw, after, depth + 1)
    if kind in (2, 3) and not endless:
        if after + number > len(raw):
            raise Malformed("CBOR ends early")
        return after + number
    if endless:
        while after < len(raw) and raw[after] != 0xFF:
            after = _skip(raw, after, depth + 1)
        return after + 1
    for _ in range(number * (2 if kind == 5 else 1)):
        after = _skip(raw, after, depth + 1)
    return after
