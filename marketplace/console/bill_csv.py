"""A job's bill as rows of a spreadsheet, as the market states it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from marketplace.domain.money.invoice.verify import decode_terms
from marketplace.domain.units import LOVELACE_PER_ADA

HEAD: Final = (
    "what", "id", "device", "from", "until", "delivered_ms", "lovelace_per_s", "lovelace", "ada",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def bill_csv(view: Mapping[str, Any], bill: Mapping[str, Any]) -> str:
    """RFC 4180: a row a lease, a row for each fee that the market knows, and their sum. *view* is
    the job's, *bill* its evidence (`evidence.invoice_view`).
    """
    rows: list[tuple[Any, ...]] = [_lease(lease, bill) for lease in bill["leases"]]
    rows += [
        (f"network fee: {tx['kind']}", tx["id"], "", "", "", "", "", tx["fee"])
        for tx in view["transactions"]
        if tx["fee"] and tx["state"] not in ("BUILT", "EXPIRED")
    ]
    total = sum(int(row[-1]) for row in rows)
    rows.append(("total", view["id"], "", "", "", "", "", total))
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(HEAD)
    for row in rows:
        out.writerow([*map(_cell, row), ada(int(row[-1]))])
    return text.getvalue()


def _lease(lease: Mapping[str, Any], bill: Mapping[str, Any]) -> tuple[Any, ...]:
    receipts = [
        r for c in bill["channels"] for r in c["receipts"] if r["lease"] == lease["lease"]
    ]  # fmt: skip
    terms, routed = decode_terms(bytes.fromhex(lease["terms"]))
    rate, what = terms.rate_micro, "lease, less its router's fee" if routed else "lease"
    if not receipts:
        return (what, lease["lease"], lease["device"], "", "", 0, micro(rate), 0)
    first, last = receipts[0], receipts[-1]
    return (
        what, lease["lease"], lease["device"], _time(first["at_ms"]), _time(last["at_ms"]),
        last["unit_ms"], micro(rate), last["lease_owed"],
    )  # fmt: skip


def micro(rate: int) -> str:
    """Lovelace a second, exact."""
    return f"{rate // 10**6}.{rate % 10**6:06d}".rstrip("0").rstrip(".")


def ada(lovelace: int) -> str:
    """``12.345678``: exact, six decimals."""
    return f"{lovelace // LOVELACE_PER_ADA}.{lovelace % LOVELACE_PER_ADA:06d}"


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cell(value: object) -> object:
    """A provider chose some of these words: none of them is a formula."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else value
