"""CIP-68: metadata of an asset in the datum of its reference token, as Blockfrost reads it.

Labels (CIP-67) stand in the first four bytes of a token's name; the reference token has label 100
and the same rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import cbor2

from contracts.devnet import cbor

_REFERENCE = "000643b0"
_VERSIONS = (1, 2, 3)
# Fields of the standard, shown as text or numbers; others are shown as CBOR.
_KNOWN = frozenset(
    {"name", "image", "mediaType", "description", "files", "ticker", "url", "logo", "decimals"}
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A label of a token that a user holds. needs: fields without which the metadata is not
    valid.
    """

    needs: tuple[str, ...]
    fungible: bool


_KINDS = {
    "000de140": Kind(("name", "image"), fungible=False),  # 222
    "0014df10": Kind(("name", "description"), fungible=True),  # 333
    "001bc280": Kind(("name", "image"), fungible=True),  # 444
}


@dataclass(frozen=True, slots=True)
class Metadata:
    metadata: dict[str, Any]
    standard: str
    extra: str | None


def kind_of(name: str) -> Kind | None:
    """The kind of a token, by its name in hex; None where it has no label of CIP-68."""
    return _KINDS.get(name[:8])


def reference_name(name: str) -> str:
    """The name of the reference token that describes this one; both in hex."""
    return _REFERENCE + name[8:]


def read(datum: bytes, kind: Kind) -> Metadata | None:
    """Metadata in a datum: constructor 0 of [map, version, extra]. None where it is not valid."""
    try:
        major, tag, at = cbor.head(datum, 0)
        fields = cbor.elements(datum[at:]) if (major, tag) == (6, 121) else []
        version = cbor.uint(fields[1])
        said = {_text(cbor2.loads(key)): value for key, value in cbor.pairs(fields[0])}
    except (ValueError, IndexError):
        return None
    shown = {
        key: _shown(cbor2.loads(value)) if key in _KNOWN else value.hex()
        for key, value in said.items()
    }
    if version not in _VERSIONS or not all(isinstance(shown.get(one), str) for one in kind.needs):
        return None
    return Metadata(shown, f"CIP68v{version}", fields[2].hex() if len(fields) > 2 else None)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_text(key): _shown(one) for key, one in items}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in cast("list[Any]", value)]
    return value if isinstance(value, int) else str(value)


def _text(value: Any) -> str:
    """UTF-8 where bytes are that, else hex."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
