"""WireGuard's key pair of one lease: made here, kept in a file of its own, removed with the lease.

Each lease has a fresh one, so that an order which names the key of an earlier lease lets nobody in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nacl.public import PrivateKey

from marketplace import disk


@dataclass(frozen=True)
class MeshKey:
    """32 bytes each; *private* is never printed."""

    private: bytes = field(repr=False)
    public: bytes


def key_in(folder: Path) -> MeshKey:
    """The lease's key below *folder*, made where there is none: a file that the owner alone reads.
    One that was cut short is made anew: nobody was told of it.
    """
    path = folder / "key"
    try:
        private = path.read_bytes()
    except FileNotFoundError:
        private = b""
    if len(private) != PrivateKey.SIZE:
        private = bytes(PrivateKey.generate())
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        disk.write_whole(path, private)  # 0600
    return MeshKey(private, bytes(PrivateKey(private).public_key))
