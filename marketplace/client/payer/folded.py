"""What a channel's rows add up to. Pure but for the clock that it may read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import decide, hop_rows
from marketplace.client.payer.decide import Book
from marketplace.client.payer.lease_book import LeaseBook
from marketplace.client.payer.loaded import ChannelFacts, Loaded
from marketplace.client.payer.ordered import Orders
from marketplace.client.payer.renewal_rule import RenewalRule
from marketplace.disk import JournalDamaged
from marketplace.domain.errors import Malformed
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.route.hop import Paying
from marketplace.domain.money.route.payer import PayerBook
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.work.cluster_order import SignedOrder


def fold(session_vk: bytes, rows: list[dict[str, Any]], now: Stamp | None = None) -> Loaded:
    """The book that *rows* add up to, its times moved to this process's clock."""
    now = now or Stamp.now()
    loaded = Loaded(book=Book(session_vk))
    agreed: dict[str, int] = {}
    lasting: set[str] = set()
    for number, row in enumerate(rows, start=1):
        try:
            _fold(loaded, row, now, agreed)
            if "at" in row:
                lasting = {*lasting, str(row["lease"])} if row.get("handed") else set()
        except (KeyError, TypeError, ValueError, Malformed) as error:
            raise JournalDamaged(f"row {number}: {error}") from error
    heard_ms = max((Stamp.from_wire(r["at"]).mono_at(now) for r in rows if "at" in r), default=0)
    stamps = (Stamp.from_wire(r["at"]).wall_ms for r in rows if "at" in r)
    loaded.heard_wall_ms = max(stamps, default=0)
    for lease in list(loaded.book.leases.values()):
        if lease.terms.lease not in lasting:  # it is known as far as somebody listened
            loaded.book = decide.resumed(loaded.book, lease.terms.lease, heard_ms)
        if lease.since_ms is None:  # it may have begun since, and nobody wrote that down
            unseen = replace(lease, agreed_ms=agreed[lease.terms.lease])
            loaded.book = loaded.book.with_lease(unseen)
    return loaded


def _fold(loaded: Loaded, row: dict[str, Any], now: Stamp, agreed: dict[str, int]) -> None:
    book = loaded.book
    match row["k"]:
        case "channel":
            loaded.facts = ChannelFacts.from_json({k: v for k, v in row.items() if k != "k"})
        case "lease" | "renewed":
            _fold_terms(loaded, row, now, agreed)
        case "told" | "rule" | "cap" | "order":
            known = _changed(book.leases[str(row["lease"])], row, now)
            loaded.book = book.with_lease(known)
        case "clock":
            at = Stamp.from_wire(row["at"]).mono_at(now)
            loaded.book = decide.MOVES[row["what"]](book, str(row["lease"]), at)
        case "tick":
            _fold_tick(loaded, row, now)
        case "signed":
            for name, approved in row.get("approved", {}).items():
                lease = loaded.book.leases[name]
                more = replace(lease, approved=max(lease.approved, int(approved)))
                loaded.book = loaded.book.with_lease(more)
            loaded.book = replace(loaded.book, signed=max(loaded.book.signed, int(row["signed"])))
        case "stopped":
            loaded.book = replace(book, stopped=str(row["code"]))
        case "cut":
            for known in book.leases.values():
                loaded.book = loaded.book.with_lease(known.unsure())
        case "final":
            loaded.final.add(str(row["lease"]))
            if row.get("lost"):
                loaded.book = book.with_lease(book.leases[str(row["lease"])].lost())
        case "end":
            loaded.end_sent = True
            at = Stamp.from_wire(row["at"]) if "at" in row else now
            loaded.end_ms = at.mono_at(now)
        case kind if kind in hop_rows.KINDS:
            hop = hop_rows.fold(loaded.hop or PayerBook(Paying(book.session_vk)), row)
            loaded.hop = hop
            loaded.book = replace(book, signed=max(book.signed, hop.paying.total))
        case unknown:
            raise Malformed(f"unknown row {unknown!r}")


def _fold_terms(loaded: Loaded, row: dict[str, Any], now: Stamp, agreed: dict[str, int]) -> None:
    signed = SignedTerms.from_wire([bytes.fromhex(part) for part in row["terms"]])
    cap = int(row["cap"])
    if row["k"] == "renewed":
        terms = signed.terms
        known = loaded.book.leases[terms.lease].renewed(terms, cap)
    else:
        signed = either(signed)
        terms = signed.terms
        known = LeaseBook(terms, cap, orders=Orders() if row.get("member") else None)
        agreed[terms.lease] = Stamp.from_wire(row["at"]).mono_at(now)
    loaded.terms[terms.lease] = signed
    loaded.book = loaded.book.with_lease(known)


def _changed(known: LeaseBook, row: dict[str, Any], now: Stamp) -> LeaseBook:
    """A lease after a row that changes what is agreed on it, or ordered of it."""
    match row["k"]:
        case "told":
            return replace(known, known_ms=0)
        case "rule":
            rule = RenewalRule.from_json(row["rule"]) if row["rule"] is not None else None
            return replace(known, rule=rule)
        case "cap":
            return replace(known, cap=int(row["cap"]))
        case _:
            body, signature = (bytes.fromhex(part) for part in row["order"])
            after = known.relearnt if row.get("again") else known.ordered
            at = Stamp.from_wire(row["at"]).mono_at(now)
            return after(SignedOrder(body, signature), at)


def _fold_tick(loaded: Loaded, row: dict[str, Any], now: Stamp) -> None:
    body, signature = row["receipt"]
    signed = SignedReceipt(bytes.fromhex(body), bytes.fromhex(signature))
    receipt = signed.receipt
    at = Stamp.from_wire(row["at"]).mono_at(now)
    book = decide.started(loaded.book, receipt.lease, at)
    if receipt.final:
        book = decide.ended(book, receipt.lease, at)
    lease = book.leases[receipt.lease].heard(receipt)
    lease = replace(lease, approved=max(lease.approved, int(row["approved"])))
    answered = decide.remember(book.answered, receipt)
    book = replace(
        book, last=receipt, answered=answered, signed=max(book.signed, int(row["signed"]))
    )
    loaded.book = book.with_lease(lease)
    loaded.latest[receipt.lease] = signed
