"""Outputs to make, and the least lovelace that each must hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from pycardano import (
    Address,
    Asset,
    AssetName,
    MultiAsset,
    PlutusV3Script,
    ScriptHash,
    TransactionInput,
    TransactionOutput,
    Value,
)
from pycardano.hash import TransactionId
from pycardano.serialization import RawCBOR

from marketplace.chain.encoding.utxo import Assets, OutRef, Utxo
from marketplace.chain.transaction.snapshot import Snapshot


@dataclass(frozen=True)
class Out:
    """An output to make."""

    address: bytes
    lovelace: int
    assets: Assets = ()
    datum: bytes | None = None
    script: bytes | None = None

    def to_pycardano(self) -> TransactionOutput:
        """As the library encodes it."""
        return TransactionOutput(
            Address.from_primitive(self.address),
            Value(self.lovelace, _multi_asset(self.assets)),
            datum=None if self.datum is None else RawCBOR(self.datum),
            script=None if self.script is None else PlutusV3Script(self.script),
        )

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return _size(self)

    def at(self, ref: OutRef) -> Utxo:
        """The unspent output that it becomes."""
        return Utxo(ref, self.address, self.lovelace, self.assets, self.datum)


@lru_cache(maxsize=4096)  # an output is measured when it is planned, budgeted and checked
def _size(out: Out) -> int:
    return len(out.to_pycardano().to_cbor())


def least(snapshot: Snapshot, out: Out) -> int:
    """The lovelace that *out* must hold: its size depends on the amount, so on itself."""
    need = out.lovelace
    for _ in range(3):
        need = snapshot.params.min_lovelace(replace(out, lovelace=max(need, 1)).size)
    return need


def input_of(ref: OutRef) -> TransactionInput:
    """As the library encodes it."""
    return TransactionInput(TransactionId(ref.tx_id), ref.index)


def _multi_asset(assets: Assets) -> MultiAsset:
    bundle = MultiAsset()
    for unit, quantity in assets:
        policy, name = ScriptHash(unit[:28]), AssetName(unit[28:])
        bundle.setdefault(policy, Asset())[name] = quantity
    return bundle
