"""What hosts of one mesh ask each other to try a path: a datagram there, and one back.

Both bear a MAC under what only the two WireGuard keys give, and the number of the question: who
answers has the key that the order names and was reached by that path. An answer is no longer than
its question.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nacl.bindings import crypto_scalarmult

from marketplace.domain.work.mesh_relay import PING as MAGIC

_HEAD: Final = struct.Struct("!4sBBQ")
_MAC: Final = 16
SIZE: Final = _HEAD.size + _MAC


class Kind(IntEnum):
    """Question or answer."""

    PING = 1
    PONG = 2


@dataclass(frozen=True, slots=True)
class Probe:
    """By *member*, with *number*."""

    kind: Kind
    member: int
    number: int

    def to_bytes(self, key: bytes) -> bytes:
        """One datagram."""
        head = _HEAD.pack(MAGIC, self.kind, self.member, self.number)
        return head + _mac(key, head)


def read(data: bytes) -> Probe | None:
    """What it says, whoever made it; None for anything else."""
    if len(data) != SIZE or not data.startswith(MAGIC):
        return None
    _, kind, member, number = _HEAD.unpack_from(data)
    return Probe(Kind(kind), member, number) if kind in tuple(Kind) else None


def proven(data: bytes, key: bytes) -> bool:
    """Whether who has *key* made it."""
    return hmac.compare_digest(data[-_MAC:], _mac(key, data[:-_MAC]))


def key_with(private: bytes, peer: bytes) -> bytes:
    """Of the two who have these keys, the same for both; RuntimeError for a *peer* that is no key
    (of low order).
    """
    shared = crypto_scalarmult(private, peer)
    return hashlib.blake2s(b"tally/mesh-probe/v1", key=shared).digest()


def _mac(key: bytes, head: bytes) -> bytes:
    return hashlib.blake2s(head, key=key, digest_size=_MAC).digest()
