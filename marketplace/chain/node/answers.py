"""What the chain's door answers, as values of ours: outputs, transactions, execution units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef, Utxo, assets_of
from marketplace.chain.errors import ChainFault, ScriptRefused, TxRefused
from marketplace.chain.transaction.snapshot import Tip, Units


@dataclass(frozen=True, slots=True)
class Included:
    """A transaction in a block."""

    height: int
    slot: int


@dataclass(frozen=True, slots=True)
class Output:
    """An output, and the id of the transaction that spent it, if any."""

    utxo: Utxo
    spent_by: bytes | None


@dataclass(frozen=True, slots=True)
class Moves:
    """Inputs and outputs of one transaction; an input's datum and address are resolved."""

    inputs: tuple[Utxo, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class WaitingTx:
    """A transaction in the door's mempool: what it spends, and the outputs that it will leave."""

    tx_id: bytes
    inputs: tuple[OutRef, ...]
    outputs: tuple[Utxo, ...]


def tip_of(raw: dict[str, Any]) -> Tip:
    """A block."""
    return Tip(int(raw["slot"]), int(raw["time"]) * 1000, int(raw["height"]), str(raw["hash"]))


def utxo_of(tx_id: bytes, raw: dict[str, Any], address: bytes | None = None) -> Utxo:
    """An output of *tx_id*; *address* where the answer does not repeat it."""
    amounts = {a["unit"]: int(a["quantity"]) for a in raw["amount"]}
    lovelace = amounts.pop("lovelace", 0)
    inline = raw.get("inline_datum")
    hashed = raw.get("data_hash")
    script = raw.get("reference_script_hash")
    return Utxo(
        OutRef(tx_id, int(raw["output_index"])),
        address if address is not None else addresses.lenient_bytes(raw["address"]),
        lovelace,
        assets_of({bytes.fromhex(unit): n for unit, n in amounts.items()}),
        bytes.fromhex(inline) if inline else None,
        bytes.fromhex(hashed) if hashed and not inline else None,
        bytes.fromhex(script) if script else None,
    )


def ogmios_entry(utxo: Utxo) -> list[object]:
    """One entry of an additional UTxO set (Ogmios 5, as Blockfrost's documentation has it)."""
    assets = {
        f"{unit[:28].hex()}.{unit[28:].hex()}".rstrip("."): quantity
        for unit, quantity in utxo.assets
    }
    value = {"coins": utxo.lovelace} | ({"assets": assets} if assets else {})
    out: dict[str, object] = {"address": addresses.to_text(utxo.address), "value": value}
    if utxo.datum is not None:
        out["datum"] = utxo.datum.hex()
    return [{"txId": utxo.ref.tx_id.hex(), "index": utxo.ref.index}, out]


_NAMES: Final = {"withdraw": "withdrawal", "reward": "withdrawal", "certificate": "publish"}


def units_of(raw: dict[str, Any]) -> dict[str, Units]:
    """Units by redeemer (``spend:3``) of an evaluation; :class:`ScriptRefused` where a script said
    no, :class:`TxRefused` where the transaction could not be evaluated.
    """
    result = cast(dict[str, Any], raw.get("result") or {})
    units = cast("dict[str, dict[str, int]] | None", result.get("EvaluationResult"))
    if units is not None:
        found: dict[str, Units] = {}
        for key, value in units.items():
            purpose, _, index = key.partition(":")
            found[f"{_NAMES.get(purpose, purpose)}:{index}"] = Units(
                int(value["memory"]), int(value.get("steps", value.get("cpu", 0)))
            )
        return found
    failure = result.get("EvaluationFailure")
    if failure is None:
        raise ChainFault(f"evaluate: the answer holds no result: {str(raw)[:300]}")
    text = str(failure)[:600]
    told = cast("dict[str, Any]", failure if isinstance(failure, dict) else {})
    failures = cast("dict[str, Any]", told.get("ScriptFailures") or {})
    if failures:
        where = next((key for key in failures if ":" in key), "")  # an evaluator may name none
        raise ScriptRefused(f"a script refused: {str(failures)[:600]}", redeemer=where)
    raise TxRefused(f"the transaction cannot be evaluated: {text}")
