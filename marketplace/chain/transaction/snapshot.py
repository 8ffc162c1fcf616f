"""The frozen inputs of building: what a transaction depends on besides the money it moves.

A snapshot is read once (:meth:`ChainReader.snapshot`) and then everything is pure: the same
snapshot, funds and wishes give the same bytes. Slots exist only in this package; the rest of Tally
speaks milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol, cast

import cbor2

from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, NotDeployed
from marketplace.domain.canonical import blake2b_256

SLOT_MS: Final = 1000  # one second in every era since Shelley, on every network
_TIER_BYTES: Final = 25_600  # Conway: reference scripts get dearer by this stride …
_TIER_STEP: Final = Fraction(6, 5)  # … and this factor
_VALID_FLAG: Final = 1
_OUTPUT_OVERHEAD: Final = 160  # Babbage: bytes an unspent output costs beyond its own


class Scripts(Protocol):
    """Both scripts of one instance, as :mod:`contracts.blueprint` holds them."""

    @property
    def settle_cbor(self) -> bytes: ...
    @property
    def stub_cbor(self) -> bytes: ...
    @property
    def settle_hash(self) -> bytes: ...
    @property
    def stub_hash(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Units:
    """Execution units of one redeemer, or of all."""

    mem: int
    steps: int

    def __add__(self, other: Units) -> Units:
        return Units(self.mem + other.mem, self.steps + other.steps)


@dataclass(frozen=True, slots=True)
class Params:
    """The protocol parameters that fees, sizes and deposits follow; prices are exact fractions."""

    fee_per_byte: int
    fee_fixed: int
    max_tx_size: int
    max_units: Units
    price_mem: Fraction
    price_step: Fraction
    per_utxo_byte: int
    collateral_percent: int
    key_deposit: int
    ref_byte: Fraction
    costs_v3: tuple[int, ...]

    @staticmethod
    def from_json(p: dict[str, Any]) -> Params:
        """From Blockfrost's ``epochs/latest/parameters``."""
        try:
            return Params(
                fee_per_byte=int(p["min_fee_a"]),
                fee_fixed=int(p["min_fee_b"]),
                max_tx_size=int(p["max_tx_size"]),
                max_units=Units(int(p["max_tx_ex_mem"]), int(p["max_tx_ex_steps"])),
                price_mem=Fraction(str(p["price_mem"])),
                price_step=Fraction(str(p["price_step"])),
                per_utxo_byte=int(p["coins_per_utxo_size"]),
                collateral_percent=int(p["collateral_percent"]),
                key_deposit=int(p["key_deposit"]),
                ref_byte=Fraction(str(p["min_fee_ref_script_cost_per_byte"])),
                costs_v3=_costs(p),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ChainFault(f"the chain's protocol parameters lack something: {error}") from error

    def fee(self, size: int, units: Units, ref_bytes: int) -> int:
        """The least fee the ledger takes, to the lovelace (Conway ledger, ``minfee``).

        *size*: bytes on the wire, of which the ledger does not count the flag that says that every
        script succeeds (Alonzo ledger, ``toCBORForSizeComputation``).
        """
        scripts = self.price_mem * units.mem + self.price_step * units.steps
        bytes_ = self.fee_per_byte * (size - _VALID_FLAG)
        return bytes_ + self.fee_fixed + -(-scripts // 1) + self.ref_fee(ref_bytes)

    def ref_fee(self, ref_bytes: int) -> int:
        """For *ref_bytes* of reference scripts, tier by tier, floored."""
        total, price = Fraction(0), self.ref_byte
        while ref_bytes > _TIER_BYTES:
            total, price, ref_bytes = (
                total + price * _TIER_BYTES,
                price * _TIER_STEP,
                ref_bytes - _TIER_BYTES,
            )
        return int(total + price * ref_bytes)

    def min_lovelace(self, output_bytes: int) -> int:
        """What an output of this many bytes must hold."""
        return (_OUTPUT_OVERHEAD + output_bytes) * self.per_utxo_byte

    def script_data_hash(self, redeemers: bytes) -> bytes:
        """Binds redeemers and Plutus V3's costs into the body; no datum is ever in a witness
        set.
        """
        return blake2b_256(redeemers + cbor2.dumps({2: list(self.costs_v3)}))


def _costs(p: dict[str, Any]) -> tuple[int, ...]:
    raw = cast("dict[str, list[int]] | None", p.get("cost_models_raw")) or {}
    if "PlutusV3" in raw:
        return tuple(int(n) for n in raw["PlutusV3"])
    named = cast("dict[str, dict[str, int]]", p["cost_models"])["PlutusV3"]
    return tuple(int(n) for n in named.values())


@dataclass(frozen=True, slots=True)
class Tip:
    """The latest block."""

    slot: int
    time_ms: int
    height: int
    hash: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where both scripts lie as reference scripts."""

    settle: OutRef
    stub: OutRef


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the chain; *rewards* is the balance of settle's account, None if unregistered."""

    magic: int
    mainnet: bool
    params: Params
    tip: Tip
    scripts: Scripts
    deployment: Deployment | None
    rewards: int | None

    def slot_at(self, ms: int) -> int:
        """The slot in which *ms* lies."""
        return self.tip.slot + (ms - self.tip.time_ms) // SLOT_MS

    def ms_at(self, slot: int) -> int:
        """When *slot* begins: what scripts see for a bound at it."""
        return self.tip.time_ms + (slot - self.tip.slot) * SLOT_MS

    @property
    def deployed(self) -> tuple[Deployment, int]:
        """Reference scripts and the account's balance; :class:`NotDeployed` if either is
        missing.
        """
        if self.deployment is None or self.rewards is None:
            what = "reference scripts" if self.deployment is None else "stake registration"
            raise NotDeployed(f"the contract's {what} cannot be found on this chain")
        return self.deployment, self.rewards

    @property
    def ref_bytes(self) -> int:
        """Bytes of both scripts, which every settlement pays for."""
        return len(self.scripts.settle_cbor) + len(self.scripts.stub_cbor)
