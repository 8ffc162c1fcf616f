"""Routes about epochs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from contracts.devnet.face.common import Chain, EpochNumber, Paged, block_time, not_found, paged
from contracts.devnet.index import explorer
from contracts.devnet.index.views import View
from contracts.devnet.parameters import EPOCH_LENGTH, epoch_parameters

router = APIRouter()


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


def current_epoch(view: View) -> int:
    tip = view.block("latest")
    assert tip is not None
    return tip["slot"] // EPOCH_LENGTH


def _known(view: View, text: str) -> int:
    if int(text) > current_epoch(view):
        not_found()
    return int(text)


@router.get("/epochs/latest")
def latest_epoch(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        return _epoch(view, current_epoch(view))


@router.get("/epochs/latest/parameters")
def latest_parameters(chain: Chain) -> dict[str, Any]:
    with chain.reading() as view:
        return epoch_parameters(current_epoch(view))


@router.get("/epochs/{number}")
def epoch(chain: Chain, number: EpochNumber) -> dict[str, Any]:
    with chain.reading() as view:
        return _epoch(view, _known(view, number))


@router.get("/epochs/{number}/next")
def following(chain: Chain, number: EpochNumber, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        after = range(_known(view, number) + 1, current_epoch(view) + 1)
        return [_epoch(view, one) for one in paged(after, page)]


@router.get("/epochs/{number}/previous")
def preceding(chain: Chain, number: EpochNumber, page: Paged) -> list[dict[str, Any]]:
    with chain.reading() as view:
        before = range(_known(view, number))
        start = max(0, len(before) - page.number * page.count)
        stop = max(0, len(before) - (page.number - 1) * page.count)
        return [_epoch(view, one) for one in before[start:stop]]


@router.get("/epochs/{number}/blocks")
def blocks(chain: Chain, number: EpochNumber, page: Paged) -> list[str]:
    with chain.reading() as view:
        first = _known(view, number) * EPOCH_LENGTH
        return explorer.hashes_between(view, first, first + EPOCH_LENGTH - 1, page)


@router.get("/epochs/{number}/parameters")
def parameters_of(chain: Chain, number: EpochNumber) -> dict[str, Any]:
    with chain.reading() as view:
        return epoch_parameters(_known(view, number))
