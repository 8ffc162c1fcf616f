"""The fields that evidence is made of, each read by its row in ``docs/invoice.md``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, cast

from marketplace.domain.canonical import want_int
from marketplace.domain.errors import Malformed
from marketplace.domain.money.voucher import MAX_CUMULATIVE, Voucher

MOST_BODY: Final = 8192
"""Bytes of anything that is signed."""
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


class EvidenceMalformed(Malformed):
    """The text is not an invoice's evidence: no rule can be applied to it."""

    code = "INVOICE_MALFORMED"
    remedy = (
        "fetch it again with `tally invoice JOB --save FILE`; docs/invoice.md states each field's"
        " form"
    )
    rule: ClassVar[str] = "MALFORMED"


def a_voucher(value: object, session_vk: bytes) -> Voucher | None:
    """A voucher of *session_vk*, or None."""
    if value is None:
        return None
    row = a_map(value, "voucher")
    cumulative = want_int(row.get("cumulative"), "cumulative", 0, MAX_CUMULATIVE)
    return Voucher(session_vk, cumulative, some_bytes(row, "signature", 64))


def a_body(row: Mapping[str, Any], name: str) -> bytes:
    """Signed bytes: 1 to :data:`MOST_BODY`."""
    found = some_hex(row, name)
    if not found or len(found) > MOST_BODY:
        raise EvidenceMalformed(f"{name} is not 1 to {MOST_BODY} bytes")
    return found


def a_signed(value: object, name: str) -> tuple[bytes, bytes]:
    """Body and signature of an object that has both."""
    row = a_map(value, name)
    return a_body(row, "body"), some_bytes(row, "signature", 64)


def some_bytes(row: Mapping[str, Any], name: str, length: int, *, or_none: bool = False) -> bytes:
    """Exactly *length* bytes; *or_none*: or no byte at all."""
    found = some_hex(row, name)
    if len(found) != length and not (or_none and not found):
        raise EvidenceMalformed(f"{name} is not {length} bytes")
    return found


def some_hex(row: Mapping[str, Any], name: str) -> bytes:
    """The bytes of a lower-case hex text."""
    value = row.get(name)
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise EvidenceMalformed(f"{name} is not lower-case hex")
    return bytes.fromhex(value)


def a_map(value: object, name: str) -> Mapping[str, Any]:
    """An object; its keys are whatever they are."""
    if not isinstance(value, dict):
        raise EvidenceMalformed(f"{name} is not an object")
    return cast("dict[str, Any]", value)


def a_list(row: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects."""
    value = row.get(name)
    if not isinstance(value, list):
        raise EvidenceMalformed(f"{name} is not a list")
    return [a_map(one, f"{name}[{i}]") for i, one in enumerate(cast("list[object]", value))]
