"""Outputs and where they are, as every part of this package passes them around."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.errors import Malformed

Assets = tuple[tuple[bytes, int], ...]
"""Native tokens: (policy 28 bytes | name, quantity), sorted, no zero quantities."""

POLICY_BYTES = 28


@dataclass(frozen=True, slots=True, order=True)
class OutRef:
    """One output of one transaction; ordered as the ledger orders inputs."""

    tx_id: bytes
    index: int

    def __str__(self) -> str:
        return f"{self.tx_id.hex()}#{self.index}"

    def __repr__(self) -> str:
        return f"<{self.tx_id.hex()[:8]}#{self.index}>"

    @staticmethod
    def parse(text: str) -> OutRef:
        """From ``<64 hex digits>#<index>``."""
        tx_id, _, index = text.partition("#")
        try:
            raw, number = bytes.fromhex(tx_id), int(index)
        except ValueError:
            raise Malformed(f"{text!r} is not <transaction id>#<index>") from None
        if len(raw) != 32 or not 0 <= number < 1 << 16:
            raise Malformed(f"{text!r} is not <transaction id>#<index>")
        return OutRef(raw, number)


@dataclass(frozen=True, slots=True)
class Utxo:
    """An output with its place: address bytes, lovelace, tokens, inline datum (CBOR), script."""

    ref: OutRef
    address: bytes
    lovelace: int
    assets: Assets = ()
    datum: bytes | None = None
    datum_hash: bytes | None = None
    script_hash: bytes | None = None

    @property
    def plain(self) -> bool:
        """Only lovelace: no token, datum or script. What collateral must be."""
        return not self.assets and self.datum is None and self.script_hash is None

    def quantity(self, unit: bytes) -> int:
        """How much of the token *unit* it holds; ``b""`` asks for lovelace."""
        if not unit:
            return self.lovelace
        return sum(amount for name, amount in self.assets if name == unit)


def assets_of(amounts: dict[bytes, int]) -> Assets:
    """Sorted, without zeros."""
    return tuple(sorted((unit, n) for unit, n in amounts.items() if n))


def sum_assets(*bundles: Assets) -> Assets:
    """All of *bundles* together."""
    total: dict[bytes, int] = {}
    for bundle in bundles:
        for unit, n in bundle:
            total[unit] = total.get(unit, 0) + n
    return assets_of(total)


def less_assets(have: Assets, gone: Assets) -> Assets:
    """*have* without *gone*; quantities may come out negative, which callers treat as missing."""
    return sum_assets(have, tuple((unit, -n) for unit, n in gone))
