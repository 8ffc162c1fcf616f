"""What a hop's voucher is made of: one leaf a lease, in a Merkle tree that also sums.

Leaves stand in order of admission; none is ever removed and none shrinks. The tree has RFC 6962's
shape (left: the largest power of two below the count). Every node commits to its sum, so that a
root states the total of what is under it::

    leaf(terms, amount)  = blake2b_256(00 | terms 32 B | amount u64)
    node(left, right)    = blake2b_256(01 | left 32 B | sum u64 | right 32 B | sum u64)

Integers are big-endian; sums are below 2^63.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marketplace.domain.canonical import blake2b_256, want_bytes, want_int
from marketplace.domain.errors import Malformed

MOST_LEAVES: Final = 500
"""Of one hop: a payment may hold them all, and whoever is paid hashes them all."""
_PACKED: Final = 32 + 8


@dataclass(frozen=True)
class Leaf:
    """*amount* lovelace of a hop are for the lease whose terms hash to *terms* (32 bytes).

    The first leaf of a hop into a router is under the hash of the router's offer: its ``hop_fee``.
    """

    terms: bytes
    amount: int


def root(leaves: Sequence[Leaf]) -> bytes:
    """32 bytes over *leaves*, at least one; :class:`Malformed` if a leaf or the sum is none."""
    level: list[tuple[bytes, int]] = []
    for leaf in leaves:
        amount = want_int(leaf.amount, "amount")
        data = want_bytes(leaf.terms, 32, "terms") + amount.to_bytes(8, "big")
        level.append((blake2b_256(b"\x00" + data), amount))
    want_int(len(level), "leaves", 1)
    while len(level) > 1:  # pairs level by level: an odd one goes up as it is, which is that shape
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [_node(left, right) for left, right in pairs] + odd
    return level[0][0]


def total(leaves: Sequence[Leaf]) -> int:
    """The sum of *leaves*, lovelace."""
    return sum(leaf.amount for leaf in leaves)


def pack(leaves: Sequence[Leaf]) -> bytes:
    """For a frame: 40 bytes each, terms and amount (big-endian)."""
    return b"".join(leaf.terms + leaf.amount.to_bytes(8, "big") for leaf in leaves)


def unpack(data: bytes) -> tuple[Leaf, ...]:
    """The reverse; :class:`Malformed` for anything else, and for more than a hop may have."""
    count, rest = divmod(len(data), _PACKED)
    if rest or count > MOST_LEAVES:
        raise Malformed(f"leaves are {_PACKED} bytes each, at most {MOST_LEAVES}")
    ones = (data[at : at + _PACKED] for at in range(0, len(data), _PACKED))
    return tuple(
        Leaf(one[:32], want_int(int.from_bytes(one[32:], "big"), "amount")) for one in ones
    )


def _node(left: tuple[bytes, int], right: tuple[bytes, int]) -> tuple[bytes, int]:
    both = b"\x01" + b"".join(one + amount.to_bytes(8, "big") for one, amount in (left, right))
    return blake2b_256(both), want_int(left[1] + right[1], "the sum of the leaves")
