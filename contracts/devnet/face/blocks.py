"""Routes about blocks, epochs, genesis, network and the server itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from contracts.devnet.face.common import Answer, Chain, Paged, block_time, not_found
from contracts.devnet.parameters import (
    EPOCH_LENGTH,
    GENESIS_LOVELACE,
    PARAMETERS,
    SECURITY_PARAM,
    epoch_parameters,
    genesis,
)
from contracts.devnet.views import Page, Row, View

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


@router.get("/blocks/slot/{slot}")
def at_slot(chain: Chain, slot: int) -> dict[str, Any]:
    with chain.reading() as view:
        return _block(view, view.block_at_slot(slot))


@router.get("/blocks/{name}")
def block(chain: Chain, name: str) -> dict[str, Any]:
    with chain.reading() as view:
        return _block(view, view.block(name))


@router.get("/blocks/{name}/txs")
def block_transactions(chain: Chain, name: str, page: Paged) -> list[str]:
    with chain.reading() as view:
        row = view.block(name)
        if row is None:
            not_found()
        return view.block_txs(row["height"], page)


@router.get("/blocks/{name}/next")
def following(chain: Chain, name: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        row = view.block(name)
        if row is None:
            not_found()
        return [_block(view, one) for one in view.blocks(row["height"], view.height + 1, page)]


@router.get("/blocks/{name}/previous")
def preceding(chain: Chain, name: str, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        row = view.block(name)
        if row is None:
            not_found()
        # The page counts back from the named block; inside a page blocks stand in the chain's order.
        newest_first = view.blocks(
            -1, row["height"], Page(page.count, page.number, descending=True)
        )
        return [_block(view, one) for one in reversed(newest_first)]


def _epoch(view: View, number: int) -> dict[str, Any]:
    first = number * EPOCH_LENGTH
    totals = view.totals(first, first + EPOCH_LENGTH - 1)
    return {
        "epoch": number,
        "start_time": block_time(view, first),
        "end_time": block_time(view, first + EPOCH_LENGTH),
        "first_block_time": block_time(view, totals["first"]),
        "last_block_time": block_time(view, totals["last"]),
        "block_count": totals["blocks"],
        "tx_count": totals["txs"],
        "output": str(totals["output"]),
        "fees": str(totals["fees"]),
        "active_stake": None,
    }


def _current_epoch(view: View) -> int:
    tip = view.block("latest")
    assert tip is not None
    return tip["slot"] // EPOCH_LENGTH


def _known_epoch(view: View, number: int) -> int:
    if not 0 <= number <= _current_epoch(view):
        not_found()
    return number


@router.get("/epochs/latest")
def latest_epoch(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        return _epoch(view, _current_epoch(view))


@router.get("/epochs/latest/parameters")
def latest_parameters(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        return epoch_parameters(_current_epoch(view))


@router.get("/epochs/{number}")
def epoch(chain: Chain, number: int) -> dict[str, Any]:
    with chain.reading() as view:
        return _epoch(view, _known_epoch(view, number))


@router.get("/epochs/{number}/parameters")
def parameters_of(chain: Chain, number: int) -> dict[str, Any]:
    with chain.reading() as view:
        return epoch_parameters(_known_epoch(view, number))


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
    """One era from genesis without end: wallets take slot and time from it."""
    return [
        {
            "start": {"time": 0, "slot": 0, "epoch": 0},
            "end": {"time": None, "slot": None, "epoch": None},
            "parameters": {
                "epoch_length": EPOCH_LENGTH,
                "slot_length": 1,
                "safe_zone": 3 * SECURITY_PARAM,
            },
        }
    ]


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


@router.get("/{path:path}", include_in_schema=False)
def unknown(path: str) -> None:
    raise Answer(404, "The requested component has not been found.")
