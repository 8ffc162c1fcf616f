"""A Merkle tree over readings that grows a leaf at a time and keeps only its peaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marketplace.domain import canonical


@dataclass(frozen=True, slots=True)
class MerkleLog:
    """The root over all readings, kept in logarithmic space (RFC 9162 tree shape, blake2b_256).

    *peaks* are the roots of the perfect subtrees, largest first; their sizes are the bits of
    *size*.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def add(self, leaf: bytes) -> MerkleLog:
        """The log with one more leaf."""
        peaks, size = list(self.peaks), self.size
        node = leaf
        while size & 1:
            node = canonical.blake2b_256(b"\x01" + peaks.pop() + node)
            size >>= 1
        return MerkleLog(self.size + 1, (*peaks, node))

    @property
    def root(self) -> bytes:
        """32 bytes; of an empty log, the hash of nothing."""
        if not self.peaks:
            return canonical.blake2b_256(b"")
        node = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            node = canonical.blake2b_256(b"\x01" + peak + node)
        return node


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """The root over *leaves*, for a verifier that holds them all."""
    log = MerkleLog()
    for leaf in leaves:
        log = log.add(leaf)
    return log.root
