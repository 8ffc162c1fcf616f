"""Addresses: their payment and stake parts, base addresses, and the hash that names a payout.

An address here is its bytes (CIP-19); text is Bech32. Byron and pointer addresses are refused: the
contract rebuilds addresses and wallets of today make neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pycardano import Address, Network, ScriptHash, VerificationKeyHash
from pycardano.exception import PyCardanoException

from marketplace.chain import plutus
from marketplace.domain.canonical import blake2b_224
from marketplace.domain.errors import Malformed

_KEY_STAKE: Final = 0
_ENTERPRISE: Final = 6


@dataclass(frozen=True, slots=True)
class Credential:
    """28 bytes of a key or of a script."""

    hash: bytes
    script: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """An address taken apart; *stake* is None for an enterprise address."""

    payment: Credential
    stake: Credential | None
    mainnet: bool

    def join(self) -> bytes:
        """The address' bytes: CIP-19 header, payment part, stake part."""
        kind = (_KEY_STAKE if self.stake else _ENTERPRISE) | (1 if self.payment.script else 0)
        if self.stake is not None and self.stake.script:
            kind |= 2
        return (
            bytes([kind << 4 | self.mainnet])
            + self.payment.hash
            + (self.stake.hash if self.stake else b"")
        )


def parts(address: bytes) -> Parts:
    """*address* taken apart; :class:`Malformed` for Byron, pointer, reward and broken ones."""
    kind, network = (address[0] >> 4, address[0] & 15) if address else (15, 15)
    with_stake = kind in (0, 1, 2, 3)
    if (
        network > 1
        or not (with_stake or kind in (6, 7))
        or len(address) != (57 if with_stake else 29)
    ):
        raise Malformed("not a base or enterprise address of today's eras")
    stake = Credential(address[29:], bool(kind & 2)) if with_stake else None
    return Parts(Credential(address[1:29], bool(kind & 1)), stake, network == 1)


def from_text(text: str) -> bytes:
    """The bytes of a Bech32 address; :class:`Malformed` unless :func:`parts` knows it."""
    try:
        address = bytes(Address.from_primitive(text))
    except (PyCardanoException, ValueError, TypeError, AssertionError, IndexError) as error:
        raise Malformed(f"{text[:120]!r} is not a Cardano address") from error
    parts(address)
    return address


def lenient_bytes(text: str) -> bytes:
    """The bytes of any address that the chain shows, Byron's included (ours are never of that kind)."""
    try:
        return bytes(Address.from_primitive(text))
    except (PyCardanoException, ValueError, TypeError, AssertionError, IndexError):
        return text.encode()


def to_text(address: bytes) -> str:
    """Bech32."""
    return Address.from_primitive(address).encode()


def key_address(payment: bytes, stake: bytes | None, mainnet: bool) -> bytes:
    """The address of a key, with the stake part of a key if *stake* is given."""
    part = None if stake is None else Credential(stake)
    return Parts(Credential(payment), part, mainnet).join()


def channel_address(stub_hash: bytes, stake: Credential | None, mainnet: bool) -> bytes:
    """Where a consumer's channels are: the stub with the consumer's stake part."""
    return Parts(Credential(stub_hash, True), stake, mainnet).join()


def refund_address(consumer_vkh: bytes, channel: bytes) -> bytes:
    """Where the rest goes home to: the consumer's key with the channel's own stake part."""
    at = parts(channel)
    return Parts(Credential(consumer_vkh), at.stake, at.mainnet).join()


def script_stake_address(script_hash: bytes, mainnet: bool) -> Address:
    """The reward account of a script, for withdrawals and registration."""
    network = Network.MAINNET if mainnet else Network.TESTNET
    return Address(staking_part=ScriptHash(script_hash), network=network)


def pay_key_hash(address: bytes) -> bytes:
    """The payment key's hash; :class:`Malformed` for a script's address."""
    payment = parts(address).payment
    if payment.script:
        raise Malformed("a key's address is needed here, not a script's")
    return bytes(VerificationKeyHash(payment.hash))


def address_data(address: bytes) -> plutus.Data:
    """The address as scripts see it (Plutus V3 ``Address``)."""
    at = parts(address)
    stake = (
        plutus.Constr(1)
        if at.stake is None
        else plutus.Constr(0, (plutus.Constr(0, (_credential(at.stake),)),))
    )
    return plutus.Constr(0, (_credential(at.payment), stake))


def payout_hash(address: bytes) -> bytes:
    """``payout`` of the datum: blake2b_224(serialiseData(address)), 28 bytes for any address."""
    return blake2b_224(plutus.serialise(address_data(address)))


def _credential(credential: Credential) -> plutus.Constr:
    return plutus.Constr(1 if credential.script else 0, (credential.hash,))
