"""Routes about native assets, and their on-chain metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from contracts.devnet import addresses
from contracts.devnet.face import metadata
from contracts.devnet.face.common import (
    Chain,
    Paged,
    Policy,
    Unit,
    block_time,
    not_found,
    paged,
    placed,
    utxo,
)
from contracts.devnet.index import cip68, explorer
from contracts.devnet.index.plutusjson import detailed
from contracts.devnet.index.views import Row, View

router = APIRouter()


@router.get("/assets")
def assets(chain: Chain, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        return [_asset_line(row) for row in view.assets("", page)]


@router.get("/assets/policy/{policy}")
def assets_of_policy(chain: Chain, policy: Policy, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = view.assets(policy, page)
        if not rows and page.number == 1:
            not_found()
        return [_asset_line(row) for row in rows]


def _asset_line(row: Row) -> dict[str, str]:
    return {"asset": row["unit"], "quantity": str(row["quantity"])}


def _mints(view: View, unit: str) -> list[Row]:
    rows = view.mints(unit)
    if not rows:
        not_found()
    return rows


@router.get("/assets/{unit}")
def asset(chain: Chain, unit: Unit) -> dict[str, Any]:
    with chain.reading() as view:
        rows = _mints(view, unit)
        said = onchain(view, unit)
    policy, name = unit[:56], unit[56:]
    return {
        "asset": unit,
        "policy_id": policy,
        "asset_name": name or None,
        "fingerprint": addresses.fingerprint(policy, name),
        "quantity": str(sum(row["quantity"] for row in rows)),
        "initial_mint_tx_hash": rows[0]["tx"],
        "mint_or_burn_count": len(rows),
        "onchain_metadata": said.metadata,
        "onchain_metadata_standard": said.standard,
        "onchain_metadata_extra": said.extra,
        "metadata": None,
    }


@router.get("/assets/{unit}/addresses")
def asset_addresses(chain: Chain, unit: Unit, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        _mints(view, unit)
        holders = list(view.holders(unit).items())
    return [
        {"address": address, "quantity": str(quantity)}
        for address, quantity in paged(holders, page)
    ]


@router.get("/assets/{unit}/history")
def asset_history(chain: Chain, unit: Unit, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = _mints(view, unit)
    return [
        {
            "tx_hash": row["tx"],
            "action": "minted" if row["quantity"] > 0 else "burned",
            "amount": str(row["quantity"]),
        }
        for row in paged(rows, page)
    ]


@router.get("/assets/{unit}/transactions")
def asset_transactions(chain: Chain, unit: Unit, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        _mints(view, unit)
        return [placed(view, row) for row in explorer.asset_transactions(view, unit, page)]


@router.get("/assets/{unit}/txs")
def asset_txs(chain: Chain, unit: Unit, page: Paged) -> list[str]:
    with chain.reading() as view:
        _mints(view, unit)
        return [row["id"] for row in explorer.asset_transactions(view, unit, page)]


@router.get("/assets/{unit}/utxos")
def asset_utxos(chain: Chain, unit: Unit, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        _mints(view, unit)
        return [_utxo(view, row) for row in explorer.asset_outputs(view, unit, page)]


def _utxo(view: View, row: Row) -> dict[str, Any]:
    block = view.block(row["height"])
    assert block is not None
    inline = row["inline_datum"]
    known = utxo(view, row)
    del known["tx_index"]
    return {
        **known,
        "block_height": row["height"],
        "block_time": block_time(view, block["slot"]),
        "inline_datum_json": None if inline is None else detailed(bytes.fromhex(inline)),
    }


# --- what the chain says of an asset: CIP-68, else CIP-25 ---


@dataclass(frozen=True, slots=True)
class Said:
    """standard: of which version the metadata is valid. extra: CIP-68's third field, CBOR in
    hex.
    """

    metadata: dict[str, Any] | None
    standard: str | None = None
    extra: str | None = None
    fungible: bool = False


def onchain(view: View, unit: str) -> Said:
    """What Blockfrost shows as an asset's on-chain metadata."""
    kind = cip68.kind_of(unit[56:])
    if kind is not None:
        row = explorer.newest_with(view, unit[:56] + cip68.reference_name(unit[56:]))
        raw = None if row is None else view.datum(row["datum_hash"])
        said = None if raw is None else cip68.read(raw, kind)
        if said is not None:
            return Said(said.metadata, said.standard, said.extra, kind.fungible)
    for row in reversed(view.mints(unit)):
        found = view.tx(row["tx"]) if row["quantity"] > 0 else None
        if found is not None and metadata.CIP25 in dict(metadata.entries(found.tx)):
            return Said(*metadata.cip25(found.tx, unit[:56], unit[56:]))
    return Said(None)
