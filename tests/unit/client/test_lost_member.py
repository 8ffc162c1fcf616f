"""What the provider of a cluster's lost member bills once it is back: nobody pays for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import decide as payer
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Book, LeaseBook, Outcome, decide
from marketplace.client.payer.folded import fold
from marketplace.client.payer.ordered import Orders
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from tests.unit.support.payer import SESSION, Paper, signed_terms, terms

AGREED = terms()
NAME = AGREED.lease
RUN = SignedOrder.sign(SESSION, ClusterOrder(NAME, 1, Verb.RUN))
HOLD = SignedOrder.sign(SESSION, ClusterOrder(NAME, 2, Verb.HOLD))


def lost(book: Book) -> Book:
    return book.with_lease(book.leases[NAME].lost())


def ticked(book: Book, paper: Paper, since: int, count: int) -> Outcome:
    outcome = Outcome(book)
    for at in range(count):
        found = decide(outcome.book, paper.tick(AGREED, 1000), since + (at + 1) * 1000)
        assert isinstance(found, Outcome)
        outcome = found
    return outcome


def running(*orders: SignedOrder) -> Book:
    lease = LeaseBook(AGREED, AGREED.ceiling, orders=Orders())
    for order in orders:
        lease = lease.ordered(order, 0)
    return payer.started(Book(SESSION.verify_key).with_lease(lease), NAME, 0)


def test_what_it_bills_after_it_was_lost_is_not_signed() -> None:
    paper = Paper()
    paid = ticked(running(RUN), paper, 0, 5).book
    late = ticked(lost(paid), paper, 5000, 20)
    assert late.book.signed == paid.signed > 0
    assert late.sign is None and late.note and late.note.code == "NOT_SIGNED_ORDER"
    assert payer.approve_more(late.book, 10**9).sign is None, "and time changes nothing"
    assert ticked(paid, paper_of(paper, 5), 5000, 20).book.signed > paid.signed


def paper_of(paper: Paper, count: int) -> Paper:
    """As it was after *count* receipts."""
    kept = paper.sent[:count]
    last = kept[-1].receipt
    return Paper(last, {NAME: last}, list(kept))


def test_one_that_was_held_first_is_not_paid_for_its_grace_either() -> None:
    paper = Paper()
    paid = ticked(running(RUN), paper, 0, 5).book
    held = paid.with_lease(paid.leases[NAME].ordered(HOLD, 5000))
    assert ticked(lost(held), paper, 5000, 3).book.signed == paid.signed


@pytest.mark.parametrize("member", [True, False])
def test_the_book_remembers_it(member: bool) -> None:
    now, paper = Stamp.now(), Paper()
    agreed = signed_terms(AGREED)
    written = [rows.lease_row(agreed, AGREED.ceiling, now, member=member)]
    if member:
        written.append(rows.order_row(RUN, now))
    written.append(rows.clock_row(NAME, "started", now))
    before = fold(SESSION.verify_key, written, now).book
    tick = paper.tick(AGREED, 1000)
    outcome = decide(before, tick, now.mono_ms + 1000)
    assert isinstance(outcome, Outcome)
    written += [
        rows.tick_row(tick, outcome.book, NAME, replace(now, mono_ms=now.mono_ms + 1000)),
        rows.final_row(NAME, lost=True),
    ]
    loaded = fold(SESSION.verify_key, written, now)
    late = ticked(loaded.book, paper, now.mono_ms + 1000, 20)
    assert NAME in loaded.final
    assert (late.book.signed == outcome.book.signed) == member, "others are paid within a budget"
