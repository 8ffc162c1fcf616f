"""An address as the script sees it: credentials, their Plutus Data, and the hash of a payout."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.canonical import blake2b_224
from marketplace.domain.errors import Malformed


@dataclass(frozen=True, slots=True)
class Credential:
    """A key or script hash, 28 bytes."""

    hash: bytes
    is_script: bool = False

    def plutus(self) -> bytes:
        """As Plutus Data."""
        return (
            (b"\xd8\x7a" if self.is_script else b"\xd8\x79")
            + b"\x9f"
            + _octets(self.hash)
            + b"\xff"
        )


@dataclass(frozen=True, slots=True)
class Address:
    """A payment credential and, for a base address, a stake credential."""

    payment: Credential
    stake: Credential | None = None

    def plutus(self) -> bytes:
        """serialiseData of the address as a script context (V3) shows it."""
        stake = b"\xd8\x7a\x80"
        if self.stake is not None:
            stake = b"\xd8\x79\x9f\xd8\x79\x9f" + self.stake.plutus() + b"\xff\xff"
        return b"\xd8\x79\x9f" + self.payment.plutus() + stake + b"\xff"

    def payout(self) -> bytes:
        """The 28 bytes by which Consts names this address as a payout."""
        return blake2b_224(self.plutus())

    @staticmethod
    def parse(raw: bytes) -> Address:
        """From the bytes of a Shelley base or enterprise address (CIP-19), of any network."""
        kind = raw[0] >> 4 if raw else 15
        if kind in (0, 1, 2, 3) and len(raw) == 57:
            return Address(
                Credential(raw[1:29], bool(kind & 1)), Credential(raw[29:], bool(kind & 2))
            )
        if kind in (6, 7) and len(raw) == 29:
            return Address(Credential(raw[1:], bool(kind & 1)))
        raise Malformed("not a base or enterprise address")


def _octets(content: bytes) -> bytes:
    """A CBOR byte string of up to 64 bytes."""
    return (
        bytes([0x40 + len(content)]) if len(content) < 24 else bytes([0x58, len(content)])
    ) + content
