"""A job's bill as rows of a spreadsheet, as the market states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from marketplace.api.http.spreadsheet import ada, time_of, written
from marketplace.domain.money.invoice.verify import decode_terms

HEAD: Final = (
    "what", "id", "device", "from", "until", "delivered_ms", "lovelace_per_s", "lovelace", "ada",
)  # fmt: skip


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
    return written(HEAD, ([*row, ada(int(row[-1]))] for row in rows))


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
        what, lease["lease"], lease["device"], time_of(first["at_ms"]), time_of(last["at_ms"]),
        last["unit_ms"], micro(rate), last["lease_owed"],
    )  # fmt: skip


def micro(rate: int) -> str:
    """Lovelace a second, exact."""
    return f"{rate // 10**6}.{rate % 10**6:06d}".rstrip("0").rstrip(".")
