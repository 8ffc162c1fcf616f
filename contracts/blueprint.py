"""The deployed scripts, from ``plutus.json`` alone (no compiler at run time).

``ada()`` and ``token(policy, name)`` give what a transaction needs: both programs as the ledger
takes them (CBOR bytes around flat, Plutus V3) and their hashes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

BLUEPRINT: Final = Path(__file__).resolve().parent / "plutus.json"


@dataclass(frozen=True)
class Scripts:
    """One instance of the channel: ``settle`` for the withdrawal, ``stub`` as the address."""

    settle_cbor: bytes
    stub_cbor: bytes
    settle_hash: bytes
    stub_hash: bytes


def script_hash(script: bytes) -> bytes:
    """The 28-byte hash of a Plutus V3 script."""
    return hashlib.blake2b(b"\x03" + script, digest_size=28).digest()


@lru_cache(maxsize=1)
def _programs() -> dict[str, bytes]:
    document = json.loads(BLUEPRINT.read_text(encoding="utf-8"))
    validators = cast("list[dict[str, str]]", document["validators"])
    return {v["title"]: bytes.fromhex(v["compiledCode"]) for v in validators}


@lru_cache(maxsize=1)
def ada() -> Scripts:
    """The lovelace instance."""
    programs = _programs()
    return _scripts(programs["ada.settle"], programs["ada.stub"])


@lru_cache(maxsize=64)
def token(policy: bytes, name: bytes) -> Scripts:
    """The instance of one native token: ``settle`` applied to (policy, name).

    Raises ``ValueError`` for a policy that is not 28 bytes or a name above 32.
    """
    if len(policy) != 28 or len(name) > 32:
        raise ValueError("a token is a 28-byte policy and a name of at most 32 bytes")
    programs = _programs()
    settle = _apply_two(programs["token.settle"], policy, name)
    # The stub is the ADA instance's with the other hash in its constant, which flat keeps
    # byte-aligned: the same bytes as compiling its source anew.
    stub = programs["ada.stub"].replace(script_hash(programs["ada.settle"]), script_hash(settle))
    return _scripts(settle, stub)


def _scripts(settle: bytes, stub: bytes) -> Scripts:
    return Scripts(settle, stub, script_hash(settle), script_hash(stub))


# --- applying a program to two constants, in flat ---------------------------------------------
# A flat program is three version bytes, the term's bits, and padding (zeros, then a one, to the
# byte).  [[term a] b] is the four bits 0011 twice, the term, and the two constants: the term moves
# by exactly one byte, so the byte-aligned constants inside it stay aligned.  Where the padding
# begins follows from how the term ends: with the constant empty list of pairs (``settle`` binds
# it outermost), whose last bits are a one and five zeros.
_APPLY_TWICE: Final = b"\x33"
_TERM_ENDS: Final = "100000"
_DATA_CONSTANT: Final = "0100" + "1" + "1000" + "0"  # constant; its type: data; end of the type


def _apply_two(program: bytes, first: bytes, second: bytes) -> bytes:
    """*program* applied to two byte strings as Data."""
    inner = _cbor_bytes_content(program)
    bits = "".join(f"{octet:08b}" for octet in inner[3:])
    unpadded = bits.rstrip("0")[:-1].rstrip("0")
    term = unpadded[:-1] + _TERM_ENDS
    for argument in (first, second):
        term = _byte_aligned(term + _DATA_CONSTANT)
        value = _cbor_bytes(argument)
        term += "".join(f"{octet:08b}" for octet in (len(value), *value, 0))
    term = _byte_aligned(term)
    body = bytes(int(term[i : i + 8], 2) for i in range(0, len(term), 8))
    return _cbor_bytes(inner[:3] + _APPLY_TWICE + body)


def _byte_aligned(bits: str) -> str:
    return bits + "0" * (7 - len(bits) % 8) + "1"


def _cbor_bytes(content: bytes) -> bytes:
    size = len(content)
    if size < 24:
        return bytes([0x40 + size]) + content
    if size < 256:
        return bytes([0x58, size]) + content
    return b"\x59" + size.to_bytes(2, "big") + content


def _cbor_bytes_content(encoded: bytes) -> bytes:
    if encoded[0] != 0x59:
        raise ValueError("expected a CBOR byte string of 256 to 65535 bytes")
    return encoded[3:]
