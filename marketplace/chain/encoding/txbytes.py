"""A transaction's bytes taken apart without ever writing them anew.

A wallet signs the hash of the body's bytes: decoding and encoding them again may give other bytes
of the same meaning, and another hash. So the parts here are slices of what was received.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import cbor2

from marketplace.chain.encoding import cursor, plutus
from marketplace.chain.encoding.utxo import OutRef, Utxo, assets_of
from marketplace.domain import cbor
from marketplace.domain.canonical import (
    blake2b_224,
    blake2b_256,
    want_bytes,
    want_int,
    want_list,
)
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import verifies

_ENCODED = 24  # RFC 8949, 3.4.5.1


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
    body_end = cursor.skip(tx, 1)
    witnesses_end = cursor.skip(tx, body_end)
    if cursor.skip(tx, cursor.skip(tx, witnesses_end)) != len(tx):
        raise Malformed("bytes follow the transaction")
    return TxParts(tx[1:body_end], tx[body_end:witnesses_end], tx[witnesses_end:])


def inputs_of(tx: bytes) -> tuple[OutRef, ...]:
    """What it spends."""
    with _reading("a transaction's inputs"):
        return tuple(_ref(i) for i in _plain(_body(tx)[0]))


def outputs_of(tx: bytes) -> tuple[Utxo, ...]:
    """What it makes."""
    tx_id = split(tx).tx_id
    with _reading("a transaction's outputs"):
        return tuple(_output(OutRef(tx_id, n), raw) for n, raw in enumerate(_body(tx)[1]))


def until_of(tx: bytes) -> int | None:
    """The slot from which it can be in no block any more; None if it never expires."""
    until = _body(tx).get(3)
    return None if until is None else want_int(until, "a transaction's last slot")


def fee_of(tx: bytes) -> int:
    """What it pays to the chain, in lovelace."""
    return want_int(_body(tx).get(2), "a transaction's fee")


def required_signers_of(tx: bytes) -> tuple[bytes, ...]:
    """Key hashes that scripts must see (body field 14)."""
    return tuple(want_bytes(h, 28, "a signer") for h in _plain(_body(tx).get(14, [])))


def read_utxo(raw: bytes) -> Utxo:
    """One output of a CIP-30 wallet's ``getUtxos``: CBOR of [[id, index], output]."""
    with _reading("an unspent output as CIP-30 gives it"):
        place, output = cast("tuple[list[Any], Any]", cbor.ledger(raw))
        return _output(_ref(place), output)


def body_of(tx: bytes) -> dict[int, Any]:
    """The body's fields by number (Conway CDDL)."""
    return _body(tx)


def settle_redeemers(tx: bytes) -> tuple[bytes, ...]:
    """The bytes of every redeemer row for the first withdrawal, which is settle's, in their order.

    A ledger takes several rows of one (tag, index), and the last of them is what the script was
    told (cardano-ledger, Alonzo.TxWits: rows are read into a map). Whoever signs refuses more than
    one.
    """
    raw = dict(map_items(split(tx).witnesses)).get(5)
    if raw is None:
        return ()
    with _reading("redeemers"):
        if cursor.head_of(raw, 0)[0] == 5:
            flat = cursor.items(raw, major=5)
            rows = [(cursor.items(k), cursor.items(v)[0]) for k, v in _pairs(flat)]
        else:
            parts = [cursor.items(row) for row in cursor.items(raw)]
            rows = [(row[:2], row[2]) for row in parts]
        return tuple(data for at, data in rows if [cbor.ledger(part) for part in at] == [3, 0])


def map_items(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and raw value of each entry of a CBOR map with small integer keys."""
    for key, value in _pairs(cursor.items(raw, major=5)):
        yield want_int(cbor.ledger(key), "a field's number"), value


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def key_witnesses(raw: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """(verification key, signature) of every key witness in a witness set."""
    for key, value in map_items(raw):
        if key == 0:
            pairs = (want_list(p, 2, "key witness") for p in _plain(cbor.ledger(value)))
            return tuple(
                (want_bytes(vk, 32, "witness key"), want_bytes(sig, 64, "signature"))
                for vk, sig in pairs
            )
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
    value: Any = cbor.ledger(split(tx).body)
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


@contextmanager
def _reading(what: str) -> Generator[None]:
    """Strangers' values have any type: what does not fit is not *what* was expected."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise Malformed(f"not {what}") from error


def _ref(value: Any) -> OutRef:
    tx_id, index = value
    return OutRef(want_bytes(tx_id, 32, "id"), want_int(index, "index"))


def _output(ref: OutRef, raw: Any) -> Utxo:
    if isinstance(raw, list):
        address, value, *hashed = cast(list[Any], raw)
        datum, datum_hash = None, want_bytes(hashed[0], 32, "datum hash") if hashed else None
        script = None
    else:
        fields = cast(dict[int, Any], raw)
        address, value, script = fields[0], fields[1], fields.get(3)
        option = cast("list[Any] | None", fields.get(2))
        kind, data = (None, None) if option is None else want_list(option, 2, "datum")
        datum = _inline(data) if kind == 1 else None
        datum_hash = want_bytes(data, 32, "datum hash") if kind == 0 else None
    lovelace, bundle = cast("tuple[Any, Any]", (value, {}) if isinstance(value, int) else value)
    amounts = {
        want_bytes(policy, 28, "policy") + want_bytes(name, None, "name"): want_int(
            n, "amount", most=2**64 - 1
        )
        for policy, names in cast(dict[bytes, dict[bytes, int]], bundle).items()
        for name, n in names.items()
    }
    script_hash = None
    if script is not None:
        script_hash = _script_hash(want_bytes(script.value, None, "script"))
    return Utxo(
        ref, want_bytes(address, None, "address"), want_int(lovelace, "lovelace"),
        assets_of(amounts), datum, datum_hash, script_hash,
    )  # fmt: skip


def _inline(value: Any) -> bytes:
    """A datum in an output: encoded CBOR (tag 24), as the ledger takes it and nothing else."""
    if value.tag != _ENCODED:
        raise Malformed("a datum in an output is tagged 24")
    return want_bytes(value.value, None, "datum")


def _script_hash(encoded: bytes) -> bytes:
    """Of a reference script: [language, bytes], or [0, a native script], which may be as deep as
    its author likes and is hashed as it was written.
    """
    language, script = cursor.items(encoded)
    number = want_int(cbor.ledger(language), "language", most=255)
    raw = script if number == 0 else want_bytes(cbor.ledger(script), None, "script")
    return blake2b_224(bytes([number]) + raw)
