"""Bech32 (BIP-173), without its limit of 90 characters, as CIP-19 uses it for addresses.

Own code although pycardano has one: importing pycardano takes longer than most commands that show
an address need for all they do. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from marketplace.domain.errors import Malformed

_LETTERS: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES: Final = {letter: value for value, letter in enumerate(_LETTERS)}
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECK: Final = 6  # letters of checksum
_MOST: Final = 1023  # what its checksum is good for


def encode(prefix: str, data: bytes) -> str:
    """*data* as text under *prefix* (lower case)."""
    bits = len(data) * 8
    pad = -bits % 5
    whole = int.from_bytes(data, "big") << pad
    values = [whole >> shift & 31 for shift in range(bits + pad - 5, -1, -5)]
    check = _polymod([*_spread(prefix), *values, *[0] * _CHECK]) ^ 1
    values += [check >> 5 * (_CHECK - 1 - i) & 31 for i in range(_CHECK)]
    return f"{prefix}1{''.join(_LETTERS[value] for value in values)}"


def decode(text: str) -> tuple[str, bytes]:
    """Prefix and data; :class:`Malformed` for mixed case, foreign letters, a wrong checksum or
    padding.
    """
    lower = text.lower()
    prefix, found, body = lower.rpartition("1")
    if text not in (lower, text.upper()) or not found or not prefix or len(body) < _CHECK:
        raise Malformed("this is not Bech32")
    if len(text) > _MOST or not all(33 <= ord(letter) <= 126 for letter in prefix):
        raise Malformed("this is not Bech32")
    try:
        values = [_VALUES[letter] for letter in body]
    except KeyError as error:
        raise Malformed(f"{error.args[0]!r} is no letter of Bech32") from None
    if _polymod([*_spread(prefix), *values]) != 1:
        raise Malformed("its checksum is wrong: a letter was mistyped")
    values = values[:-_CHECK]
    size, pad = divmod(len(values) * 5, 8)
    whole = 0
    for value in values:
        whole = whole << 5 | value
    if pad > 4 or whole & ((1 << pad) - 1):
        raise Malformed("this is not Bech32")
    return prefix, (whole >> pad).to_bytes(size, "big")


def _spread(prefix: str) -> list[int]:
    codes = prefix.encode("ascii")
    return [*(code >> 5 for code in codes), 0, *(code & 31 for code in codes)]


def _polymod(values: Iterable[int]) -> int:
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, factor in enumerate(_GENERATOR):
            check ^= factor if top >> bit & 1 else 0
    return check
