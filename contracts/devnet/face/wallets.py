"""Routes about addresses, stake accounts and assets."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from contracts.devnet import addresses
from contracts.devnet.face.common import (
    Answer,
    Chain,
    Paged,
    amounts,
    block_time,
    checked_stake,
    held,
    lookup,
    not_found,
    output_fields,
)
from contracts.devnet.views import Page, Row, View

router = APIRouter()
_ALL_HEIGHTS = 2**62


def _found(view: View, address: str) -> tuple[str, str]:
    column, key = lookup(address)
    if not view.known(column, key):
        not_found()
    return column, key


@router.get("/addresses/{address}")
def address_summary(chain: Chain, address: str) -> dict[str, Any]:
    with chain.reading() as view:
        column, key = _found(view, address)
        rows = view.unspent(column, key)
        any_row = view.received(column, key)[0]
    return {
        "address": address,
        "amount": amounts(*held(rows)),
        "stake_address": any_row["stake"] if column == "address" else None,
        "type": "shelley",
        "script": bool(any_row["is_script"]),
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


def _utxo(view: View, row: Row) -> dict[str, Any]:
    block = view.block(row["height"])
    assert block is not None
    return {
        **output_fields(row),
        "tx_hash": row["tx"],
        "tx_index": row["ix"],
        "block": block["hash"],
    }


@router.get("/addresses/{address}/utxos")
def address_utxos(chain: Chain, address: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        return [_utxo(view, row) for row in view.unspent(*_found(view, address), page)]


@router.get("/addresses/{address}/utxos/{unit}")
def address_utxos_of(chain: Chain, address: str, unit: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        return [_utxo(view, row) for row in view.unspent(*_found(view, address), page, unit)]


def _height(text: str | None, otherwise: int) -> int:
    """Blockfrost's ``from`` and ``to``: a height, or height:position, of which the height counts here."""
    if text is None:
        return otherwise
    height = text.partition(":")[0]
    if not height.isdecimal() or len(height) > 18:
        raise Answer(400, "Invalid (malformed or out of range) from/to parameter(s).")
    return int(height)


@router.get("/addresses/{address}/transactions")
def address_transactions(
    chain: Chain,
    address: str,
    page: Paged,
    first: Annotated[str | None, Query(alias="from")] = None,
    last: Annotated[str | None, Query(alias="to")] = None,
) -> list[dict[str, Any]]:
    with chain.reading() as view:
        column, key = _found(view, address)
        rows = view.address_txs(column, key, page, _height(first, 0), _height(last, _ALL_HEIGHTS))
        return [
            {
                "tx_hash": row["id"],
                "tx_index": row["position"],
                "block_height": row["height"],
                "block_time": block_time(view, row["slot"]),
            }
            for row in rows
        ]


@router.get("/addresses/{address}/txs")
def address_txs(chain: Chain, address: str, page: Paged) -> list[str]:
    with chain.reading() as view:
        rows = view.address_txs(*_found(view, address), page, 0, _ALL_HEIGHTS)
        return [row["id"] for row in rows]


# --- stake accounts ---


def _account(view: View, stake: str) -> str:
    stake = checked_stake(stake)
    if not view.known("stake", stake) and not view.certificates(stake, Page(1)):
        not_found()
    return stake


@router.get("/accounts/{stake}")
def account(chain: Chain, stake: str) -> dict[str, Any]:
    with chain.reading() as view:
        stake = _account(view, stake)
        registered = False
        pool: str | None = None
        since: int | None = None
        for row in view.certificates(stake, Page(_ALL_HEIGHTS)):
            if row["kind"] in (1, 8):
                registered, pool, since = False, None, None
            elif row["kind"] in (0, 7, 11, 12, 13):
                registered, since = True, 0
            pool = row["pool"] or pool
        rewarded = view.rewarded(stake)
        withdrawn = sum(row["lovelace"] for row in view.withdrawals(stake, Page(_ALL_HEIGHTS)))
        lovelace, _ = held(view.unspent("stake", stake))
    return {
        "stake_address": stake,
        "active": registered,
        "registered": registered,
        "active_epoch": since,
        "controlled_amount": str(lovelace + rewarded - withdrawn),
        "rewards_sum": str(rewarded),
        "withdrawals_sum": str(withdrawn),
        "reserves_sum": "0",
        "treasury_sum": "0",
        "withdrawable_amount": str(rewarded - withdrawn),
        "pool_id": pool,
        "drep_id": None,
    }


@router.get("/accounts/{stake}/registrations")
def account_registrations(chain: Chain, stake: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = view.certificates(_account(view, stake), page)
        return [
            {
                "tx_hash": row["tx"],
                "action": "deregistered" if row["kind"] in (1, 8) else "registered",
            }
            for row in rows
            if row["kind"] in (0, 1, 7, 8, 11, 12, 13)
        ]


@router.get("/accounts/{stake}/withdrawals")
def account_withdrawals(chain: Chain, stake: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = view.withdrawals(_account(view, stake), page)
        return [{"tx_hash": row["tx"], "amount": str(row["lovelace"])} for row in rows]


@router.get("/accounts/{stake}/addresses")
def account_addresses(chain: Chain, stake: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = view.received("stake", _account(view, stake))
    names = list(dict.fromkeys(row["address"] for row in rows))
    start = (page.number - 1) * page.count
    return [{"address": name} for name in names[start : start + page.count]]


@router.get("/accounts/{stake}/utxos")
def account_utxos(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        return [_utxo(view, row) for row in view.unspent("stake", _account(view, stake), page)]


# --- assets ---


@router.get("/assets")
def assets(chain: Chain, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        return [_asset_line(row) for row in view.assets("", page)]


@router.get("/assets/policy/{policy}")
def assets_of_policy(chain: Chain, policy: str, page: Paged) -> list[dict[str, str]]:
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
def asset(chain: Chain, unit: str) -> dict[str, Any]:
    with chain.reading() as view:
        rows = _mints(view, unit)
    policy, name = unit[:56], unit[56:]
    return {
        "asset": unit,
        "policy_id": policy,
        "asset_name": name or None,
        "fingerprint": addresses.fingerprint(policy, name),
        "quantity": str(sum(row["quantity"] for row in rows)),
        "initial_mint_tx_hash": rows[0]["tx"],
        "mint_or_burn_count": len(rows),
        "onchain_metadata": None,
        "onchain_metadata_standard": None,
        "onchain_metadata_extra": None,
        "metadata": None,
    }


@router.get("/assets/{unit}/addresses")
def asset_addresses(chain: Chain, unit: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        _mints(view, unit)
        holders = list(view.holders(unit).items())
    start = (page.number - 1) * page.count
    return [
        {"address": address, "quantity": str(quantity)}
        for address, quantity in holders[start : start + page.count]
    ]


@router.get("/assets/{unit}/history")
def asset_history(chain: Chain, unit: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = _mints(view, unit)
    start = (page.number - 1) * page.count
    return [
        {
            "tx_hash": row["tx"],
            "action": "minted" if row["quantity"] > 0 else "burned",
            "amount": str(row["quantity"]),
        }
        for row in rows[start : start + page.count]
    ]
