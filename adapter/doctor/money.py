"""Checks of the money that ending channels needs, as the chain shows it: no passphrase is asked
for, since a keystore lists its public keys in clear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from adapter.doctor.findings import Finding, found
from adapter.doctor.world import ProbeFailed, World
from marketplace.chain.encoding import address as addresses
from marketplace.domain.canonical import blake2b_224
from marketplace.domain.units import show_ada

LEAST_FEES: Final = 8_000_000
"""About what the dearest end needs: 5 ADA of collateral that stay, a topped-up payout, the fee."""
_MAINNET_MAGIC: Final = 764_824_073
_WORTH_MOVING: Final = 1_200_000


def check_fees(world: World) -> Iterator[Finding]:
    """The fee key can pay for an end, and nothing lies at the key that ends channels."""
    config = world.config
    keys = world.keys(config.key) if config.key is not None else {}
    if not config.chain_url or not keys:
        return
    try:
        genesis = world.chain(config, "/genesis")
        mainnet = bool(genesis) and genesis.get("network_magic") == _MAINNET_MAGIC
        held = {
            name: _lovelace(world.chain(config, f"/addresses/{at}"))
            for name, at in _addresses(keys, mainnet).items()
        }
    except ProbeFailed as fault:
        yield found("CHAIN_UNREACHABLE", f"{config.chain_url}: {fault.message}")
        return
    named = _addresses(keys, mainnet)
    if "fee" in held and held["fee"] < LEAST_FEES:
        yield found("FEES_LOW", f"the fee key {named['fee']} holds {show_ada(held['fee'])}")
    if held.get("hot", 0) >= _WORTH_MOVING:
        yield found(
            "END_KEY_FUNDED",
            f"{show_ada(held['hot'])} lie at {named['hot']}, the key that ends channels",
        )


def _addresses(keys: dict[str, bytes], mainnet: bool) -> dict[str, str]:
    return {
        name: addresses.to_text(addresses.key_address(blake2b_224(keys[name]), None, mainnet))
        for name in ("fee", "hot")
        if name in keys
    }


def _lovelace(answer: Any) -> int:
    """Of Blockfrost's answer about an address; one that it never saw holds nothing."""
    rows: list[dict[str, str]] = [] if answer is None else answer["amount"]
    return sum(int(row["quantity"]) for row in rows if row["unit"] == "lovelace")
