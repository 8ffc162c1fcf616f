"""A hop's book as rows of its channel's journal: what it pays for, and what it signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from marketplace.domain.errors import Malformed
from marketplace.domain.money.route.hop import Paying, Payment, merged
from marketplace.domain.money.route.leaves import pack, unpack
from marketplace.domain.money.route.payer import Bought, PayerBook
from marketplace.domain.money.route.statement import SignedStatement
from marketplace.domain.money.voucher import Voucher

KINDS: Final = ("bought", "owes", "said", "payment", "over")


def bought_row(terms: bytes, lease: Bought) -> dict[str, Any]:
    """A lease that the hop pays for, by the hash of its terms."""
    return {
        "k": "bought", "terms": terms.hex(), **vars(lease),
        "lease_vk": lease.lease_vk.hex(), "adapter_vk": lease.adapter_vk.hex(),
    }  # fmt: skip


def owes_row(terms: bytes, owed: int) -> dict[str, Any]:
    """What is approved for a lease by now."""
    return {"k": "owes", "terms": terms.hex(), "owed": owed}


def said_row(terms: bytes, paid: int) -> dict[str, Any]:
    """What the provider said that it was paid."""
    return {"k": "said", "terms": terms.hex(), "paid": paid}


def payment_row(payment: Payment, since: Payment | None) -> dict[str, Any]:
    """A payment, by what changed in it."""
    voucher = payment.voucher
    return {
        "k": "payment",
        "statement": [payment.signed.body.hex(), payment.signed.signature.hex()],
        "voucher": [voucher.cumulative, voucher.signature.hex()],
        "leaves": pack(payment.changes(since)).hex(),
    }


def over_row(terms: bytes, lease: Bought) -> dict[str, Any]:
    """No more than its *reserve* is kept for a lease."""
    return {"k": "over", "terms": terms.hex(), "reserve": lease.reserve}


def whole(book: PayerBook) -> list[dict[str, Any]]:
    """The rows that all earlier ones add up to."""
    rows = [bought_row(terms, lease) for terms, lease in book.leases.items()]
    return rows + ([payment_row(book.paying.last, None)] if book.paying.last else [])


def fold(book: PayerBook, row: Mapping[str, Any]) -> PayerBook:
    """*book* after one of its rows."""
    if row["k"] == "payment":
        return replace(book, paying=_paid(book.paying, row))
    terms = bytes.fromhex(str(row["terms"]))
    if row["k"] == "bought":
        fields: dict[str, Any] = {k: v for k, v in row.items() if k not in ("k", "terms")}
        for name in ("lease_vk", "adapter_vk"):
            fields[name] = bytes.fromhex(fields[name])
        lease = Bought(**fields)
    else:
        known = book.leases.get(terms)
        if known is None:
            raise Malformed(f"a row of a lease that is not in the book: {terms.hex()[:16]}")
        lease = _moved(known, row)
    return replace(book, leases={**book.leases, terms: lease})


def _moved(lease: Bought, row: Mapping[str, Any]) -> Bought:
    match row["k"]:
        case "owes":
            return replace(lease, owed=max(lease.owed, int(row["owed"])))
        case "said":
            return replace(lease, paid=max(lease.paid, int(row["paid"])))
        case _:
            return replace(lease, reserve=int(row["reserve"]))


def _paid(paying: Paying, row: Mapping[str, Any]) -> Paying:
    body, signature = (bytes.fromhex(part) for part in row["statement"])
    cumulative, voucher = row["voucher"]
    payment = merged(
        paying.last,
        SignedStatement(body, signature),
        Voucher(paying.session_vk, int(cumulative), bytes.fromhex(voucher)),
        unpack(bytes.fromhex(row["leaves"])),
    )
    return replace(paying, last=payment)
