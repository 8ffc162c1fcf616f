"""What an ADA is worth elsewhere, as a source says that the operator named: shown beside prices,
and read by nothing that charges.

The source answers ``{"ada_usd": "0.4512", "ada_eur": "0.4163", "at_ms": 1764020000000}``: decimals
as text, either may be missing, and when they held (ms since 1970, UTC).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

from marketplace.domain.errors import Malformed
from marketplace.domain.units import LOVELACE_PER_ADA, MICRO

MOST_BYTES: Final = 4096
OLD_MS: Final = 86_400_000
"""A price of yesterday is shown no more."""
_AHEAD_MS: Final = 300_000  # clocks differ
_MOST: Final = 1000 * MICRO
_DECIMAL: Final = re.compile(r"(\d{1,4})(?:\.(\d{1,12}))?")


@dataclass(frozen=True)
class Exchange:
    """Millionths of a dollar and of a euro for one ADA, 0 where it is not said; *at_ms*: when."""

    usd_micro: int
    eur_micro: int
    at_ms: int

    def fresh(self, now: int) -> bool:
        """Whether it may still be shown."""
        return now - OLD_MS <= self.at_ms <= now + _AHEAD_MS


def read(raw: bytes, now: int) -> Exchange:
    """The source's answer; Malformed for anything else, and for what is old or from the future."""
    if len(raw) > MOST_BYTES:
        raise Malformed(f"the price source answers more than {MOST_BYTES} bytes")
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed("the price source answers no JSON") from error
    if not isinstance(value, dict):
        raise Malformed("the price source answers no object")
    row = cast("dict[str, Any]", value)
    at_ms = row.get("at_ms")
    if not isinstance(at_ms, int) or isinstance(at_ms, bool):
        raise Malformed("the price source's at_ms is no time in ms")
    found = Exchange(_micro(row, "ada_usd"), _micro(row, "ada_eur"), at_ms)
    if not (found.usd_micro or found.eur_micro):
        raise Malformed("the price source says neither ada_usd nor ada_eur")
    if not found.fresh(now):
        raise Malformed("the price source's price is old, or of a time to come")
    return found


def _micro(row: dict[str, Any], name: str) -> int:
    text = row.get(name)
    if text is None:
        return 0
    match = _DECIMAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise Malformed(f'the price source\'s {name} is no decimal in quotes, such as "0.45"')
    micro = int(match[1]) * MICRO + int((match[2] or "").ljust(6, "0")[:6])
    if not 0 < micro <= _MOST:
        raise Malformed(f"the price source's {name} is not within 0 and 1000")
    return micro


def worth(lovelace: int, micro: int) -> int:
    """Millionths of the other money, rounded."""
    return (lovelace * micro + LOVELACE_PER_ADA // 2) // LOVELACE_PER_ADA
