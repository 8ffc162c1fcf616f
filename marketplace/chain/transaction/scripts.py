"""Which scripts settle in which asset: ADA, or one native token, of the same source."""

from __future__ import annotations

from contracts import blueprint
from marketplace.chain.transaction.snapshot import Scripts
from marketplace.domain.errors import Malformed


def scripts_for(asset: str = "") -> Scripts:
    """*asset* as in the terms: "" for ADA, else hex of policy and name; :class:`Malformed`."""
    unit = unit_of(asset)
    return blueprint.token(unit[:28], unit[28:]) if unit else blueprint.ada()


def unit_of(asset: str) -> bytes:
    """The bytes of *asset*: empty for ADA, else 28 of policy and up to 32 of name."""
    try:
        unit = bytes.fromhex(asset)
    except ValueError:
        raise Malformed(f"{asset[:130]!r} is not the hex of a policy and a name") from None
    if unit and not 28 <= len(unit) <= 60:
        raise Malformed("a token is a policy of 28 bytes and a name of at most 32")
    return unit
