"""Protocol parameters and genesis of the devnet: what the pinned ledger enforces is what the face
publishes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

NETWORK_MAGIC = 42
EPOCH_LENGTH = 432_000
SLOT_MS = 1000
SECURITY_PARAM = 2160
# Slots that a node can see ahead for certain: mainnet's 3k/f, 36 hours.
SAFE_ZONE = 129_600
# The whole supply lies at one address at first; the faucet pays from there with ordinary
# transactions.
GENESIS_LOVELACE = 30_000_000_000_000_000

PARAMETERS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parent / "parameters.json").read_text()
)
COST_MODELS: dict[str, list[int]] = PARAMETERS["cost_models_raw"]
MIN_FEE_COEFFICIENT: int = PARAMETERS["min_fee_a"]
MIN_FEE_CONSTANT: int = PARAMETERS["min_fee_b"]
KEY_DEPOSIT = int(PARAMETERS["key_deposit"])
MAX_BLOCK_BYTES: int = PARAMETERS["max_block_size"]


def named_cost_models() -> dict[str, dict[str, int]]:
    """The cost models as Blockfrost's ``cost_models``: by name, in the ledger's order.

    pycardano sorts the names of PlutusV1 and keeps the order of the others; JavaScript wallets keep
    insertion order unless a name looks like an integer. Names of one letter and three digits
    satisfy all of them.
    """
    return {
        language: {f"p{index:03d}": cost for index, cost in enumerate(costs)}
        for language, costs in COST_MODELS.items()
    }


def epoch_parameters(epoch: int) -> dict[str, Any]:
    """Body of ``/epochs/latest/parameters``."""
    body = {key: value for key, value in PARAMETERS.items() if key != "about"}
    # Nothing draws leaders here, so any text of a nonce's shape will do; it differs by epoch as a
    # real one.
    nonce = hashlib.blake2b(f"tally devnet epoch {epoch}".encode(), digest_size=32).hexdigest()
    return {"epoch": epoch, "nonce": nonce, **body, "cost_models": named_cost_models()}


def genesis(system_start: int) -> dict[str, Any]:
    """Body of ``/genesis``. system_start: POSIX seconds of slot 0; slot s begins at (system_start +
    s) * 1000 ms exactly.
    """
    return {
        "active_slots_coefficient": 1.0,
        "update_quorum": 5,
        "max_lovelace_supply": str(GENESIS_LOVELACE),
        "network_magic": NETWORK_MAGIC,
        "epoch_length": EPOCH_LENGTH,
        "system_start": system_start,
        "slots_per_kes_period": 129600,
        "slot_length": 1,
        "max_kes_evolutions": 62,
        "security_param": SECURITY_PARAM,
    }
