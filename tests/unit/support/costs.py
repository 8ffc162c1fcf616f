"""Mainnet's present cost model, and the script data hash by hand (Conway CDDL,
``script_data_hash``): nothing of ours helps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts.devnet.parameters import PARAMETERS

_COSTS = Path(__file__).parents[2] / "golden" / "mainnet_costs_v3.json"
_WIDTHS = (1, 2, 4, 8)


def todays_costs() -> list[int]:
    """Plutus V3's on mainnet since 18 June 2026: 350 values, as the governance action named in the
    file has them.
    """
    found: list[int] = json.loads(_COSTS.read_text(encoding="utf-8"))["PlutusV3"]
    return found


def todays_parameters() -> dict[str, Any]:
    """Blockfrost's answer of a chain with those costs and protocol 11."""
    models = {**PARAMETERS["cost_models_raw"], "PlutusV3": todays_costs()}
    return {**PARAMETERS, "protocol_major_ver": 11, "cost_models_raw": models}


def bound(redeemers: bytes, costs: Sequence[int]) -> bytes:
    """blake2b_256 of the redeemers as sent and {2: costs}; no datum is in the witness set."""
    view = b"\xa1\x02" + _head(4, len(costs)) + b"".join(map(_integer, costs))
    return hashlib.blake2b(redeemers + view, digest_size=32).digest()


def _integer(number: int) -> bytes:
    return _head(0, number) if number >= 0 else _head(1, -1 - number)


def _head(major: int, size: int) -> bytes:
    if size < 24:
        return bytes([major << 5 | size])
    place = next(i for i, width in enumerate(_WIDTHS) if size < 256**width)
    return bytes([major << 5 | 24 + place]) + size.to_bytes(_WIDTHS[place], "big")
