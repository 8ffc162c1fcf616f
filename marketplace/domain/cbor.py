"""CBOR of strangers (RFC 8949), judged while it is walked: in time linear in its length, without
recursion, and with :class:`Malformed` as the only way to fail.

Two profiles. :func:`strict` is what we write ourselves, frames and signed records: maps with text
keys, lists, integers of 64 bits, bytes, text, true, false, null; lengths known; no tags.
:func:`ledger` is what a ledger takes: any head, open and chunked forms, big integers, tags, and
keys of other types; its limits are on length, depth and count alone.

What a general decoder does on the way is what these exist to avoid: keys chosen to share one hash
make a map quadratic, and tags call regular expressions, decimals, dates and sockets' addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from cbor2 import CBORTag

from marketplace.domain.errors import Malformed


class Unfinished(Malformed):
    """It may go on: of a value that comes in parts, not all is here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """*length* in bytes; *items*: values, keys and tags together, and no more than *spare* and one
    for every *dense* bytes; *depth*: lists, maps and tags within one another; *entries* of one map
    whose keys' hashes anybody can choose."""

    length: int
    items: int
    depth: int
    entries: int
    tags: bool = True
    spare: int = 1_100  # a job's command may be 1,024 empty words
    dense: int = 2


FRAME: Final = Limits(1 << 20, 16_384, 8, 1_024, tags=False)
RECORD: Final = Limits(1 << 20, 16_384, 8, 1_024, tags=False, spare=64, dense=3)
"""Receipts and terms: keys, hashes and amounts."""
NUMBERS: Final = Limits(1 << 14, 512, 4, 0, tags=False, spare=512)
"""A record of small numbers alone, many to a byte: whom a member of a cluster hears."""
HELLO: Final = Limits(4_096, 64, 8, 16, tags=False)
"""What is taken of somebody who has not proven a key: hello and proof have 17 items at most."""
LEDGER: Final = Limits(1 << 16, 16_384, 64, 128)
"""Transactions (16 KiB on public networks), outputs, witness sets, datums and redeemers."""
COSE: Final = Limits(4_096, 256, 8, 32, tags=False)
"""A wallet's signature and key (CIP-8)."""

_LARGEST_KEY: Final = 1 << 60  # beyond it integers share their hashes with smaller ones
_BIG: Final = (2, 3)  # the tags of integers beyond 64 bits
_SIMPLE: Final = {0xF4: False, 0xF5: True, 0xF6: None}
_END: Final[Any] = object()
_NO_KEY: Final[Any] = object()


_KEY_NO_TEXT: Final = "a key in CBOR is not text"
_KEY_TWICE: Final = "a map in CBOR has one key twice"

_LIST: Any = list
"""Untyped, so that asking for it narrows nothing: what is open holds whatever came."""


def strict(data: bytes, limits: Limits = FRAME) -> Any:
    """The value of *data*, all of it; :class:`Malformed` for anything that we never write."""
    if len(data) > limits.length:
        raise Malformed(f"CBOR of {len(data)} bytes; at most {limits.length} are taken here")
    try:
        value, at = _strict(data, limits)
    except IndexError as error:
        raise Malformed("CBOR ends early") from error
    except UnicodeDecodeError as error:
        raise Malformed("text in CBOR is not UTF-8") from error
    if at != len(data):
        raise Malformed("bytes follow the CBOR")
    return value


def _strict(data: bytes, limits: Limits) -> tuple[Any, int]:  # noqa: C901 (one loop, and no call but for a list or a map: strangers' bytes are read at its pace)
    """The first value in *data* and where it ends; IndexError where a head is missing."""
    size = len(data)
    items = most = min(limits.items, limits.spare + size // limits.dense)
    stack: list[tuple[Any, int, Any]] = []
    root: list[Any] = []  # around the value itself
    into: Any = cast(Any, root)  # the open list or map
    left, at, key = 1, 0, _NO_KEY
    while left:
        head = data[at]
        at += 1
        items -= 1
        if items < 0:
            raise Malformed(f"CBOR of more than {most} items")
        kind, number = head >> 5, head & 31
        if number > 23:
            if number > 27:
                raise Malformed("CBOR of unknown length, or a head that is none")
            end = at + (1 << (number - 24))
            if end > size:
                raise Malformed("CBOR ends early")
            number = int.from_bytes(data[at:end], "big")
            at = end
        value: Any = number
        if kind == 3 or kind == 2:
            end = at + number
            if end > size:
                raise Malformed("CBOR ends early")
            value = data[at:end] if kind == 2 else data[at:end].decode()
            at = end
        elif kind == 4 or kind == 5:
            value = _begun(kind, number, size - at, len(stack), limits)
            if number:
                if key is _NO_KEY and type(into) is not _LIST:
                    raise Malformed(_KEY_NO_TEXT)
                stack.append((into, left, key))
                into, left, key = value, number, _NO_KEY
                continue
        elif kind:
            value = -1 - number if kind == 1 else _simple(head)
        while True:  # put it in its place, and each list or map that it completes
            if key is not _NO_KEY:
                into[key] = value
                key = _NO_KEY
            elif type(into) is _LIST:
                into.append(value)
            elif type(value) is not str or value in into:
                raise Malformed(_KEY_TWICE if type(value) is str else _KEY_NO_TEXT)
            else:
                key = value
                break
            left -= 1
            if left or not stack:
                break
            value = into
            into, left, key = stack.pop()
    return root[0], at


def _begun(kind: int, number: int, room: int, depth: int, limits: Limits) -> Any:
    """An empty list (4) or map (5) for *number* items or pairs, if so many may come here."""
    if number << (kind - 4) > room:
        raise Malformed("CBOR ends early")
    if depth >= limits.depth:
        raise Malformed(f"CBOR nested more than {limits.depth} deep")
    if kind == 4:
        return []
    if number > limits.entries:
        raise Malformed(f"a map in CBOR has more than {limits.entries} entries")
    return {}


def _simple(head: int) -> bool | None:
    if head not in _SIMPLE:
        raise Malformed("CBOR holds a tag, a float or a simple value")
    return _SIMPLE[head]


@dataclass(slots=True)
class _Open:
    """A list (4), map (5) or tag (6) whose items are being read; *left* is None until a break.

    *frozen*: it is, or is within, a key of a map, and so has to be hashed.
    """

    kind: int
    left: int | None
    frozen: bool
    tag: int
    found: list[Any]


def ledger(data: bytes, limits: Limits = LEDGER) -> Any:
    """The value of *data*, all of it, as a ledger may hold it: tags 2 and 3 are integers, other
    tags :class:`cbor2.CBORTag`; lists within keys are tuples; of a key that stands twice the last
    counts.
    """
    if len(data) > limits.length:
        raise Malformed(f"CBOR of {len(data)} bytes; at most {limits.length} are taken here")
    value, at = _ledger(data, limits)
    if at != len(data):
        raise Malformed("bytes follow the CBOR")
    return value


def first(data: bytes, limits: Limits = LEDGER) -> tuple[Any, int]:
    """The value that *data* begins with, as :func:`ledger` reads it, and where it ends;
    :class:`Unfinished` where it does not.
    """
    if len(data) > limits.length:
        raise Malformed(f"CBOR of {len(data)} bytes; at most {limits.length} are taken here")
    return _ledger(data, limits)


def _ledger(data: bytes, limits: Limits) -> tuple[Any, int]:
    items, at, stack = limits.items, 0, [_Open(4, 1, False, 0, [])]
    while True:
        top = stack[-1]
        items -= 1
        if items < 0:
            raise Malformed(f"CBOR of more than {limits.items} items")
        if top.left is None and data[at : at + 1] == b"\xff":
            at += 1
            value: Any = _close(stack.pop(), limits)
        else:
            kind, number, at = _head(data, at)
            if number == 0 and (kind == 4 or kind == 5):
                value = _empty(kind, top)
            elif kind >= 4 and kind != 7:
                stack.append(_opened(kind, number, top, len(data) - at, len(stack), limits))
                value = _END
            else:
                value, at = _leaf(data, kind, number, at)
        while True:
            top = stack[-1]
            if value is not _END:
                top.found.append(value)
                if top.left is not None:
                    top.left -= 1
            if top.left != 0:
                break
            if len(stack) == 1:
                return top.found[0], at
            value = _close(stack.pop(), limits)


def _head(data: bytes, at: int) -> tuple[int, int | None, int]:
    """(type, number or None for an open one, where the content begins); 7 only for simple
    values.
    """
    if at >= len(data):
        raise Unfinished("CBOR ends early")
    head = data[at]
    kind, number, at = head >> 5, head & 31, at + 1
    if kind == 7:
        if head not in _SIMPLE:
            raise Malformed("CBOR holds a float, a simple value or a stray break")
        return 7, head, at
    if number < 24:
        return kind, number, at
    if number == 31 and kind in (2, 3, 4, 5):
        return kind, None, at
    end = at + (1 << (number - 24))
    if number > 27:
        raise Malformed("CBOR with a head that is none")
    if end > len(data):
        raise Unfinished("CBOR ends early")
    return kind, int.from_bytes(data[at:end], "big"), end


def _opened(
    kind: int, number: int | None, top: _Open, room: int, depth: int, limits: Limits
) -> _Open:
    if depth > limits.depth:
        raise Malformed(f"CBOR nested more than {limits.depth} deep")
    frozen = _in_key(top)
    if kind == 6:
        if not limits.tags or number is None:
            raise Malformed("CBOR holds a tag where none may be")
        return _Open(6, 1, frozen, number, [])
    count = None if number is None else number << (kind - 4)
    if count is not None and count > room:
        raise Unfinished("CBOR ends early")
    return _Open(kind, count, frozen, 0, [])


def _in_key(top: _Open) -> bool:
    return top.frozen or (top.kind == 5 and len(top.found) % 2 == 0)


def _empty(kind: int, top: _Open) -> Any:
    if not _in_key(top):
        return [] if kind == 4 else {}
    if kind == 5:
        raise Malformed("a key in CBOR is a map")
    return ()


def _leaf(data: bytes, kind: int, number: int | None, at: int) -> tuple[Any, int]:
    """An integer, bytes, text, true, false or null, and where it ends."""
    if kind == 7:
        return _SIMPLE[cast(int, number)], at
    if kind < 2:
        assert number is not None
        return (number if kind == 0 else -1 - number), at
    if number == 0:
        return (b"" if kind == 2 else ""), at
    if number is not None:
        return _string(data, kind, at, number), at + number
    pieces: list[Any] = []
    while data[at : at + 1] != b"\xff":
        piece, number, at = _head(data, at)
        if piece != kind or number is None:
            raise Malformed("an open string in CBOR has strange pieces")
        pieces.append(_string(data, kind, at, number))
        at += number
    return (b"" if kind == 2 else "").join(pieces), at + 1


def _string(data: bytes, kind: int, at: int, size: int) -> bytes | str:
    if size > len(data) - at:
        raise Unfinished("CBOR ends early")
    raw = data[at : at + size]
    if kind == 2:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Malformed("text in CBOR is not UTF-8") from error


def _close(done: _Open, limits: Limits) -> Any:
    """The value of a list, map or tag whose items are all there."""
    found = done.found
    if done.kind == 4:
        return tuple(found) if done.frozen else found
    if done.kind == 6:
        (value,) = found
        if done.tag in _BIG:
            if not isinstance(value, bytes):
                raise Malformed("a big integer in CBOR is not bytes")
            number = int.from_bytes(value, "big")
            return number if done.tag == 2 else -1 - number
        if done.frozen:
            raise Malformed("a key in CBOR holds a tag")
        return CBORTag(done.tag, value)
    if done.frozen or len(found) % 2:
        raise Malformed("a key in CBOR is a map, or lacks its value")
    keys = found[::2]
    odd = [key for key in keys if not isinstance(key, (bytes, str))]
    if len(odd) > limits.entries or any(
        isinstance(key, int) and abs(key) > _LARGEST_KEY for key in odd
    ):
        raise Malformed("a map in CBOR has too many keys that are neither bytes nor text")
    return dict(zip(keys, found[1::2], strict=True))
