"""CBOR in every form that a ledger takes: what a transaction means, written as oddly as chance has
it.

A :class:`Pen` chooses at each head: lists and maps with their length or open, Plutus bytes in one
piece or in chunks, integers plain or as big ones, constructors by their own tag or the general one,
sets with their tag or without, fields in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

from contracts.devnet.transaction import OutRef
from marketplace.chain.encoding import plutus
from marketplace.domain.keys import Signer
from tests.integration.support.second_reader import Constr

NATIVE = b"\x82\x01\x80"  # a script that asks for nothing: anybody mints under it
ANYBODYS = blake2b(b"\x00" + NATIVE, digest_size=28).digest()
MIN_PER_BYTE, MIN_BYTES = 4310, 160  # what an output must hold for its size (Babbage)


@dataclass(frozen=True, slots=True)
class Out:
    """An output to make: *datum* inline, or *hashed* alone; *tokens* of :data:`ANYBODYS`."""

    address: bytes
    lovelace: int
    datum: Any = None
    hashed: bytes | None = None
    script: bool = False
    tokens: int = 0


@dataclass
class Pen:
    """*odd*: of 100 heads, how many are written in another than the shortest form."""

    rng: Random
    odd: int = 40

    def often(self) -> bool:
        """Whether the next thing is written oddly."""
        return self.rng.randrange(100) < self.odd

    # --- Plutus Data ---

    def data(self, value: Any) -> bytes:
        """Plutus Data."""
        if isinstance(value, Constr):
            fields = self.array([self.data(one) for one in value.fields])
            if self.often():
                return b"\xd8\x66\x82" + self.data_int(value.number, plain=True) + fields
            return plutus.head(6, 121 + value.number) + fields
        if isinstance(value, tuple):
            return self.array([self.data(one) for one in value])
        if isinstance(value, dict):
            pairs = [(self.data(k), self.data(v)) for k, v in value.items()]
            return self.map(pairs)
        return self.data_bytes(value) if isinstance(value, bytes) else self.data_int(value)

    def data_int(self, value: int, *, plain: bool = False) -> bytes:
        """An integer, at times as a big one."""
        small = -(2**64) <= value < 2**64
        if small and (plain or not self.often()):
            return plutus.head(0, value) if value >= 0 else plutus.head(1, -1 - value)
        number = value if value >= 0 else -1 - value
        raw = number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
        return (b"\xc2" if value >= 0 else b"\xc3") + self.data_bytes(raw)

    def data_bytes(self, value: bytes) -> bytes:
        """Bytes, at times in chunks, and always beyond 64."""
        if len(value) <= 64 and not self.often():
            return plutus.head(2, len(value)) + value
        pieces: list[bytes] = []
        while value:
            cut = self.rng.randint(1, 64)
            pieces.append(plutus.head(2, len(value[:cut])) + value[:cut])
            value = value[cut:]
        return b"\x5f" + b"".join(pieces) + b"\xff"

    # --- the transaction's own ---

    def array(self, items: Sequence[bytes]) -> bytes:
        """A list, with its length or open."""
        if self.often():
            return b"\x9f" + b"".join(items) + b"\xff"
        return plutus.head(4, len(items)) + b"".join(items)

    def map(self, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A map in the order given, with its length or open."""
        flat = b"".join(k + v for k, v in pairs)
        return b"\xbf" + flat + b"\xff" if self.often() else plutus.head(5, len(pairs)) + flat

    def fields(self, fields: dict[int, bytes]) -> bytes:
        """A map by small numbers, in any order."""
        pairs = [(plutus.head(0, key), value) for key, value in fields.items()]
        if self.often():
            self.rng.shuffle(pairs)
        return self.map(pairs)

    def set(self, items: Sequence[bytes]) -> bytes:
        """A set in any order, with its tag or without."""
        items = list(items)
        if self.often():
            self.rng.shuffle(items)
        return (b"\xd9\x01\x02" if self.often() else b"") + self.array(items)

    def out(self, out: Out) -> bytes:
        """An output; in the shortest form where an odd one would be too large for what it holds."""
        raw = self._out(out)
        if out.lovelace < (MIN_BYTES + len(raw)) * MIN_PER_BYTE:
            raw = Pen(self.rng, 0)._out(out)
        return raw

    def _out(self, out: Out) -> bytes:
        address = plutus.head(2, len(out.address)) + out.address
        value = plutus.head(0, out.lovelace)
        if out.tokens:
            value = b"\x82" + value + self.bundle(out.tokens)
        if out.datum is None and not out.script and self.often():  # the older kind
            hashed = [] if out.hashed is None else [b"\x58\x20" + out.hashed]
            return self.array([address, value, *hashed])
        fields = {0: address, 1: value}
        if out.hashed is not None:
            fields[2] = b"\x82\x00\x58\x20" + out.hashed
        if out.datum is not None:
            body = self.data(out.datum)
            fields[2] = b"\x82\x01\xd8\x18" + plutus.head(2, len(body)) + body
        if out.script:  # a native script that anybody satisfies
            fields[3] = b"\xd8\x18\x45\x82\x00" + NATIVE
        return self.fields(fields)

    def bundle(self, tokens: int) -> bytes:
        """So many of anybody's token."""
        name = self.map([(b"\x43odd", plutus.head(0, tokens))])
        return self.map([(b"\x58\x1c" + ANYBODYS, name)])

    def redeemers(self, rows: Sequence[tuple[int, int, bytes, int, int]]) -> bytes:
        """(tag, index, data, memory, steps) in the order given, as a list or a map."""
        as_map = self.rng.random() < 0.5
        written: list[bytes] = []
        pairs: list[tuple[bytes, bytes]] = []
        for tag, index, raw, memory, steps in rows:
            units = b"\x82" + plutus.head(0, memory) + plutus.head(0, steps)
            at = plutus.head(0, tag) + plutus.head(0, index)
            written.append(b"\x84" + at + raw + units)
            pairs.append((b"\x82" + at, b"\x82" + raw + units))
        return self.map(pairs) if as_map else self.array(written)

    def transaction(
        self, body: dict[int, bytes], signers: Sequence[Signer], witnesses: dict[int, bytes]
    ) -> tuple[str, bytes]:
        """(id, bytes) of the signed transaction."""
        raw = self.fields(body)
        tx_id = blake2b(raw, digest_size=32).digest()
        keys = [
            b"\x82\x58\x20" + one.verify_key + b"\x58\x40" + one.sign(tx_id)
            for one in {s.verify_key: s for s in signers}.values()
        ]
        witnessed = self.fields({0: self.set(keys), **witnesses})
        return tx_id.hex(), b"\x84" + raw + witnessed + b"\xf5\xf6"


def ref_bytes(ref: OutRef) -> bytes:
    """An input."""
    return b"\x82\x58\x20" + bytes.fromhex(ref.tx) + plutus.head(0, ref.ix)
