"""What every route shares: the chain behind it, pages, Blockfrost's errors and its way to write
amounts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from contracts.devnet.addresses import BadAddress, payment_key, stake_credential
from contracts.devnet.index.views import Page, Row, View
from contracts.devnet.node import Devnet

_NAMES = {
    400: "Bad Request",
    404: "Not Found",
    415: "Unsupported Media Type",
    429: "Project Over Limit",
    500: "Internal Server Error",
}
NOT_FOUND = "The requested component has not been found."
NO_SUCH_PATH = "Invalid path. Please check https://docs.blockfrost.io/"
BACKEND_FAILED = "An unexpected response was received from the backend."
_BAD_RANGE = "Invalid (malformed or out of range) from/to parameter(s)."
_MAX_INT = 2**31 - 1
_MAX_BIGINT = 2**63 - 1
_ALL = 2**62
_Item = TypeVar("_Item")


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


def body_of(kind: str) -> Any:
    """A dependency that ends a request with 415 unless its body is said to be of this media type,
    whatever its parameters.

    As Blockfrost's servers answer (blockfrost-utils, ``handle415``): a client that forgets the
    header would meet it there first.
    """

    def check(request: Request) -> None:
        given = request.headers.get("content-type", "")
        if given.partition(";")[0].strip().lower() != kind:
            said = given or "no Content-Type"
            raise Answer(415, f"Unsupported Media Type: {said}. Send the body as {kind}.")

    return Depends(check)


def _page(
    count: Annotated[int, Query(ge=1, le=100)] = 100,
    page: Annotated[int, Query(ge=1, le=21_474_836)] = 1,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "asc",
) -> Page:
    return Page(count, page, order == "desc")


Chain = Annotated[Devnet, Depends(_chain)]
Paged = Annotated[Page, Depends(_page)]


def paged(items: Sequence[_Item], page: Page) -> list[_Item]:
    """One page of a list that stands oldest first."""
    ordered = items[::-1] if page.descending else items
    start = (page.number - 1) * page.count
    return list(ordered[start : start + page.count])


# --- what a path may hold: Blockfrost answers 400 to what cannot exist and 404 to what does not ---


def _matching(pattern: str, message: str) -> Callable[[str], str]:
    shape = re.compile(pattern)

    def check(text: str) -> str:
        if not shape.fullmatch(text):
            raise Answer(400, message)
        return text

    return check


def _number(message: str, most: int = _MAX_INT) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > most:
            raise Answer(400, message)
        return text

    return check


_block_hash = _matching("[0-9a-fA-F]{64}", "Missing or malformed block hash.")
_block_number = _number("Missing, out of range or malformed block number.")


def _block_name(text: str) -> str:
    numeric = len(text) < 64 and re.fullmatch(r"[+-]?[0-9]+", text) is not None
    return _block_number(text) if numeric else _block_hash(text)


BlockName = Annotated[str, AfterValidator(_block_name)]
BlockOrLatest = Annotated[str, AfterValidator(lambda t: t if t == "latest" else _block_name(t))]
SlotNumber = Annotated[
    str, AfterValidator(_number("Missing, out of range or malformed slot_number."))
]
EpochNumber = Annotated[
    str, AfterValidator(_number("Missing, out of range or malformed epoch_number."))
]
Label = Annotated[
    str, AfterValidator(_number("Missing, out of range or malformed label.", _MAX_BIGINT))
]
Unit = Annotated[
    str,
    AfterValidator(_matching("[0-9a-fA-F]{56,120}", "Invalid or malformed asset format.")),
]
UnitOrLovelace = Annotated[
    str,
    AfterValidator(_matching("lovelace|[0-9a-fA-F]{56,120}", "Invalid or malformed asset format.")),
]
Policy = Annotated[
    str, AfterValidator(_matching("[0-9a-fA-F]{56}", "Invalid or malformed policy format."))
]


# --- from and to: a height, or height:position in its block ---

Span = tuple[tuple[int, int], tuple[int, int]]


def _place(text: str | None, otherwise: tuple[int, int]) -> tuple[int, int]:
    if text is None:
        return otherwise
    parts = text.split(":")
    if len(parts) > 2 or not all(
        part.isascii() and part.isdecimal() and len(part) < 11 and int(part) <= _MAX_INT
        for part in parts
    ):
        raise Answer(400, _BAD_RANGE)
    return int(parts[0]), int(parts[1]) if len(parts) == 2 else otherwise[1]


def _span(
    first: Annotated[str | None, Query(alias="from")] = None,
    last: Annotated[str | None, Query(alias="to")] = None,
) -> Span:
    """((height, position), (height, position)), both inclusive."""
    span = _place(first, (0, -1)), _place(last, (_ALL, _ALL))
    if span[0] > span[1]:
        raise Answer(400, _BAD_RANGE)
    return span


Between = Annotated[Span, Depends(_span)]


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


def utxo(view: View, row: Row) -> dict[str, Any]:
    """What Blockfrost says of an output in a list."""
    block = view.block(row["height"])
    assert block is not None
    return {
        **output_fields(row),
        "tx_hash": row["tx"],
        "tx_index": row["ix"],
        "block": block["hash"],
    }


def placed(view: View, row: Row) -> dict[str, Any]:
    """Where a transaction stands. Row: id, position, height, slot."""
    return {
        "tx_hash": row["id"],
        "tx_index": row["position"],
        "block_height": row["height"],
        "block_time": block_time(view, row["slot"]),
    }


def lookup(text: str) -> tuple[str, str]:
    """(column, key) for an address or payment credential. Ends the request with 400 for a malformed
    one.
    """
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
