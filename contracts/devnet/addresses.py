"""Addresses as the face shows them: bech32 text, payment credential, stake address. Sources: CIP-19, CIP-5, CIP-14."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from pycardano.crypto.bech32 import decode as _decode
from pycardano.crypto.bech32 import encode as _encode

_TESTNET = 0
_CREDENTIAL_PREFIXES = {"addr_vkh": False, "script": True, "addr_shared_vkh": True}


class BadAddress(ValueError):
    """Not an address of this network, or not an address at all."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Shelley address. payment, stake: 28-byte credential hashes in hex; stake_address: bech32, of a base address only."""

    text: str
    payment: str
    is_script: bool
    stake_address: str | None


@lru_cache(maxsize=16384)
def describe(raw: bytes) -> Address:
    """Describes the bytes of an output's address. Raises ``BadAddress`` for Byron and malformed ones."""
    kind = raw[0] >> 4 if raw else 15
    if kind > 7 or len(raw) < 29:
        raise BadAddress("only Shelley payment addresses are indexed")
    prefix = "addr_test" if raw[0] & 15 == _TESTNET else "addr"
    stake = None
    if kind < 4 and len(raw) == 57:
        stake = stake_address(raw[29:57], is_script=kind >= 2)
    return Address(_text(prefix, raw), raw[1:29].hex(), bool(kind & 1), stake)


def stake_address(credential: bytes, is_script: bool) -> str:
    """The stake address of a 28-byte credential on this test network."""
    return _text("stake_test", bytes([(0xF0 if is_script else 0xE0) | _TESTNET]) + credential)


def stake_credential(text: str) -> tuple[bool, bytes]:
    """(is a script, 28-byte hash) of a stake address of this network. Raises ``BadAddress``."""
    raw = decode(text, "stake_test")
    if len(raw) != 29 or raw[0] not in (0xE0, 0xF0):
        raise BadAddress("Invalid or malformed stake address format.")
    return raw[0] == 0xF0, raw[1:]


def payment_key(text: str) -> tuple[str, str | bool]:
    """What to look outputs up by: ("address", text) or, for a credential in bech32 (CIP-5), ("payment", hex).

    Raises ``BadAddress``.
    """
    for prefix in _CREDENTIAL_PREFIXES:
        if text.startswith(prefix + "1"):
            raw = decode(text, prefix)
            if len(raw) != 28:
                raise BadAddress("Invalid address for this network or malformed address format.")
            return "payment", raw.hex()
    describe(decode(text, "addr_test"))
    return "address", text


def decode(text: str, prefix: str) -> bytes:
    """The bytes of a bech32 text with this prefix. Raises ``BadAddress``."""
    try:
        raw = _decode(text) if text.startswith(prefix + "1") else None
    except Exception as problem:  # the library raises several kinds for malformed text
        raise BadAddress(
            "Invalid address for this network or malformed address format."
        ) from problem
    if raw is None:
        raise BadAddress("Invalid address for this network or malformed address format.")
    return bytes(raw)


def fingerprint(policy: str, name: str) -> str:
    """CIP-14 fingerprint of an asset; policy and name in hex."""
    digest = hashlib.blake2b(bytes.fromhex(policy + name), digest_size=20).digest()
    return _text("asset", digest)


def pool_id(key_hash: bytes) -> str:
    return _text("pool", key_hash)


def drep_id(key_hash: bytes, is_script: bool) -> str:
    """A DRep as CIP-129 writes it: with a header byte, one prefix for keys and scripts."""
    return _text("drep", bytes([0x23 if is_script else 0x22]) + key_hash)


def _text(prefix: str, raw: bytes) -> str:
    text = _encode(prefix, raw)
    assert text is not None
    return text
