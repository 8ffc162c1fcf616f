"""What a payer answers: never above its own clock, its limits or the chain of receipts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from marketplace.client.payer import decide as payer
from marketplace.client.payer.decide import Book, LeaseBook, Missing, Outcome, decide
from marketplace.domain.money.receipt import Lost, ReceiptRefused, SignedReceipt
from marketplace.domain.units import owed, unit_ms
from tests.unit.support.payer import ADAPTER, CONSUMER, SESSION, Paper, terms

AGREED = terms()
TICK = owed(unit_ms(1000, 1000), AGREED.rate_micro)


def fresh(*leases: LeaseBook, now: int = 0) -> Book:
    book = Book(SESSION.verify_key)
    for lease in leases or (LeaseBook(AGREED, AGREED.ceiling),):
        book = payer.started(book.with_lease(lease), lease.terms.lease, now)
    return book


def take(book: Book, signed: SignedReceipt, now: int) -> Outcome:
    outcome = decide(book, signed, now)
    assert isinstance(outcome, Outcome)
    return outcome


def test_an_honest_second_is_signed_for_to_the_lovelace() -> None:
    book, paper = fresh(), Paper()
    for second in range(1, 11):
        outcome = take(book, paper.tick(AGREED, 1000), second * 1000)
        assert outcome.sign == second * TICK and outcome.note is None
        book = outcome.book
    assert book.signed == book.spent == 10 * TICK


@pytest.mark.parametrize("seed", range(20))
def test_honest_jitter_of_300_ms_is_never_refused_or_capped(seed: int) -> None:
    rng = random.Random(seed)
    begun = rng.randint(0, 300)  # the start was seen late by as much as any receipt may be
    book, paper = fresh(now=begun), Paper()
    for second in range(1, 121):
        arrives = second * 1000 + rng.randint(-300, 300)
        outcome = take(book, paper.tick(AGREED, 1000), arrives)
        assert outcome.note is None and outcome.sign == second * TICK
        book = outcome.book


def test_ten_per_cent_too_fast_overpays_a_tick_at_most_and_says_why() -> None:
    book, paper, notes = fresh(), Paper(), []
    for second in range(1, 61):
        outcome = take(book, paper.tick(AGREED, 1100), second * 1000)
        notes += [outcome.note] if outcome.note else []
        book = outcome.book
    assert book.signed <= 60 * TICK + TICK
    assert paper.last is not None and paper.last.channel_owed == 66 * TICK
    assert notes and all(note.code == "NOT_SIGNED_CLOCK" for note in notes)
    assert "own clock" in notes[-1].message
    # the workload is gone: waiting does not make the difference due
    book = payer.ended(book, AGREED.lease, 60_000)
    assert payer.approve_more(book, 600_000).book.signed <= 61 * TICK


def test_a_clock_that_is_late_by_a_little_catches_up() -> None:
    book, paper = fresh(now=1500), Paper()  # the start was heard 1.5 s late
    late = take(book, paper.tick(AGREED, 1000), 1000)
    assert late.note is None
    capped = take(late.book, paper.tick(AGREED, 1000), 2000)
    assert capped.note is not None and capped.book.signed < 2 * TICK
    assert payer.approve_more(capped.book, 3000).sign == 2 * TICK


def test_a_payer_that_takes_over_pays_for_what_was_delivered_before_it_came() -> None:
    unseen = LeaseBook(AGREED, AGREED.ceiling, agreed_ms=0)
    book, paper = Book(SESSION.verify_key).with_lease(unseen), Paper()
    for second in (1, 2):
        outcome = take(book, paper.tick(AGREED, 1000), 60_000)
        assert outcome.note is None and outcome.sign == second * TICK
        book = outcome.book


@pytest.mark.parametrize(
    ("agreed_ms", "most"), [(0, payer.UNSEEN_TICKS + 1), (59_000, 2), (60_000, 1), (90_000, 1)]
)
def test_and_never_for_more_than_own_time_or_than_is_served_unpaid(
    agreed_ms: int, most: int
) -> None:
    unseen = LeaseBook(AGREED, AGREED.ceiling, agreed_ms=agreed_ms)
    book, paper = Book(SESSION.verify_key).with_lease(unseen), Paper()
    capped = take(book, paper.tick(AGREED, 59_000), 60_000)
    assert capped.sign == most * TICK
    assert capped.note is not None and capped.note.code == "NOT_SIGNED_CLOCK"
    # what it was capped by is signed as own time goes on, and no faster
    assert payer.approve_more(capped.book, 60_000).sign is None
    assert payer.approve_more(capped.book, 63_000).sign == (most + 3) * TICK


def test_nothing_is_signed_above_the_cap_or_what_the_channel_holds() -> None:
    book, paper = fresh(LeaseBook(AGREED, 3 * TICK)), Paper()
    outcome = take(book, paper.tick(AGREED, 5000), 5000)
    assert outcome.sign == 3 * TICK and outcome.note is not None
    assert outcome.note.code == "NOT_SIGNED_BUDGET"
    book = replace(fresh(), capacity=2 * TICK)
    outcome = take(book, Paper().tick(AGREED, 5000), 5000)
    assert outcome.sign == 2 * TICK and outcome.note is not None
    assert outcome.note.code == "NOT_SIGNED_CAPACITY"
    topped_up = payer.approve_more(replace(outcome.book, capacity=10 * TICK), 5000)
    assert topped_up.sign == 5 * TICK


def test_two_leases_share_a_channel_and_neither_pays_for_the_other() -> None:
    other = terms("lease_2", job="job_2", rate_micro=1_000_000_000)
    book = fresh(LeaseBook(AGREED, AGREED.ceiling), LeaseBook(other, other.ceiling))
    paper = Paper()
    book = take(book, paper.tick(AGREED, 1000), 1000).book
    outcome = take(book, paper.tick(other, 1000), 1000)
    assert outcome.sign == TICK + TICK // 2
    cheat = take(outcome.book, paper.tick(AGREED, 9000), 2000)
    assert cheat.book.leases["lease_2"].approved == TICK // 2
    assert cheat.book.signed == 3 * TICK + TICK // 2 and cheat.note is not None


def test_time_in_a_pause_is_not_signed_for() -> None:
    book, paper = fresh(), Paper()
    book = take(book, paper.tick(AGREED, 1000), 1000).book
    book = payer.resumed(payer.paused(book, AGREED.lease, 1000), AGREED.lease, 31_000)
    outcome = take(book, paper.tick(AGREED, 31_000), 32_000)
    assert outcome.book.signed <= 4 * TICK and outcome.note is not None


@pytest.mark.parametrize("resumes", [True, False])
def test_six_hundred_pauses_bill_a_tick_at_most_beyond_what_was_served(resumes: bool) -> None:
    """A provider whose clock counts its pauses: of all of them together a tick is forgiven."""
    book, paper, now, served = fresh(), Paper(), 0, 0
    for _ in range(600):
        if resumes or served == 0:
            now, served = now + 1000, served + 1000
        book = payer.paused(book, AGREED.lease, now)
        now += 1000  # frozen, and billed all the same
        book = take(book, paper.tick(AGREED, 2000), now).book  # asked while it is paused ...
        if resumes:
            book = payer.resumed(book, AGREED.lease, now)
        book = payer.approve_more(book, now).book  # ... and as soon as it goes on
    assert served // 1000 * TICK < book.signed <= (served // 1000 + 1) * TICK


def test_a_pause_of_which_no_end_was_heard_is_not_signed_for() -> None:
    book, paper = fresh(), Paper()
    book = payer.paused(take(book, paper.tick(AGREED, 1000), 1000).book, AGREED.lease, 1000)
    outcome = take(book, paper.tick(AGREED, 3_599_000), 3_600_000)
    assert outcome.book.signed <= 2 * TICK
    assert outcome.note is not None and outcome.note.code == "NOT_SIGNED_CLOCK"


def test_a_receipt_that_bills_what_it_calls_paused_stops_the_book() -> None:
    paper = Paper()
    book = take(fresh(), paper.tick(AGREED, 10_000), 10_000).book
    paused = (Lost("paused", 4000),)
    honest = Paper(paper.last, dict(paper.leases)).tick(AGREED, 10_000, lost=paused, billed=6000)
    assert take(book, honest, 20_000).sign == 16 * TICK
    lies: dict[str, dict[str, Any]] = {
        "paused and billed": {"lost": paused, "billed": 6003},
        "a pause longer than the tick": {"lost": (Lost("paused", 10_002),), "billed": 0},
        "saved up": {"billed": 10_003},
    }
    for lie in lies.values():
        liar = Paper(paper.last, dict(paper.leases))
        broken("RECEIPT_WRONG", True, book, liar.tick(AGREED, 10_000, **lie), 20_000)
    # What one tick left unused is not billed in a later one.
    lean = paper.tick(AGREED, 10_000, billed=0)
    book = take(book, lean, 20_000).book
    broken("RECEIPT_WRONG", True, book, paper.tick(AGREED, 10_000, billed=20_000), 30_000)


def test_the_same_receipt_again_gets_the_same_answer() -> None:
    book, paper = fresh(), Paper()
    signed = paper.tick(AGREED, 1000)
    first = take(book, signed, 1000)
    again = take(first.book, signed, 1100)
    assert again.sign == first.sign and again.book.signed == first.book.signed


def broken(code: str, stops: bool, book: Book, signed: SignedReceipt, now: int) -> None:
    with pytest.raises(ReceiptRefused) as caught:
        decide(book, signed, now)
    assert caught.value.code == code
    stopped = payer.stop(book, caught.value)
    assert bool(stopped.stopped) is stops
    if stops:
        with pytest.raises(payer.PayerStopped):
            decide(stopped, signed, now)


def test_forged_foreign_replayed_forked_and_wrong_receipts_each_have_a_code() -> None:
    paper = Paper()
    first = paper.tick(AGREED, 1000)
    book = take(fresh(), first, 1000).book
    lies = {
        "forged": ("RECEIPT_FORGED", False, paper.tick(AGREED, 1000, adapter=CONSUMER, readings=b"\1" * 32)),
        "of another channel": ("RECEIPT_FOREIGN", False, paper.tick(AGREED, 1000, session_vk=bytes(32))),
        "of another lease": ("RECEIPT_FOREIGN", False, paper.tick(AGREED, 1000, lease="lease_9")),
        "forked": ("RECEIPT_FORKED", True, SignedReceipt.sign(replace(first.receipt, wall_ms=1), ADAPTER)),
        "another chain": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, previous=bytes(32))),
        "more than ms x rate": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, lease_owed=9_999)),
        "channel total": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, channel_owed=9_999)),
        "usage shrinks": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, unit_ms_total=1)),
        "a gap": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, t0_ms=1500)),
        "other devices": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, device=bytes(32))),
        "other resource": ("RECEIPT_WRONG", True, paper.tick(AGREED, 1000, resource="core")),
        "faster than time": ("RECEIPT_WRONG", True, Paper(paper.last, dict(paper.leases)).tick(AGREED, 1000, billed=9000)),
    }  # fmt: skip
    for code, stops, signed in lies.values():
        broken(code, stops, book, signed, 2000)
    second = paper.tick(AGREED, 1000)
    book = take(book, second, 2000).book
    broken("RECEIPT_REPLAYED", False, book, first, 3000)
    torn = SignedReceipt(second.body, bytes(64))
    broken("RECEIPT_FORGED", False, book, torn, 3000)


def test_a_missing_predecessor_is_asked_for_and_pays_nothing_until_it_came() -> None:
    book, paper = fresh(), Paper()
    one, two, three = (paper.tick(AGREED, 1000) for _ in range(3))
    assert decide(book, three, 3000) == Missing(1, 2)
    for signed in (one, two, three):
        book = take(book, signed, 3000).book
    assert book.signed == 3 * TICK


def test_a_receipt_above_the_ceiling_stops_the_book() -> None:
    agreed = terms(ceiling=5 * TICK, max_duration_ms=10**14)
    book, paper = fresh(LeaseBook(agreed, agreed.ceiling)), Paper()
    book = take(book, paper.tick(agreed, 5000), 5000).book
    with pytest.raises(payer.ReceiptWrong, match="ceiling") as refused:
        decide(book, paper.tick(agreed, 10**13), 6000)
    stopped = payer.stop(book, refused.value)
    assert stopped.stopped == "RECEIPT_WRONG" and stopped.last == book.last


def test_a_lease_is_not_served_for_longer_than_its_terms_let_it_run() -> None:
    agreed = terms(rate_micro=1, max_duration_ms=60_000)
    most = 60_000 + agreed.grace_ms + agreed.pause_limit_ms + payer.UNSEEN_TICKS * agreed.tick_ms
    pulled = (Lost("pulling", 10**9),)  # before it began: as long as that takes
    book, paper = fresh(LeaseBook(agreed, agreed.ceiling)), Paper()
    book = take(book, paper.tick(agreed, 10**9 + 1000, billed=1000, lost=pulled), 1000).book
    book = take(book, paper.tick(agreed, most - 1000), 61_000).book
    with pytest.raises(payer.ReceiptWrong, match="longer than the terms"):
        decide(book, paper.tick(agreed, 1, billed=0), 62_000)


def test_after_a_lost_journal_nothing_already_signed_is_lost_or_signed_twice() -> None:
    paper = Paper()
    receipts = [paper.tick(AGREED, 1000) for _ in range(5)]
    book = payer.resume_from(
        Book(SESSION.verify_key).with_lease(LeaseBook(AGREED, AGREED.ceiling)), 4 * TICK
    )
    for signed in receipts:
        outcome = take(book, signed, 500)
        assert (outcome.sign or outcome.book.signed) >= 4 * TICK
        book = outcome.book
    # its own clock goes on from what was signed, and gives no tick twice
    assert book.signed == 4 * TICK
    assert payer.approve_more(book, 1500).book.signed == 5 * TICK


def test_what_was_signed_before_the_loss_justifies_one_lease_and_not_each() -> None:
    other = terms("lease_2", job="job_2")
    book = payer.resume_from(
        fresh(LeaseBook(AGREED, AGREED.ceiling), LeaseBook(other, other.ceiling)), 100 * TICK
    )
    paper = Paper()
    for agreed in (AGREED, other):
        book = take(book, paper.tick(agreed, 100_000), 500).book
    most = 100 * TICK + 2 * owed(1500, AGREED.rate_micro)
    assert book.signed <= most and payer.approve_more(book, 500).book.signed <= most


def test_after_a_lost_journal_a_lying_provider_gets_no_more_than_each_leases_cap() -> None:
    """What was signed counts as justified: the caps still hold."""
    cap = 6 * TICK
    book = payer.resume_from(Book(SESSION.verify_key).with_lease(LeaseBook(AGREED, cap)), 50 * TICK)
    paper, approved = Paper(), 0
    for _ in range(30):
        try:
            outcome = decide(book, paper.tick(AGREED, 1000), 0)
        except ReceiptRefused:
            break
        assert isinstance(outcome, Outcome)
        book = outcome.book
        approved = max(approved, book.leases[AGREED.lease].approved)
    assert approved <= cap and book.signed == 50 * TICK


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_the_signed_amount_stays_under_every_limit(seed: int) -> None:
    rng = random.Random(seed)
    cap, capacity = rng.randint(1, 40) * TICK, rng.randint(1, 40) * TICK
    book = replace(fresh(LeaseBook(AGREED, cap)), capacity=capacity)
    paper, now, before = Paper(), 0, 0
    for _ in range(60):
        now += rng.randint(0, 2000)
        signed = paper.tick(AGREED, rng.randint(0, 4000))
        if rng.random() < 0.2:
            signed = rng.choice(paper.sent)
        try:
            outcome = decide(book, signed, now)
        except ReceiptRefused:
            continue
        if isinstance(outcome, Outcome):
            book = outcome.book
        assert before <= book.signed <= min(cap, capacity, owed(now + 1000, AGREED.rate_micro))
        before = book.signed
