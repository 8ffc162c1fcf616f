"""Routes about addresses."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from contracts.devnet.face.assets import onchain
from contracts.devnet.face.common import (
    Between,
    Chain,
    Paged,
    UnitOrLovelace,
    amounts,
    held,
    lookup,
    not_found,
    placed,
    utxo,
)
from contracts.devnet.index import explorer
from contracts.devnet.index.views import Page, View

router = APIRouter()
_ALL_HEIGHTS = 2**62


def _found(view: View, address: str) -> tuple[str, str]:
    column, key = lookup(address)
    if not view.known(column, key):
        not_found()
    return column, key


def _summary(view: View, address: str) -> dict[str, Any]:
    column, key = _found(view, address)
    any_row = view.received(column, key)[0]
    shelley = any_row["address"].startswith("addr")
    return {
        "address": address,
        "amount": amounts(*held(view.unspent(column, key))),
        "stake_address": any_row["stake"] if column == "address" else None,
        "type": "shelley" if shelley else "byron",
        "script": bool(any_row["is_script"]),
    }


@router.get("/addresses/{address}")
def address_summary(chain: Chain, address: str) -> dict[str, Any]:
    with chain.reading() as view:
        return _summary(view, address)


@router.get("/addresses/{address}/extended")
def address_extended(chain: Chain, address: str) -> dict[str, Any]:
    """The summary, and of each asset how it is shown: decimals only where CIP-68 gives them, for
    there is no token registry here.
    """
    with chain.reading() as view:
        summary = _summary(view, address)
        amount = [{**one, **_shown(view, one["unit"])} for one in summary["amount"]]
        return {**summary, "amount": amount}


def _shown(view: View, unit: str) -> dict[str, Any]:
    if unit == "lovelace":
        return {"decimals": 6, "has_nft_onchain_metadata": False}
    said = onchain(view, unit)
    decimals = (said.metadata or {}).get("decimals")
    return {
        "decimals": decimals if isinstance(decimals, int) else None,
        "has_nft_onchain_metadata": said.standard is not None and not said.fungible,
    }


@router.get("/addresses/{address}/total")
def address_total(chain: Chain, address: str) -> dict[str, Any]:
    with chain.reading() as view:
        column, key = _found(view, address)
        received = view.received(column, key)
        sent = [
            row
            for row in received
            if row["spent_height"] is not None and row["spent_height"] <= view.height
        ]
        count = len(view.address_txs(column, key, Page(_ALL_HEIGHTS), 0, _ALL_HEIGHTS))
    return {
        "address": address,
        "received_sum": amounts(*held(received)),
        "sent_sum": amounts(*held(sent)),
        "tx_count": count,
    }


@router.get("/addresses/{address}/utxos")
def address_utxos(chain: Chain, address: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        return [utxo(view, row) for row in view.unspent(*_found(view, address), page)]


@router.get("/addresses/{address}/utxos/{unit}")
def address_utxos_of(
    chain: Chain, address: str, unit: UnitOrLovelace, page: Paged
) -> list[dict[str, Any]]:
    with chain.reading() as view:
        column, key = _found(view, address)
        if unit != "lovelace" and not view.mints(unit):
            not_found()
        return [utxo(view, row) for row in view.unspent(column, key, page, unit)]


@router.get("/addresses/{address}/transactions")
def address_transactions(
    chain: Chain, address: str, page: Paged, span: Between
) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = explorer.transactions_at(view, *_found(view, address), page, span)
        return [placed(view, row) for row in rows]


@router.get("/addresses/{address}/txs")
def address_txs(chain: Chain, address: str, page: Paged) -> list[str]:
    with chain.reading() as view:
        rows = view.address_txs(*_found(view, address), page, 0, _ALL_HEIGHTS)
        return [row["id"] for row in rows]
