"""What every route shares: the chain behind it, pages, Blockfrost's errors and its way to write amounts."""

from __future__ import annotations

import json
from typing import Annotated, Any, NoReturn

from fastapi import Depends, Query, Request

from contracts.devnet.addresses import BadAddress, payment_key, stake_credential
from contracts.devnet.node import Devnet
from contracts.devnet.views import Page, Row, View

_NAMES = {400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}
NOT_FOUND = "The requested component has not been found."


class Answer(Exception):
    """Ends a request with an error in Blockfrost's shape."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "status_code": status,
            "error": _NAMES.get(status, "Error"),
            "message": message,
            **more,
        }


def not_found() -> NoReturn:
    raise Answer(404, NOT_FOUND)


def _chain(request: Request) -> Devnet:
    return request.app.state.devnet


def _page(
    count: Annotated[int, Query(ge=1, le=100)] = 100,
    page: Annotated[int, Query(ge=1, le=21_474_836)] = 1,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "asc",
) -> Page:
    return Page(count, page, order == "desc")


Chain = Annotated[Devnet, Depends(_chain)]
Paged = Annotated[Page, Depends(_page)]


def amounts(lovelace: int, assets: dict[str, int]) -> list[dict[str, str]]:
    """Blockfrost's amount: lovelace first, then assets by unit; quantities are text."""
    listed = [{"unit": "lovelace", "quantity": str(lovelace)}]
    return listed + [{"unit": unit, "quantity": str(q)} for unit, q in sorted(assets.items())]


def held(rows: list[Row]) -> tuple[int, dict[str, int]]:
    """Lovelace and assets in a list of outputs."""
    assets: dict[str, int] = {}
    for row in rows:
        for unit, quantity in json.loads(row["assets"]).items():
            assets[unit] = assets.get(unit, 0) + quantity
    return sum(row["lovelace"] for row in rows), assets


def output_fields(row: Row) -> dict[str, Any]:
    """What Blockfrost says of an output everywhere."""
    return {
        "address": row["address"],
        "amount": amounts(*held([row])),
        "output_index": row["ix"],
        "data_hash": row["datum_hash"],
        "inline_datum": row["inline_datum"],
        "reference_script_hash": row["script_hash"],
    }


def block_time(view: View, slot: int) -> int:
    """POSIX seconds of a slot."""
    return view.system_start + slot


def lookup(text: str) -> tuple[str, str]:
    """(column, key) for an address or payment credential. Ends the request with 400 for a malformed one."""
    try:
        column, key = payment_key(text)
    except BadAddress as problem:
        raise Answer(400, str(problem)) from problem
    return column, str(key)


def checked_stake(text: str) -> str:
    """A stake address of this network. Ends the request with 400 for a malformed one."""
    try:
        stake_credential(text)
    except BadAddress as problem:
        raise Answer(400, "Invalid or malformed stake address format.") from problem
    return text
