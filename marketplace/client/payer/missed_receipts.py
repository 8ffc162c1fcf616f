"""Receipts that a payer missed, read again from the market."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, cast

import structlog

from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.money.receipt import SignedReceipt

log = structlog.get_logger("tally.payer")


class Receipts(Protocol):
    """Where receipts that were missed can be read again."""

    async def between(self, job: str, first: int, last: int) -> list[SignedReceipt]:
        """The receipts *first* to *last* of the channel that *job* ran on, those that are known."""
        ...


async def in_order(
    receipts: Receipts, jobs: Iterable[str], first: int, last: int
) -> list[SignedReceipt]:
    """The receipts *first* to *last* of a channel that *jobs* ran on, those that are known. (How
    wide the gap is, a receipt said: it may be anything.)
    """
    found: dict[int, SignedReceipt] = {}
    for job in jobs:
        for each in await receipts.between(job, first, last):
            found[each.receipt.seq] = each
        if len(found) == last - first + 1:
            break
    return [found[seq] for seq in sorted(found)]


class HttpReceipts:
    """Missed receipts, from the market's HTTP face."""

    def __init__(self, get: Callable[..., Awaitable[Any]]) -> None:
        self._get = get

    async def between(self, job: str, first: int, last: int) -> list[SignedReceipt]:
        """Those of *job* within [first, last]."""
        found: list[SignedReceipt] = []
        cursor: str | None = None
        while True:
            try:
                page = await self._get(f"/v1/jobs/{job}/receipts", cursor=cursor, limit=200)
            except Fault as fault:
                log.info("receipts_unread", job=job, why=fault.message)
                return found
            for item in cast("list[dict[str, Any]]", page.get("items", [])):
                try:
                    signed = SignedReceipt(
                        bytes.fromhex(str(item["body"])), bytes.fromhex(str(item["signature"]))
                    )
                    seq = signed.receipt.seq
                except (Refusal, ValueError, KeyError, TypeError):
                    continue  # a market's nonsense is no receipt, and ends no payer
                if first <= seq <= last:
                    found.append(signed)
            cursor = page.get("next")
            if not cursor:
                return found
