"""Addresses as bytes (CIP-19) and text (Bech32), and what the channel makes of them.

Inside the product an address is its bytes; :class:`~marketplace.domain.money.address.Address` is
one taken apart, without its network. Byron and pointer addresses are refused: the contract rebuilds
addresses, and wallets of today make neither.
"""

from __future__ import annotations

from typing import Final

from marketplace.chain.encoding import bech32
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Address, Credential

_STAKE: Final = 14  # header types from here on are reward accounts


def join(address: Address, mainnet: bool) -> bytes:
    """The bytes of *address*: CIP-19 header, payment part, stake part."""
    stake = address.stake
    kind = (0 if stake else 6) | address.payment.is_script
    kind |= 2 if stake is not None and stake.is_script else 0
    return bytes([kind << 4 | mainnet]) + address.payment.hash + (stake.hash if stake else b"")


def is_mainnet(address: bytes) -> bool:
    """By the network id in its header; :class:`Malformed` for an address of neither."""
    Address.parse(address)
    if address[0] & 15 > 1:
        raise Malformed("the address is of no known network")
    return address[0] & 15 == 1


def from_text(text: str) -> bytes:
    """The bytes of a Bech32 base or enterprise address; :class:`Malformed` for anything else."""
    try:
        prefix, address = bech32.decode(text)
    except Malformed as error:
        raise Malformed(f"{text[:120]!r} is not a Cardano address: {error.message}") from error
    if prefix != ("addr" if is_mainnet(address) else "addr_test"):
        raise Malformed(f"{text[:120]!r} is not a Cardano address")
    return address


def to_text(address: bytes) -> str:
    """Bech32, under the prefix of its type and network (CIP-5)."""
    kind = "stake" if address[0] >> 4 >= _STAKE else "addr"
    return bech32.encode(kind if address[0] & 15 == 1 else f"{kind}_test", address)


def lenient_bytes(text: str) -> bytes:
    """The bytes of any address that the chain shows; Byron's (never ours) stay text."""
    try:
        return bech32.decode(text)[1]
    except Malformed:
        return text.encode()


def key_address(payment: bytes, stake: bytes | None, mainnet: bool) -> bytes:
    """The address of a key, with the stake part of a key if *stake* is given."""
    part = None if stake is None else Credential(stake)
    return join(Address(Credential(payment), part), mainnet)


def channel_address(stub_hash: bytes, stake: Credential | None, mainnet: bool) -> bytes:
    """Where a consumer's channels are: the stub with the consumer's stake part."""
    return join(Address(Credential(stub_hash, True), stake), mainnet)


def stake_account(script_hash: bytes, mainnet: bool) -> bytes:
    """The reward account of a script, for withdrawals and registration."""
    return bytes([0xF0 | mainnet]) + script_hash


def pay_key_hash(address: bytes) -> bytes:
    """The payment key's hash; :class:`Malformed` for a script's address."""
    payment = Address.parse(address).payment
    if payment.is_script:
        raise Malformed("a key's address is needed here, not a script's")
    return payment.hash


def payout_hash(address: bytes) -> bytes:
    """``payout`` of the datum: 28 bytes for any address that the provider chose."""
    return Address.parse(address).payout()
