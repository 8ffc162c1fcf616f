"""Routes about transactions: those in blocks, those in the mempool, and new ones."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from contracts.devnet import addresses
from contracts.devnet.face.common import (
    Answer,
    Chain,
    amounts,
    block_time,
    body_of,
    not_found,
    output_fields,
)
from contracts.devnet.index.views import Chained, Page, Row, View
from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.parameters import EPOCH_LENGTH, PARAMETERS
from contracts.devnet.transaction import PURPOSES, Output, OutRef, Tx

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


@router.post("/tx/submit", dependencies=[body_of("application/cbor")])
async def submit(chain: Chain, request: Request) -> str:
    raw = await _body(request)
    try:
        return await run_in_threadpool(chain.submit, raw)
    except LedgerRefusal as refusal:
        raise Answer(400, refusal.told) from refusal


# --- transactions in blocks ---


def chained(view: View, name: str) -> Chained:
    found = view.tx(name)
    if found is None:
        not_found()
    return found


def facts(tx: Tx) -> dict[str, Any]:
    """What Blockfrost says of a transaction's body, in a block or waiting."""
    assets: dict[str, int] = {}
    made = [one for _, one in tx.made]
    for one in made:
        for unit, quantity in one.assets.items():
            assets[unit] = assets.get(unit, 0) + quantity
    kinds = [one.kind for one in tx.certificates]
    return {
        "hash": tx.id,
        "output_amount": amounts(sum(one.lovelace for one in made), assets),
        "fees": str(tx.fee),
        "size": len(tx.raw),
        "invalid_before": None if tx.start is None else str(tx.start),
        "invalid_hereafter": None if tx.end is None else str(tx.end),
        "utxo_count": len(tx.spent) + len(made),
        "withdrawal_count": len(tx.withdrawals),
        "mir_cert_count": 0,
        "delegation_count": sum(kind in (2, 10, 11, 13) for kind in kinds),
        "stake_cert_count": sum(kind in (0, 1, 7, 8, 11, 12, 13) for kind in kinds),
        "pool_update_count": kinds.count(3),
        "pool_retire_count": kinds.count(4),
        "asset_mint_or_burn_count": len(tx.mint),
        "redeemer_count": len(tx.redeemers),
        "valid_contract": tx.valid,
    }


@router.get("/txs/{name}")
def transaction(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        found = chained(view, name)
        row, block = found.row, found.block
        return {
            **facts(found.tx),
            "block": block["hash"],
            "block_height": block["height"],
            "block_time": block_time(view, block["slot"]),
            "slot": block["slot"],
            "index": row["position"],
            "fees": str(row["fee"]),
            "deposit": str(row["deposit"]),
            "treasury_donation": str(found.tx.donation),
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


def sent_output(one: Output, index: int, *, collateral: bool = False) -> dict[str, Any]:
    """What Blockfrost says of an output that the index does not hold."""
    return {
        "address": addresses.describe(one.address).text,
        "amount": amounts(one.lovelace, one.assets),
        "output_index": index,
        "data_hash": one.datum_hash,
        "inline_datum": None if one.inline_datum is None else one.inline_datum.hex(),
        "reference_script_hash": None if one.script is None else one.script.hash,
        "collateral": collateral,
    }


def _made(view: View, row: Row, *, collateral: bool) -> dict[str, Any]:
    spent = row["spent_height"] is not None and row["spent_height"] <= view.height
    return {
        **output_fields(row),
        "collateral": collateral,
        "consumed_by_tx": row["spent_by"] if spent else None,
    }


@router.get("/txs/{name}/utxos")
def transaction_utxos(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        tx = chained(view, name).tx
        inputs = [_input(view, ref, False, False) for ref in tx.inputs]
        inputs += [_input(view, ref, True, False) for ref in tx.collateral]
        inputs += [_input(view, ref, False, True) for ref in tx.references]
        outputs = [_made(view, row, collateral=not tx.valid) for row in view.outputs_of(tx.id)]
    if tx.valid and tx.collateral_return is not None:
        # Not on the chain unless a script fails, and listed all the same, as Blockfrost does: a
        # client has to filter it.
        shown = sent_output(tx.collateral_return, len(tx.outputs), collateral=True)
        outputs.append({**shown, "consumed_by_tx": None})
    return {"hash": tx.id, "inputs": inputs, "outputs": outputs}


@router.get("/txs/{name}/cbor")
def transaction_cbor(chain: Chain, name: str) -> dict[str, str]:
    with chain.reading() as view:
        return {"cbor": chained(view, name).tx.raw.hex()}


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
        chained(view, name)
        rows = view.redeemers("tx", name, Page(2**31))
        return [{**redeemer_fields(row), "script_hash": row["script_hash"]} for row in rows]


@router.get("/txs/{name}/withdrawals")
def transaction_withdrawals(chain: Chain, name: str) -> list[dict[str, str]]:
    with chain.reading() as view:
        tx = chained(view, name).tx
    return [
        {"address": addresses.stake_address(raw[1:], bool(raw[0] & 0x10)), "amount": str(amount)}
        for raw, amount in tx.withdrawals
    ]


@router.get("/txs/{name}/stakes")
def transaction_stakes(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        tx = chained(view, name).tx
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
        return [{"witness_hash": one} for one in chained(view, name).tx.required_signers]


@router.get("/txs/{name}/delegations")
def transaction_delegations(chain: Chain, name: str) -> list[dict[str, Any]]:
    with chain.reading() as view:
        found = chained(view, name)
    return [
        {
            "index": index,
            "cert_index": index,
            "address": addresses.stake_address(one.credential[1], one.credential[0]),
            "pool_id": addresses.pool_id(one.pool),
            "active_epoch": found.block["slot"] // EPOCH_LENGTH + 2,
        }
        for index, one in enumerate(found.tx.certificates)
        if one.credential is not None and one.pool is not None
    ]


@router.get("/txs/{name}/mirs")
def transaction_mirs(chain: Chain, name: str) -> list[dict[str, str]]:
    """Nobody moves reserves here: the certificate is gone since Conway."""
    with chain.reading() as view:
        chained(view, name)
    return []
