"""A finished body, and its signatures beside it: bytes that are joined, never encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marketplace.chain.encoding import plutus
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer


@dataclass(frozen=True)
class Signed:
    """A transaction with its signatures: what is stored, sent, and sent again unchanged."""

    tx_id: bytes
    bytes: bytes
    fee: int
    units: Units
    inputs: tuple[OutRef, ...]
    made: tuple[Utxo, ...]
    until: int | None

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.bytes)


@dataclass(frozen=True)
class Unsigned:
    """A finished body and the key hashes that must sign it; *script*: one (CBOR) that comes
    along.
    """

    body: bytes
    redeemers: bytes | None
    signers: frozenset[bytes]
    fee: int
    units: Units
    inputs: tuple[OutRef, ...]
    made: tuple[Utxo, ...]
    until: int | None
    script: bytes | None = None

    @property
    def tx_id(self) -> bytes:
        """blake2b_256 of the body."""
        return blake2b_256(self.body)

    @property
    def bytes(self) -> bytes:
        """Without signatures: what a foreign wallet is asked to sign."""
        return join(self.body, (), self.redeemers, self.script)

    def sign(self, *keys: Signer) -> Signed:
        """With the signatures of *keys*; :class:`TxRefused` if one that is needed is missing."""
        tx_id = self.tx_id
        mine = {key.key_hash: key for key in keys}
        lacking = self.signers - mine.keys()
        if lacking:
            raise TxRefused(f"nobody signs for key {next(iter(lacking)).hex()}")
        witnesses = [(mine[h].verify_key, mine[h].sign(tx_id)) for h in sorted(self.signers)]
        raw = join(self.body, witnesses, self.redeemers, self.script)
        return Signed(tx_id, raw, self.fee, self.units, self.inputs, self.made, self.until)


def join(
    body: bytes,
    witnesses: Sequence[tuple[bytes, bytes]],
    redeemers: bytes | None,
    script: bytes | None = None,
) -> bytes:
    """The transaction: [body, witness set, valid, no auxiliary data], from parts kept as they are.

    *script*: a Plutus V3 script (CBOR) that a redeemer runs and no reference input shows.
    """
    parts: list[bytes] = []
    if witnesses:
        rows = b"".join(b"\x82\x58\x20" + key + b"\x58\x40" + sig for key, sig in witnesses)
        parts.append(b"\x00" + plutus.head(4, len(witnesses)) + rows)
    if redeemers is not None:
        parts.append(b"\x05" + redeemers)
    if script is not None:
        parts.append(b"\x07\x81" + plutus.head(2, len(script)) + script)
    return b"\x84" + body + plutus.head(5, len(parts)) + b"".join(parts) + b"\xf5\xf6"
