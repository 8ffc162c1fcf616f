"""CBOR as slices of the bytes that were received (RFC 8949 §3): nothing is decoded, nothing
recurses.

Whatever a ledger accepts can be walked here, in every encoding and however deeply it is nested.
"""

from __future__ import annotations

from marketplace.domain.errors import Malformed


def skip(raw: bytes, at: int) -> int:
    """Where the item that begins at *at* ends."""
    to_come: list[int | None] = [1]  # items at each open level; None: until a break
    while to_come:
        left = to_come[-1]
        if left == 0 or (left is None and raw[at : at + 1] == b"\xff"):
            to_come.pop()
            at += left is None
            continue
        if left is not None:
            to_come[-1] = left - 1
        kind, number, at = head_of(raw, at)
        match kind:
            case 2 | 3 if number is not None:
                at += number
                if at > len(raw):
                    raise Malformed("CBOR ends early")
            case 2 | 3 | 4:
                to_come.append(number)
            case 5:
                to_come.append(None if number is None else 2 * number)
            case 6:
                to_come.append(1)
            case _:
                pass
    return at


def items(raw: bytes, at: int = 0, major: int = 4) -> list[bytes]:
    """The items of the array at *at* (with *major* 5, a map's keys and values in turn)."""
    kind, count, at = head_of(raw, at)
    if kind != major:
        raise Malformed("CBOR of another type than expected")
    left = None if count is None else count * (2 if major == 5 else 1)
    found: list[bytes] = []
    while raw[at : at + 1] != b"\xff" if left is None else len(found) < left:
        end = skip(raw, at)
        found.append(raw[at:end])
        at = end
    if major == 5 and len(found) % 2:
        raise Malformed("a CBOR map with a key without a value")
    return found


def head_of(raw: bytes, at: int) -> tuple[int, int | None, int]:
    """(major type, number, where the content begins); the number is None where a break ends it."""
    if at >= len(raw):
        raise Malformed("CBOR ends early")
    kind, info = raw[at] >> 5, raw[at] & 31
    if info < 24:
        return kind, info, at + 1
    if info == 31 and kind in (2, 3, 4, 5):
        return kind, None, at + 1
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(info)
    if size is None or at + 1 + size > len(raw):
        raise Malformed("CBOR ends early, or with a stray break")
    return kind, int.from_bytes(raw[at + 1 : at + 1 + size], "big"), at + 1 + size
