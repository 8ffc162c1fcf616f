"""CBOR that can be written in one way only: what is signed must read alike for everybody."""

from __future__ import annotations


def is_plain(raw: bytes) -> bool:
    """Whether every head is in its shortest form and of known length, and no map has a key twice:
    so that there is one way to write each thing, and one to read it.
    """
    end = _plain_item(raw, 0, 0)
    return end == len(raw)


def _plain_item(raw: bytes, at: int, depth: int) -> int:
    """Where the item at *at* ends; -1 if it is not plain."""
    if depth > 32 or at < 0 or at >= len(raw):
        return -1
    major, info = raw[at] >> 5, raw[at] & 31
    at += 1
    if major == 7:
        return at if 20 <= info <= 22 else -1
    if info > 27:
        return -1
    n = info
    if info >= 24:
        size = 1 << (info - 24)
        if at + size > len(raw):
            return -1
        n = int.from_bytes(raw[at : at + size], "big")
        at += size
        if n < (24 if size == 1 else 1 << (4 * size)):
            return -1
    if major <= 1:
        return at
    if major == 6:
        return _plain_item(raw, at, depth + 1)
    if n > len(raw):
        return -1
    if major <= 3:
        return at + n if at + n <= len(raw) else -1
    keys: set[bytes] = set()
    for turn in range(n * (2 if major == 5 else 1)):
        begun, at = at, _plain_item(raw, at, depth + 1)
        if at < 0:
            return -1
        if major == 5 and turn % 2 == 0:
            if raw[begun:at] in keys:
                return -1
            keys.add(raw[begun:at])
    return at
