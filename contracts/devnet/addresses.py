"""Addresses as the face shows them: bech32 text, payment credential, stake address. Sources:
CIP-19, CIP-5, CIP-14.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cbor2
from pycardano.crypto import bech32

_bech32: Any = bech32  # without types
_decode: Callable[[str], list[int] | None] = _bech32.decode
_encode: Callable[[str, bytes], str | None] = _bech32.encode

_TESTNET = 0
_BYRON = 8
_MAGIC_ATTRIBUTE = 2
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_LONGEST_BASE58 = 256
_CREDENTIAL_PREFIXES = {"addr_vkh": False, "script": True, "addr_shared_vkh": True}


class BadAddress(ValueError):
    """Not an address of this network, or not an address at all."""


@dataclass(frozen=True, slots=True)
class Address:
    """What an output can be paid to. payment: 28-byte credential hash in hex, "" of a Byron
    address; stake_address: bech32, of a base address only; testnet: which kind of network it
    belongs to.
    """

    text: str
    payment: str
    is_script: bool
    stake_address: str | None
    testnet: bool = True


@lru_cache(maxsize=16384)
def describe(raw: bytes) -> Address:
    """Describes the bytes of an output's address. Raises ``BadAddress`` for a reward address and
    malformed bytes.

    As strict as the ledger's decoder since Babbage: nothing may follow, and a network is 0 or 1.
    """
    kind = raw[0] >> 4 if raw else 15
    if kind == _BYRON:
        return _byron(raw)
    if kind > 7:
        raise BadAddress("only payment addresses can be paid to")
    network = raw[0] & 15
    if (
        network > 1
        or len(raw) < 29
        or (kind not in (4, 5) and len(raw) != (57 if kind < 4 else 29))
    ):
        raise BadAddress("malformed address")
    if kind in (4, 5):
        _pointer(raw[29:])
    stake = stake_address(raw[29:57], is_script=kind >= 2) if kind < 4 else None
    prefix = "addr_test" if network == _TESTNET else "addr"
    text = _text(prefix, raw)
    return Address(text, raw[1:29].hex(), bool(kind & 1), stake, network == _TESTNET)


def _pointer(raw: bytes) -> None:
    """Slot, transaction and certificate, each in base 128 with the high bit on all but its last
    byte.
    """
    if not raw or raw[-1] & 0x80 or sum(not one & 0x80 for one in raw) != 3:
        raise BadAddress("malformed pointer address")


def _byron(raw: bytes) -> Address:
    """A bootstrap address (byron.cddl): [#6.24(bytes .cbor [root, attributes, kind]), crc32];
    base58 is its text.
    """
    try:
        tagged, crc = cbor2.loads(raw)
        root, attributes, _ = cbor2.loads(tagged.value)
        whole = cbor2.dumps([cbor2.CBORTag(24, tagged.value), crc]) == raw
        if not whole or tagged.tag != 24 or zlib.crc32(tagged.value) != crc or len(root) != 28:
            raise BadAddress("malformed Byron address")
        magic = attributes.get(_MAGIC_ATTRIBUTE)
    except BadAddress:
        raise
    except Exception as problem:  # any bytes may stand here, and cbor2 raises many kinds
        raise BadAddress("malformed Byron address") from problem
    return Address(_base58(raw), "", False, None, testnet=magic is not None)


def _base58(raw: bytes) -> str:
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return _BASE58[0] * (len(raw) - len(raw.lstrip(b"\0"))) + text


def byron_bytes(text: str) -> bytes:
    """The bytes of a Byron address in base58. Raises ``BadAddress``."""
    number = 0
    for letter in text:
        digit = _BASE58.find(letter)
        if digit < 0 or len(text) > _LONGEST_BASE58:
            raise BadAddress("Invalid address for this network or malformed address format.")
        number = number * 58 + digit
    raw = number.to_bytes(-(-number.bit_length() // 8), "big")
    if not describe(raw).testnet:
        raise BadAddress("Invalid address for this network or malformed address format.")
    return raw


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
    """What to look outputs up by: ("address", text) or, for a credential in bech32 (CIP-5),
    ("payment", hex).

    Raises ``BadAddress``.
    """
    for prefix in _CREDENTIAL_PREFIXES:
        if text.startswith(prefix + "1"):
            raw = decode(text, prefix)
            if len(raw) != 28:
                raise BadAddress("Invalid address for this network or malformed address format.")
            return "payment", raw.hex()
    if not text.startswith("addr"):
        byron_bytes(text)
        return "address", text
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
