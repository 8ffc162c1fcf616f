"""A transaction's bytes taken apart without ever writing them anew.

A wallet signs the hash of the body's bytes: decoding and encoding them again may give other bytes
of the same meaning, and another hash. So the parts here are slices of what was received.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cbor2

from marketplace.chain import plutus, slices
from marketplace.chain.utxo import OutRef, Utxo, assets_of
from marketplace.domain.canonical import blake2b_224, blake2b_256
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import verifies


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
    body_end = slices.skip(tx, 1)
    witnesses_end = slices.skip(tx, body_end)
    if slices.skip(tx, slices.skip(tx, witnesses_end)) != len(tx):
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
    redeemer = settle_redeemer(tx)
    return None if redeemer is None else plutus.decode(redeemer)


def settle_redeemer(tx: bytes) -> bytes | None:
    """The same as its bytes: what a ledger accepted may hold more than any decoder takes."""
    for key, raw in map_items(split(tx).witnesses):
        if key != 5:
            continue
        if slices.head_of(raw, 0)[0] == 5:
            flat = slices.items(raw, major=5)
            rows = [(slices.items(k)[0], slices.items(v)[0]) for k, v in _pairs(flat)]
        else:
            rows = [(row[0], row[2]) for row in map(slices.items, slices.items(raw))]
        for tag, data in rows:
            if cbor2.loads(tag) == 3:
                return data
    return None


def map_items(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and raw value of each entry of a CBOR map with small integer keys."""
    for key, value in _pairs(slices.items(raw, major=5)):
        yield cast(int, cbor2.loads(key)), value


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


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
