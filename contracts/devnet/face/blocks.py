"""Routes about blocks, genesis, network and the server itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from contracts.devnet.face.common import (
    BlockName,
    BlockOrLatest,
    Chain,
    EpochNumber,
    Paged,
    SlotNumber,
    block_time,
    not_found,
)
from contracts.devnet.index import explorer
from contracts.devnet.index.views import Page, Row, View
from contracts.devnet.parameters import (
    EPOCH_LENGTH,
    GENESIS_LOVELACE,
    PARAMETERS,
    SAFE_ZONE,
    genesis,
)

router = APIRouter()


def _block(view: View, row: Row | None) -> dict[str, Any]:
    if row is None:
        not_found()
    following = view.block(row["height"] + 1)
    return {
        "time": block_time(view, row["slot"]),
        "height": row["height"],
        "hash": row["hash"],
        "slot": row["slot"],
        "epoch": row["slot"] // EPOCH_LENGTH,
        "epoch_slot": row["slot"] % EPOCH_LENGTH,
        "slot_leader": "tally devnet",
        "size": row["size"],
        "tx_count": row["txs"],
        "output": str(row["output"]) if row["txs"] else None,
        "fees": str(row["fees"]) if row["txs"] else None,
        "block_vrf": None,
        "op_cert": None,
        "op_cert_counter": None,
        "previous_block": row["previous"],
        "next_block": None if following is None else following["hash"],
        "confirmations": view.height - row["height"],
    }


@router.get("/blocks/latest")
def latest(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        return _block(view, view.block("latest"))


@router.get("/blocks/slot/{slot_number}")
def at_slot(chain: Chain, slot_number: SlotNumber) -> dict[str, Any]:
    with chain.reading() as view:
        return _block(view, view.block_at_slot(int(slot_number)))


@router.get("/blocks/epoch/{epoch_number}/slot/{slot_number}")
def at_epoch_slot(
    chain: Chain, epoch_number: EpochNumber, slot_number: SlotNumber
) -> dict[str, Any]:
    slot = int(slot_number)
    with chain.reading() as view:
        if slot >= EPOCH_LENGTH:
            not_found()
        return _block(view, view.block_at_slot(int(epoch_number) * EPOCH_LENGTH + slot))


def _found(view: View, name: str) -> Row:
    row = view.block(name)
    if row is None:
        not_found()
    return row


@router.get("/blocks/{name}")
def block(chain: Chain, name: BlockName) -> dict[str, Any]:
    with chain.reading() as view:
        return _block(view, view.block(name))


@router.get("/blocks/{name}/txs")
def block_transactions(chain: Chain, name: BlockOrLatest, page: Paged) -> list[str]:
    with chain.reading() as view:
        return view.block_txs(_found(view, name)["height"], page)


@router.get("/blocks/{name}/txs/cbor")
def block_cbor(chain: Chain, name: BlockOrLatest, page: Paged) -> list[dict[str, str]]:
    with chain.reading() as view:
        rows = explorer.block_cbor(view, _found(view, name)["height"], page)
        return [{"tx_hash": row["id"], "cbor": row["raw"].hex()} for row in rows]


@router.get("/blocks/{name}/addresses")
def block_addresses(chain: Chain, name: BlockName, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        found = explorer.block_addresses(view, _found(view, name)["height"], page)
    return [
        {"address": address, "transactions": [{"tx_hash": one} for one in names]}
        for address, names in found.items()
    ]


@router.get("/blocks/{name}/next")
def following(chain: Chain, name: BlockName, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        height = _found(view, name)["height"]
        return [_block(view, one) for one in view.blocks(height, view.height + 1, page)]


@router.get("/blocks/{name}/previous")
def preceding(chain: Chain, name: BlockName, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        height = _found(view, name)["height"]
        # The page counts back from the named block; inside a page blocks stand in the chain's
        # order.
        newest_first = view.blocks(-1, height, Page(page.count, page.number, descending=True))
        return [_block(view, one) for one in reversed(newest_first)]


@router.get("/genesis")
def genesis_parameters(chain: Chain) -> dict[str, Any]:
    return genesis(chain.system_start)


@router.get("/network")
def network(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        sums = view.sums()
    return {
        "supply": {
            "max": str(GENESIS_LOVELACE),
            "total": str(GENESIS_LOVELACE),
            "circulating": str(sums["unspent"] + sums["accounts"]),
            "locked": "0",
            "treasury": "0",
            "reserves": "0",
        },
        "stake": {"live": "0", "active": "0"},
    }


@router.get("/network/eras")
def eras(chain: Chain) -> list[dict[str, Any]]:
    """One era from genesis: wallets take slot and time from it.

    Like Blockfrost's last era it ends with the epoch in which a hard fork could come at the
    earliest: the current one, or the next within the safe zone.
    """
    with chain.reading() as view:
        tip = _found(view, "latest")
    late = tip["slot"] % EPOCH_LENGTH >= EPOCH_LENGTH - SAFE_ZONE
    end = tip["slot"] // EPOCH_LENGTH + (2 if late else 1)
    return [
        {
            "start": {"time": 0, "slot": 0, "epoch": 0},
            "end": {"time": end * EPOCH_LENGTH, "slot": end * EPOCH_LENGTH, "epoch": end},
            "parameters": {"epoch_length": EPOCH_LENGTH, "slot_length": 1, "safe_zone": SAFE_ZONE},
        }
    ]


@router.get("")
@router.get("/")
def root() -> dict[str, str]:
    return {"url": "tally devnet", "version": f"protocol {PARAMETERS['protocol_major_ver']}"}


@router.get("/health")
def health(chain: Chain) -> dict[str, bool]:
    with chain.reading():
        return {"is_healthy": True}


@router.get("/health/clock")
def clock(chain: Chain) -> dict[str, int]:
    return {"server_time": chain.status()["now_ms"]}
