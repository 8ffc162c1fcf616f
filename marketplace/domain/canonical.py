"""Canonical CBOR (RFC 8949 §4.2.1): one value, one byte string, so that it can be signed."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from typing import Any, cast

import cbor2

from marketplace.domain import cbor
from marketplace.domain.errors import Malformed


def encode(value: object) -> bytes:
    """*value* as canonical CBOR."""
    return cbor2.dumps(value, canonical=True)


def decode(data: bytes, limits: cbor.Limits = cbor.FRAME) -> Any:
    """The value of *data*; :class:`Malformed` unless it is exactly what :func:`encode` writes."""
    value = cbor.strict(data, limits)
    if encode(value) != data:
        raise Malformed("CBOR is not canonical, or bytes follow it")
    return value


def decode_tagged(
    data: bytes, tag: str, length: int, limits: cbor.Limits = cbor.RECORD
) -> list[Any]:
    """The fields after *tag* of a signed record: an array whose first element is its domain tag."""
    value = decode(data, limits)
    if not isinstance(value, list):
        raise Malformed(f"expected {tag}")
    fields = cast(list[Any], value)
    if len(fields) != length + 1 or fields[0] != tag:
        raise Malformed(f"expected {tag} with {length} fields")
    return fields[1:]


def blake2b_256(data: bytes) -> bytes:
    """32 bytes."""
    return hashlib.blake2b(data, digest_size=32).digest()


def blake2b_224(data: bytes) -> bytes:
    """28 bytes: what Cardano calls a key, script or address hash."""
    return hashlib.blake2b(data, digest_size=28).digest()


def want_bytes(value: object, length: int | None, name: str) -> bytes:
    """*value* if it is bytes of *length*."""
    if not isinstance(value, bytes) or (length is not None and len(value) != length):
        raise Malformed(f"{name} is not {length if length is not None else 'a'} bytes")
    return value


def want_int(value: object, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """*value* if it is an integer within [least, most]."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Malformed(f"{name} is not an integer within [{least}, {most}]")
    return value


def want_text(value: object, name: str, most: int = 4096) -> str:
    """*value* if it is text of at most *most* characters that every store and CBOR can hold: no
    NUL, no half of a surrogate pair.
    """
    if not isinstance(value, str) or len(value) > most:
        raise Malformed(f"{name} is not text of at most {most} characters")
    if "\x00" in value or not (value.isascii() or _is_utf8(value)):
        raise Malformed(f"{name} holds characters that are not text")
    return value


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def want_list(value: object, length: int, name: str) -> list[Any]:
    """*value* if it is a list of exactly *length* elements."""
    if not isinstance(value, list):
        raise Malformed(f"{name} is not a list")
    items = cast(list[Any], value)
    if len(items) != length:
        raise Malformed(f"{name} has {len(items)} fields, expected {length}")
    return items


def want_map(value: object, name: str) -> dict[str, Any]:
    """*value* if it is a map; its keys are whatever they are."""
    if not isinstance(value, dict):
        raise Malformed(f"{name} is not a map")
    return cast(dict[str, Any], value)


def want_fields(
    value: object, name: str, needed: Set[str], optional: Set[str] = frozenset()
) -> dict[str, Any]:
    """*value* if it is a map with every key of *needed*, any of *optional*, and no other."""
    found = want_map(value, name)
    if lacking := sorted(needed - found.keys()):
        raise Malformed(f"{name} lacks {lacking[0]}")
    if unknown := sorted(str(one) for one in found.keys() - needed - optional):
        raise Malformed(f"{name} has a field that is not known here: {unknown[0][:40]}")
    return found


def want_items(value: object, name: str, most: int) -> list[object]:
    """*value* if it is a list of at most *most* elements."""
    if not isinstance(value, list):
        raise Malformed(f"{name} is not a list")
    items = cast(list[object], value)
    if len(items) > most:
        raise Malformed(f"{name} has {len(items)} entries; at most {most}")
    return items


def want_texts(value: object, name: str, most: int) -> tuple[str, ...]:
    """*value* if it is a list of at most *most* texts."""
    return tuple(want_text(x, name, 32_768) for x in want_items(value, name, most))


def want_text_map(
    value: object, name: str, most: int, beside: Set[str] = frozenset()
) -> dict[str, str]:
    """*value* if it is a map of at most *most* texts by name, keys of *beside* not counted."""
    found = want_map(value, name)
    if len(found.keys() - beside) > most:
        raise Malformed(f"{name} has {len(found)} entries; at most {most}")
    return {want_text(k, name, 256): want_text(v, name, 32_768) for k, v in found.items()}


def want_flag(value: object, name: str) -> bool:
    """*value* if it is true or false."""
    if not isinstance(value, bool):
        raise Malformed(f"{name} is neither true nor false")
    return value
