"""What a host has of images, as it tells its market: the first bytes of digests, sorted.

A digest is random already, so its first eight bytes are a filter: of 4096 things none is taken for
another by chance, and whoever does not know a digest learns nothing of it. A market that knows an
image's digest may ask whether a host has it, as it could by a lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.work.image_names import DIGEST

PRINT: Final = 8
MOST_HELD: Final = 4096
"""Images and layers that a host tells of: 32 KiB."""


def print_of(digest: str) -> bytes:
    """The first bytes of ``sha256:…``; :class:`Malformed`."""
    if not DIGEST.fullmatch(digest):
        raise Malformed(f"{digest[:80]!r} is no digest: sha256: and 64 hexadecimal digits")
    return bytes.fromhex(digest[7 : 7 + 2 * PRINT])


def digest_of(image: str) -> str:
    """The digest by which a job names *image*; "" where it runs none."""
    return image if image.startswith("sha256:") else image.partition("@")[2]


def pack(prints: Iterable[bytes]) -> bytes:
    """*prints* for the wire."""
    return b"".join(sorted(set(prints)))


def unpack(held: bytes) -> frozenset[bytes]:
    """The reverse; :class:`Malformed` unless each is there once, in order, and no more than
    :data:`MOST_HELD`.
    """
    if len(held) % PRINT or len(held) > MOST_HELD * PRINT:
        raise Malformed(f"what a host holds is at most {MOST_HELD} times {PRINT} bytes")
    found = [held[at : at + PRINT] for at in range(0, len(held), PRINT)]
    if any(a >= b for a, b in pairwise(found)):
        raise Malformed("what a host holds is not sorted, or says one thing twice")
    return frozenset(found)
