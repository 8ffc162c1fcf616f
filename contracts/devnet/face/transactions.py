"""Routes about transactions: those in blocks, those in the mempool, and new ones."""

from __future__ import annotations

import json
from typing import Any

import cbor2
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from contracts.devnet import addresses
from contracts.devnet.engine import LedgerRefusal, Units
from contracts.devnet.face.common import (
    Answer,
    Chain,
    Paged,
    amounts,
    block_time,
    not_found,
    output_fields,
)
from contracts.devnet.parameters import PARAMETERS
from contracts.devnet.transaction import PURPOSES, OutRef, Tx
from contracts.devnet.views import Chained, Page, Row, View

router = APIRouter()
_PRICE_SCALE = 10**7
_PRICE_MEMORY = round(PARAMETERS["price_mem"] * _PRICE_SCALE)
_PRICE_STEP = round(PARAMETERS["price_step"] * _PRICE_SCALE)


# --- new transactions ---


async def _body(request: Request) -> bytes:
    """The transaction in the request: raw CBOR, or its hex text as some clients send it."""
    body = await request.body()
    try:
        return bytes.fromhex(body.decode("ascii").strip())
    except ValueError:
        return body


@router.post("/tx/submit")
async def submit(chain: Chain, request: Request) -> str:
    raw = await _body(request)
    try:
        return await run_in_threadpool(chain.submit, raw)
    except LedgerRefusal as refusal:
        raise Answer(400, refusal.reason, logs=refusal.logs) from refusal


def _evaluated(units: list[Units]) -> dict[str, Any]:
    return {
        "EvaluationResult": {
            f"{one.tag}:{one.index}": {"memory": one.memory, "steps": one.steps} for one in units
        }
    }


async def _evaluation(
    chain: Chain, raw: bytes, extra: list[tuple[OutRef, bytes]]
) -> dict[str, Any]:
    """Blockfrost hands Ogmios' answer through: a failing script is a result, not an HTTP error."""
    try:
        result = _evaluated(await run_in_threadpool(chain.evaluate, raw, extra))
    except LedgerRefusal as refusal:
        result = {
            "EvaluationFailure": {"ScriptFailures": {"error": refusal.reason, "logs": refusal.logs}}
        }
    return {
        "type": "jsonwsp/response",
        "version": "1.0",
        "servicename": "ogmios",
        "methodname": "EvaluateTx",
        "result": result,
        "reflection": None,
    }


@router.post("/utils/txs/evaluate")
async def evaluate(chain: Chain, request: Request) -> dict[str, Any]:
    return await _evaluation(chain, await _body(request), [])


@router.post("/utils/txs/evaluate/utxos")
async def evaluate_with(chain: Chain, request: Request) -> dict[str, Any]:
    """JSON body: cbor (hex) and additionalUtxoSet, pairs of {txId, index} and {address, value: {coins, assets}, datum, datumHash}."""
    try:
        asked = json.loads(await request.body())
        raw = bytes.fromhex(asked["cbor"])
        extra = [_extra(*pair) for pair in asked.get("additionalUtxoSet", [])]
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Answer(400, f"Invalid request body: {problem!r}") from problem
    return await _evaluation(chain, raw, extra)


def _extra(ref: dict[str, Any], output: dict[str, Any]) -> tuple[OutRef, bytes]:
    bundle: dict[bytes, dict[bytes, int]] = {}
    for unit, quantity in output["value"].get("assets", {}).items():
        policy, _, name = unit.partition(".")
        bundle.setdefault(bytes.fromhex(policy), {})[bytes.fromhex(name)] = int(quantity)
    coins = int(output["value"]["coins"])
    fields: dict[int, Any] = {
        0: addresses.decode(output["address"], "addr_test"),
        1: [coins, bundle] if bundle else coins,
    }
    if output.get("datum"):
        fields[2] = [1, cbor2.CBORTag(24, bytes.fromhex(output["datum"]))]
    elif output.get("datumHash"):
        fields[2] = [0, bytes.fromhex(output["datumHash"])]
    return OutRef(ref["txId"], int(ref["index"])), cbor2.dumps(fields)


# --- transactions in blocks ---


def _chained(view: View, name: str) -> Chained:
    found = view.tx(name)
    if found is None:
        not_found()
    return found


@router.get("/txs/{name}")
def transaction(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        found = _chained(view, name)
        tx, row, block = found.tx, found.row, found.block
        assets: dict[str, int] = {}
        for one in tx.outputs:
            for unit, quantity in one.assets.items():
                assets[unit] = assets.get(unit, 0) + quantity
        kinds = [one.kind for one in tx.certificates]
        return {
            "hash": tx.id,
            "block": block["hash"],
            "block_height": block["height"],
            "block_time": block_time(view, block["slot"]),
            "slot": block["slot"],
            "index": row["position"],
            "output_amount": amounts(sum(one.lovelace for one in tx.outputs), assets),
            "fees": str(row["fee"]),
            "deposit": str(row["deposit"]),
            "size": len(tx.raw),
            "invalid_before": None if tx.start is None else str(tx.start),
            "invalid_hereafter": None if tx.end is None else str(tx.end),
            "utxo_count": len(tx.inputs) + len(tx.outputs),
            "withdrawal_count": len(tx.withdrawals),
            "mir_cert_count": 0,
            "delegation_count": sum(kind in (2, 10, 11, 13) for kind in kinds),
            "stake_cert_count": sum(kind in (0, 1, 7, 8, 11, 12, 13) for kind in kinds),
            "pool_update_count": kinds.count(3),
            "pool_retire_count": kinds.count(4),
            "asset_mint_or_burn_count": len(tx.mint),
            "redeemer_count": len(tx.redeemers),
            "valid_contract": True,
            "treasury_donation": str(tx.donation),
        }


def _input(view: View, ref: OutRef, collateral: bool, reference: bool) -> dict[str, Any]:
    row = view.output(ref)
    assert row is not None, f"{ref} is in a block, so its output is too"
    return {
        **output_fields(row),
        "tx_hash": ref.tx,
        "collateral": collateral,
        "reference": reference,
    }


def _made(view: View, row: Row) -> dict[str, Any]:
    spent = row["spent_height"] is not None and row["spent_height"] <= view.height
    return {
        **output_fields(row),
        "collateral": False,
        "consumed_by_tx": row["spent_by"] if spent else None,
    }


@router.get("/txs/{name}/utxos")
def transaction_utxos(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        tx = _chained(view, name).tx
        inputs = [_input(view, ref, False, False) for ref in tx.inputs]
        inputs += [_input(view, ref, True, False) for ref in tx.collateral]
        inputs += [_input(view, ref, False, True) for ref in tx.references]
        outputs = [_made(view, row) for row in view.outputs_of(tx.id)]
    return {"hash": tx.id, "inputs": inputs, "outputs": outputs}


@router.get("/txs/{name}/cbor")
def transaction_cbor(chain: Chain, name: str) -> dict[str, str]:
    with chain.reading() as view:
        return {"cbor": _chained(view, name).tx.raw.hex()}


def redeemer_fields(row: Row) -> dict[str, Any]:
    """What Blockfrost says of a redeemer. fee: lovelace for its units, rounded up."""
    scaled = row["memory"] * _PRICE_MEMORY + row["steps"] * _PRICE_STEP
    return {
        "tx_index": row["ix"],
        "purpose": PURPOSES[row["tag"]],
        "redeemer_data_hash": row["data_hash"],
        "datum_hash": row["data_hash"],
        "unit_mem": str(row["memory"]),
        "unit_steps": str(row["steps"]),
        "fee": str(-(-scaled // _PRICE_SCALE)),
    }


@router.get("/txs/{name}/redeemers")
def transaction_redeemers(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        _chained(view, name)
        rows = view.redeemers("tx", name, Page(2**31))
        return [{**redeemer_fields(row), "script_hash": row["script_hash"]} for row in rows]


@router.get("/txs/{name}/withdrawals")
def transaction_withdrawals(chain: Chain, name: str) -> list[dict[str, str]]:
    with chain.reading() as view:
        tx = _chained(view, name).tx
    return [
        {"address": addresses.stake_address(raw[1:], bool(raw[0] & 0x10)), "amount": str(amount)}
        for raw, amount in tx.withdrawals
    ]


@router.get("/txs/{name}/stakes")
def transaction_stakes(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        tx = _chained(view, name).tx
    return [
        {
            "cert_index": index,
            "address": addresses.stake_address(one.credential[1], one.credential[0]),
            "registration": one.kind not in (1, 8),
        }
        for index, one in enumerate(tx.certificates)
        if one.credential is not None and one.kind in (0, 1, 7, 8, 11, 12, 13)
    ]


@router.get("/txs/{name}/required_signers")
def transaction_signers(chain: Chain, name: str) -> list[dict[str, str]]:
    with chain.reading() as view:
        return [{"witness_hash": one} for one in _chained(view, name).tx.required_signers]


@router.get("/txs/{name}/metadata")
def transaction_metadata(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        raw = _chained(view, name).tx.metadata
    metadata = {} if raw is None else cbor2.loads(raw)
    return [
        {"label": str(label), "json_metadata": _json(value)} for label, value in metadata.items()
    ]


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, dict):
        return {str(_json(key)): _json(one) for key, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, list | tuple) else value


# --- the mempool ---


@router.get("/mempool")
def mempool(chain: Chain, page: Paged) -> list[dict[str, str]]:
    names = [tx.id for tx in chain.waiting()]
    if page.descending:
        names.reverse()
    start = (page.number - 1) * page.count
    return [{"tx_hash": name} for name in names[start : start + page.count]]


@router.get("/mempool/addresses/{address}")
def mempool_of_address(chain: Chain, address: str) -> list[dict[str, str]]:
    found = [tx.id for tx in chain.waiting() if _pays(tx, address)]
    return [{"tx_hash": name} for name in found]


def _pays(tx: Tx, address: str) -> bool:
    return any(addresses.describe(one.address).text == address for one in tx.outputs)


@router.get("/mempool/{name}")
def mempool_transaction(chain: Chain, name: str) -> dict[str, Any]:
    tx = next((tx for tx in chain.waiting() if tx.id == name), None)
    if tx is None:
        not_found()
    return {
        "tx": {"hash": tx.id, "fees": str(tx.fee), "size": len(tx.raw)},
        "inputs": [
            {"tx_hash": ref.tx, "output_index": ref.ix, "collateral": False, "reference": False}
            for ref in tx.inputs
        ],
        "outputs": [
            {
                "address": addresses.describe(one.address).text,
                "amount": amounts(one.lovelace, one.assets),
                "output_index": index,
                "data_hash": one.datum_hash,
                "inline_datum": None if one.inline_datum is None else one.inline_datum.hex(),
                "reference_script_hash": None if one.script is None else one.script.hash,
                "collateral": False,
            }
            for index, one in enumerate(tx.outputs)
        ],
        "redeemers": [
            {
                "tx_index": one.index,
                "purpose": PURPOSES[one.tag],
                "unit_mem": str(one.memory),
                "unit_steps": str(one.steps),
            }
            for one in tx.redeemers
        ],
    }
