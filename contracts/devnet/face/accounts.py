"""Routes about stake accounts."""

from __future__ import annotations

from typing import Any

import cbor2
from fastapi import APIRouter

from contracts.devnet import addresses
from contracts.devnet.face.common import (
    Between,
    Chain,
    Paged,
    amounts,
    block_time,
    checked_stake,
    held,
    not_found,
    paged,
    placed,
    utxo,
)
from contracts.devnet.index import explorer
from contracts.devnet.index.views import Chained, Page, Row, View
from contracts.devnet.parameters import EPOCH_LENGTH, KEY_DEPOSIT

router = APIRouter()
_EVERYTHING = Page(2**62)
_ENDS = (1, 8)
_REGISTERS = (0, 7, 11, 12, 13)
# Where a certificate that delegates votes names the DRep.
_DREP_AT = {9: 2, 10: 3, 12: 2, 13: 3}
_DREP_WORDS = {2: "drep_always_abstain", 3: "drep_always_no_confidence"}
# Rewards come from /devnet/reward and from no pool; Blockfrost's schema wants one named.
_NO_POOL = addresses.pool_id(bytes(28))


def _account(view: View, stake: str) -> str:
    stake = checked_stake(stake)
    if not view.known("stake", stake) and not view.certificates(stake, Page(1)):
        not_found()
    return stake


def _of(view: View, row: Row) -> Chained:
    """The transaction that an index row came with."""
    found = view.tx(row["tx"])
    assert found is not None
    return found


def _epoch(found: Chained) -> int:
    return found.block["slot"] // EPOCH_LENGTH


def _moment(view: View, found: Chained) -> dict[str, int]:
    slot = found.block["slot"]
    height = found.block["height"]
    return {"tx_slot": slot, "block_time": block_time(view, slot), "block_height": height}


def _drep(view: View, row: Row) -> str:
    """The DRep that a certificate delegates to, in CIP-129's form."""
    parts = cbor2.loads(_of(view, row).tx.raw)[0][4]
    certificates: list[Any] = list(parts.value if isinstance(parts, cbor2.CBORTag) else parts)
    kind, *hashed = certificates[row["ix"]][_DREP_AT[row["kind"]]]
    return _DREP_WORDS[kind] if kind in _DREP_WORDS else addresses.drep_id(hashed[0], kind == 1)


@router.get("/accounts/{stake}")
def account(chain: Chain, stake: str) -> dict[str, Any]:
    with chain.reading() as view:
        stake = _account(view, stake)
        registered = False
        pool: str | None = None
        votes: Row | None = None
        changed: Row | None = None
        for row in view.certificates(stake, _EVERYTHING):
            if row["kind"] in _ENDS:
                registered, pool, votes, changed = False, None, None, row
                continue
            if row["kind"] in _REGISTERS:
                registered, changed = True, row
            pool = row["pool"] or pool
            votes = row if row["kind"] in _DREP_AT else votes
        rewarded = view.rewarded(stake)
        withdrawn = sum(row["lovelace"] for row in view.withdrawals(stake, _EVERYTHING))
        lovelace, _ = held(view.unspent("stake", stake))
        active_epoch = None if changed is None else _epoch(_of(view, changed))
        drep = None if votes is None else _drep(view, votes)
    return {
        "stake_address": stake,
        "active": registered and pool is not None,
        "registered": registered,
        "active_epoch": active_epoch,
        "controlled_amount": str(lovelace + rewarded - withdrawn),
        "rewards_sum": str(rewarded),
        "withdrawals_sum": str(withdrawn),
        "reserves_sum": "0",
        "treasury_sum": "0",
        "withdrawable_amount": str(rewarded - withdrawn),
        "pool_id": pool,
        "drep_id": drep,
    }


@router.get("/accounts/{stake}/registrations")
def account_registrations(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = view.certificates(_account(view, stake), _EVERYTHING)
        changes = [row for row in rows if row["kind"] in (*_ENDS, *_REGISTERS)]
        return [
            {
                "tx_hash": row["tx"],
                "action": "deregistered" if row["kind"] in _ENDS else "registered",
                "deposit": None if row["kind"] in _ENDS else str(KEY_DEPOSIT),
                **_moment(view, _of(view, row)),
            }
            for row in paged(changes, page)
        ]


@router.get("/accounts/{stake}/withdrawals")
def account_withdrawals(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = view.withdrawals(_account(view, stake), page)
        return [
            {
                "tx_hash": row["tx"],
                "amount": str(row["lovelace"]),
                **_moment(view, _of(view, row)),
            }
            for row in rows
        ]


@router.get("/accounts/{stake}/delegations")
def account_delegations(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = view.certificates(_account(view, stake), _EVERYTHING)
        found = [(row, _of(view, row)) for row in paged([one for one in rows if one["pool"]], page)]
        return [
            {
                "active_epoch": _epoch(chained) + 2,
                "tx_hash": row["tx"],
                "amount": str(sum(one.lovelace for one in chained.tx.outputs)),
                "pool_id": row["pool"],
                **_moment(view, chained),
            }
            for row, chained in found
        ]


@router.get("/accounts/{stake}/rewards")
def account_rewards(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = explorer.credited(view, _account(view, stake), page)
    return [
        {
            "epoch": row["slot"] // EPOCH_LENGTH,
            "amount": str(row["lovelace"]),
            "pool_id": _NO_POOL,
            "type": "member",
        }
        for row in rows
    ]


@router.get("/accounts/{stake}/history")
@router.get("/accounts/{stake}/mirs")
def account_nothing(chain: Chain, stake: str) -> list[dict[str, Any]]:
    """No stake is distributed and no reserves are moved here, so these lists are empty for every
    account.
    """
    with chain.reading() as view:
        _account(view, stake)
    return []


@router.get("/accounts/{stake}/addresses")
def account_addresses(chain: Chain, stake: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = view.received("stake", _account(view, stake))
    names = list(dict.fromkeys(row["address"] for row in rows))
    return [{"address": name} for name in paged(names, page)]


@router.get("/accounts/{stake}/addresses/assets")
def account_assets(chain: Chain, stake: str, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        _, found = held(view.unspent("stake", _account(view, stake)))
    return paged(amounts(0, found)[1:], page)


@router.get("/accounts/{stake}/addresses/total")
def account_total(chain: Chain, stake: str) -> dict[str, Any]:
    with chain.reading() as view:
        received = view.received("stake", _account(view, stake))
        sent = [row for row in received if (row["spent_height"] or 2**62) <= view.height]
        names = {row["tx"] for row in received} | {row["spent_by"] for row in sent}
    return {
        "stake_address": stake,
        "received_sum": amounts(*held(received)),
        "sent_sum": amounts(*held(sent)),
        "tx_count": len(names),
    }


@router.get("/accounts/{stake}/utxos")
def account_utxos(chain: Chain, stake: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        return [utxo(view, row) for row in view.unspent("stake", _account(view, stake), page)]


@router.get("/accounts/{stake}/transactions")
def account_transactions(
    chain: Chain, stake: str, page: Paged, span: Between
) -> list[dict[str, Any]]:
    with chain.reading() as view:
        rows = explorer.stake_transactions(view, _account(view, stake), page, span)
        return [{"address": row["address"], **placed(view, row)} for row in rows]
