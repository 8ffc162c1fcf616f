"""Where the items of a CBOR value begin and end, so that ids and hashes are taken over the very
bytes that were signed.

Decoding and encoding again may change bytes (order, widths, indefinite lengths); a ledger hashes
what it was sent. RFC 8949.
"""

from __future__ import annotations

_BREAK = 0xFF
_SET_TAG = 258


def head(data: bytes, at: int) -> tuple[int, int | None, int]:
    """(major type, argument or None if indefinite, position after the head). Raises ValueError on
    malformed CBOR.
    """
    if at >= len(data):
        raise ValueError("CBOR ends too early")
    major, low = data[at] >> 5, data[at] & 31
    if low < 24:
        return major, low, at + 1
    if low == 31:
        return major, None, at + 1
    if low > 27:
        raise ValueError("reserved CBOR length")
    size = 1 << (low - 24)
    if at + 1 + size > len(data):
        raise ValueError("CBOR ends too early")
    return major, int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def end(data: bytes, at: int) -> int:
    """The position after the item that begins at ``at``."""
    major, argument, at = head(data, at)
    if major in (0, 1):
        return at
    if major in (2, 3):
        if argument is not None:
            if at + argument > len(data):
                raise ValueError("CBOR ends too early")
            return at + argument
        while not _at_break(data, at):
            at = end(data, at)
        return at + 1
    if major in (4, 5):
        if argument is None:
            while not _at_break(data, at):
                at = end(data, at)
            return at + 1
        for _ in range(argument * (2 if major == 5 else 1)):
            at = end(data, at)
        return at
    if major == 6:
        return end(data, at)
    return at  # simple values and floats: their bytes were the head's argument


def elements(data: bytes) -> list[bytes]:
    """The raw elements of an array; the tag of a set (258) is looked through. Raises ValueError if
    it is no array.
    """
    major, argument, at = head(data, 0)
    if major == 6 and argument == _SET_TAG:
        major, argument, at = head(data, at)
    if major != 4:
        raise ValueError("expected a CBOR array")
    return _items(data, at, argument)


def pairs(data: bytes) -> list[tuple[bytes, bytes]]:
    """The raw keys and values of a map. Raises ValueError if it is no map."""
    major, argument, at = head(data, 0)
    if major != 5:
        raise ValueError("expected a CBOR map")
    items = _items(data, at, None if argument is None else argument * 2)
    return list(zip(items[::2], items[1::2], strict=True))


def uint(data: bytes) -> int:
    """An unsigned integer. Raises ValueError if the item is something else."""
    major, argument, _ = head(data, 0)
    if major != 0 or argument is None:
        raise ValueError("expected an unsigned CBOR integer")
    return argument


def is_map(data: bytes) -> bool:
    return head(data, 0)[0] == 5


def _items(data: bytes, at: int, count: int | None) -> list[bytes]:
    items: list[bytes] = []
    while count is None or len(items) < count:
        if count is None and _at_break(data, at):
            break
        stop = end(data, at)
        items.append(data[at:stop])
        at = stop
    return items


def _at_break(data: bytes, at: int) -> bool:
    if at >= len(data):
        raise ValueError("CBOR ends too early")
    return data[at] == _BREAK
