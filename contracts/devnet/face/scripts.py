"""Routes about scripts and datums."""

from __future__ import annotations

from typing import Any, cast

import cbor2
from fastapi import APIRouter

from contracts.devnet.face.common import Chain, Paged, not_found, utxo
from contracts.devnet.face.transactions import redeemer_fields
from contracts.devnet.index import explorer
from contracts.devnet.index.plutusjson import detailed
from contracts.devnet.index.views import Row, View
from contracts.devnet.transaction import SCRIPT_TYPES

router = APIRouter()
_TIMELOCKS = ("sig", "all", "any", "atLeast", "after", "before")


@router.get("/scripts")
def scripts(chain: Chain, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        return [{"script_hash": name} for name in view.scripts(page)]


@router.get("/scripts/datum/{name}")
def datum(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        raw = view.datum(name)
    if raw is None:
        not_found()
    return {"json_value": detailed(raw)}


@router.get("/scripts/datum/{name}/cbor")
def datum_cbor(chain: Chain, name: str) -> dict[str, str]:
    with chain.reading() as view:
        raw = view.datum(name)
    if raw is None:
        not_found()
    return {"cbor": raw.hex()}


def _script(view: View, name: str) -> Row:
    row = view.script(name)
    if row is None:
        not_found()
    return row


@router.get("/scripts/{name}")
def script(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        row = _script(view, name)
    size = len(row["body"]) if row["kind"] else None
    return {"script_hash": name, "type": SCRIPT_TYPES[row["kind"]], "serialised_size": size}


@router.get("/scripts/{name}/cbor")
def script_cbor(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        row = _script(view, name)
    return {"cbor": row["body"].hex() if row["kind"] else None}


@router.get("/scripts/{name}/json")
def script_json(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        row = _script(view, name)
    return {"json": None if row["kind"] else timelock(cbor2.loads(row["body"]))}


@router.get("/scripts/{name}/redeemers")
def script_redeemers(chain: Chain, name: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        _script(view, name)
        rows = view.redeemers("script_hash", name, page)
        return [{**redeemer_fields(row), "tx_hash": row["tx"]} for row in rows]


def timelock(value: Any) -> dict[str, Any]:
    """A native script in cardano-cli's JSON."""
    kind, *rest = cast("list[Any]", value)
    name = _TIMELOCKS[int(kind)]
    if kind == 0:
        return {"type": name, "keyHash": rest[0].hex()}
    if kind in (1, 2):
        return {"type": name, "scripts": [timelock(one) for one in rest[0]]}
    if kind == 3:
        return {"type": name, "required": rest[0], "scripts": [timelock(one) for one in rest[1]]}
    return {"type": name, "slot": rest[0]}


@router.get("/scripts/{name}/utxos")
def script_utxos(chain: Chain, name: str, page: Paged) -> list[dict[str, Any]]:
    """Where a script lies for reference."""
    with chain.reading() as view:
        _script(view, name)
        found = [utxo(view, row) for row in explorer.script_outputs(view, name, page)]
    for one in found:
        del one["tx_index"]
    return found
