"""A cluster's member is paid for what it was ordered to run, and for nothing else: rule I12."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import decide as payer
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Book, LeaseBook, Outcome, decide
from marketplace.client.payer.lease_book import UNSEEN_TICKS
from marketplace.client.payer.ordered import Orders, OrdersLost, ReceiptUnordered
from marketplace.domain.errors import Malformed
from marketplace.domain.money.receipt import Lost, ReceiptRefused, SignedReceipt
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.cluster_order import SignedOrder, Verb
from marketplace.domain.work.mesh import MeshPeer, public
from tests.unit.support.payer import ADAPTER, CONSUMER, SESSION, Paper, signed_terms, terms

AGREED = terms()
NAME = AGREED.lease
TICK = owed(unit_ms(1000, 1000), AGREED.rate_micro)
UNHEARD_MS = UNSEEN_TICKS * AGREED.tick_ms
RUN, MEET, HOLD = Verb.RUN, Verb.MEET, Verb.HOLD


def member(now: int = 0) -> Book:
    """A member that was seen to start."""
    lease = LeaseBook(AGREED, AGREED.ceiling, orders=Orders())
    return payer.started(Book(SESSION.verify_key).with_lease(lease), NAME, now)


def ordered(book: Book, verb: Verb, now: int) -> Book:
    lease = book.leases[NAME]
    assert lease.orders is not None
    order = lease.orders.next(NAME, verb, ())
    return book if order is None else book.with_lease(
        lease.ordered(SignedOrder.sign(SESSION, order), now)
    )  # fmt: skip


def take(book: Book, signed: SignedReceipt, now: int) -> Outcome:
    outcome = decide(book, signed, now)
    assert isinstance(outcome, Outcome)
    return outcome


def waited(ms: int) -> dict[str, Any]:
    """What an honest receipt says of time in which its member waited."""
    return {"lost": (Lost("assembling", ms),), "billed": 0}


# ---- before the first RUN ------------------------------------------------------------------------


@pytest.mark.parametrize("verbs", [(), (MEET,), (MEET, HOLD), (HOLD, MEET)])
def test_a_receipt_that_bills_before_any_run_stops_the_book(verbs: tuple[Verb, ...]) -> None:
    book, paper = member(), Paper()
    for verb in verbs:
        book = ordered(book, verb, 0)
    free = take(book, paper.tick(AGREED, 1000, **waited(1000)), 1000)
    assert free.book.signed == 0 and free.note is None
    with pytest.raises(ReceiptUnordered) as caught:
        decide(free.book, paper.tick(AGREED, 1000, billed=1), 2000)
    assert caught.value.code == "RECEIPT_UNORDERED" and "RUN" in caught.value.remedy
    stopped = payer.stop(free.book, caught.value)
    assert stopped.stopped == "RECEIPT_UNORDERED" and stopped.signed == 0
    with pytest.raises(payer.PayerStopped):
        decide(stopped, paper.tick(AGREED, 1000), 3000)


def test_one_that_nobody_of_the_terms_signed_proves_nothing() -> None:
    forged = Paper().tick(AGREED, 1000, adapter=CONSUMER)
    with pytest.raises(payer.ReceiptForged) as caught:
        decide(member(), forged, 1000)
    assert not payer.stop(member(), caught.value).stopped


def test_a_lease_of_no_cluster_needs_no_order() -> None:
    book = Book(SESSION.verify_key).with_lease(LeaseBook(AGREED, AGREED.ceiling))
    assert take(payer.started(book, NAME, 0), Paper().tick(AGREED, 1000), 1000).sign == TICK


def test_a_book_that_lost_its_end_refuses_and_accuses_nobody() -> None:
    """The order to RUN may have been in what was lost, and the provider follow it."""
    book, paper = member(), Paper()
    book = book.with_lease(book.leases[NAME].unsure())
    billed = paper.tick(AGREED, 1000)
    with pytest.raises(OrdersLost) as caught:
        decide(book, billed, 1000)
    assert caught.value.code == "ORDERS_LOST" and not payer.stop(book, caught.value).stopped
    lost = SignedOrder.sign(SESSION, _order(RUN, 4))
    book = book.with_lease(book.leases[NAME].relearnt(lost, 2000))
    assert take(book, billed, 2000).sign == TICK


def _order(verb: Verb, version: int) -> Any:
    found = replace(Orders(), newest=SignedOrder.sign(SESSION, _first(verb))).next(
        NAME, HOLD if verb is RUN else RUN, ()
    )
    assert found is not None
    return replace(found, verb=verb, version=version)


def _first(verb: Verb) -> Any:
    return Orders().next(NAME, verb, ())


def test_the_wait_before_run_is_no_time_that_could_be_billed_later() -> None:
    book, paper = member(), Paper()
    book = take(book, paper.tick(AGREED, 60_000, **waited(60_000)), 60_000).book
    book = ordered(book, RUN, 60_000)
    capped = take(book, paper.tick(AGREED, 60_000), 61_000)  # a minute, a second later
    assert capped.book.signed == 2 * TICK and capped.note is not None
    assert capped.note.code == "NOT_SIGNED_CLOCK"


# ---- after a HOLD --------------------------------------------------------------------------------


def running(seconds: int) -> tuple[Book, Paper]:
    book, paper = ordered(member(), RUN, 0), Paper()
    for second in range(1, seconds + 1):
        outcome = take(book, paper.tick(AGREED, 1000), second * 1000)
        assert outcome.sign == second * TICK and outcome.note is None
        book = outcome.book
    return book, paper


@pytest.mark.parametrize("verb", [HOLD, MEET])
def test_what_is_billed_after_a_hold_is_paid_for_three_ticks_and_no_more(verb: Verb) -> None:
    """As long as an adapter serves what nobody pays for: it may not have heard of it."""
    book, paper = running(10)
    book, codes = ordered(book, verb, 10_000), list[str]()
    for second in range(11, 31):
        outcome = take(book, paper.tick(AGREED, 1000), second * 1000)
        codes += [outcome.note.code] if outcome.note else []
        book = outcome.book
    assert book.signed == (10 + UNSEEN_TICKS) * TICK
    assert codes == ["NOT_SIGNED_ORDER"] * (20 - UNSEEN_TICKS)
    assert payer.approve_more(book, 10**9).book.signed == book.signed  # waiting changes nothing
    # It is ordered to RUN again: what it billed meanwhile is never due, what it does then is.
    book = ordered(book, RUN, 30_000)
    assert payer.approve_more(book, 30_000 + 10**6).book.signed == book.signed
    book = take(book, paper.tick(AGREED, 1000), 31_000).book
    assert book.signed == (10 + UNSEEN_TICKS + 1) * TICK


def test_a_hold_upon_a_hold_gives_no_further_ticks() -> None:
    book, paper = running(10)
    for second in range(11, 41):
        verb = HOLD if second % 2 else MEET
        book = ordered(book, verb, (second - 1) * 1000)
        book = take(book, paper.tick(AGREED, 1000), second * 1000).book
    assert book.signed == (10 + UNSEEN_TICKS) * TICK


def test_its_own_word_that_it_follows_the_hold_ends_the_grace() -> None:
    book, paper = running(10)
    book = payer.followed(ordered(book, HOLD, 10_000), NAME, 10_200)
    book = take(book, paper.tick(AGREED, 200), 10_300).book  # what it had served until then
    assert book.signed == owed(unit_ms(10_200, 1000), AGREED.rate_micro)
    for second in range(1, 11):
        book = take(book, paper.tick(AGREED, 1000), 10_200 + second * 1000).book
    assert book.signed <= owed(unit_ms(10_200 + 1000, 1000), AGREED.rate_micro)


def test_time_that_was_not_used_before_is_not_made_up_for_in_a_hold() -> None:
    """A device that failed for a minute leaves the own clock ahead of the receipts."""
    book, paper = running(10)
    book = take(
        book, paper.tick(AGREED, 60_000, lost=(Lost("xid", 60_000),), billed=0), 70_000
    ).book
    book = ordered(book, HOLD, 70_000)
    book = take(book, paper.tick(AGREED, 60_000), 130_000).book
    assert book.signed == (10 + UNSEEN_TICKS) * TICK


def test_receipts_that_are_kept_back_until_run_gain_nothing() -> None:
    book, paper = running(10)
    book = ordered(ordered(book, HOLD, 10_000), RUN, 110_000)
    late = take(book, paper.tick(AGREED, 100_000), 110_000)
    assert late.book.signed <= (10 + UNSEEN_TICKS + 1) * TICK and late.note is not None


def test_a_pause_within_a_hold_or_around_it_is_left_out_once() -> None:
    """The adapter calls a held member paused, too."""
    spans = {
        "within": ((12, "paused"), (14, "resumed"), (20, "RUN")),
        "as long": ((10, "paused"), (20, "RUN"), (20, "resumed")),
        "beyond its end": ((15, "paused"), (20, "RUN"), (25, "resumed")),
        "over its begin": ((5, "paused"), (15, "resumed"), (20, "RUN")),
        "around it": ((5, "paused"), (20, "RUN"), (25, "resumed")),
    }
    out = {"within": 10, "as long": 10, "beyond its end": 15, "over its begin": 15, "around it": 20}
    for name, moves in spans.items():
        book, events = ordered(member(), RUN, 0), [(10, "HOLD"), (10, "followed"), *moves]
        for at, what in sorted(events, key=lambda event: event[0]):
            verb = Verb.__members__.get(what)
            moved = payer.MOVES.get(what, _nothing)
            book = ordered(book, verb, at * 1000) if verb else moved(book, NAME, at * 1000)
        assert book.leases[NAME].elapsed_ms(100_000) == (100 - out[name]) * 1000, name


def _nothing(book: Book, _lease: str, _now: int) -> Book:
    raise AssertionError


# ---- whoever does as it is told ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_an_adapter_that_follows_its_orders_late_is_paid_for_all_that_it_bills(seed: int) -> None:
    """It hears of each within 2 s, and every message is up to 300 ms on its way."""
    dice = random.Random(seed)
    book, paper, now, serves, done = member(), Paper(), 0, False, 0
    for _ in range(12):
        verb = HOLD if serves else RUN
        book = ordered(book, verb, now)
        heard = now + dice.randint(1, 2000)
        stretch = heard - done
        for ms in [1000] * (stretch // 1000) + [stretch % 1000]:
            done += ms
            book = _billed(book, paper, ms, serves, done + dice.randint(0, 300))
        book = payer.followed(book, NAME, heard + 300)
        serves, now = verb is RUN, heard
        for _ in range(dice.randint(1, 8)):
            now, done = now + 1000, done + 1000
            book = _billed(book, paper, 1000, serves, done + dice.randint(0, 300))
    assert paper.last is not None and book.signed == paper.last.channel_owed > 0


def _billed(book: Book, paper: Paper, ms: int, serves: bool, arrives: int) -> Book:
    outcome = take(book, paper.tick(AGREED, ms, **({} if serves else waited(ms))), arrives)
    assert outcome.note is None
    return outcome.book


# ---- whoever does not ----------------------------------------------------------------------------


@dataclass
class Story:
    """Orders, and an adapter that bills as it likes; the book is read from its rows now and then.

    *runs*: from when to when somebody who only knows the orders would let it bill.
    """

    dice: random.Random
    now: int = 1_000_000
    book: Book = field(init=False)
    paper: Paper = field(default_factory=Paper)
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    runs: list[list[int]] = field(default_factory=list[list[int]])
    verb: Verb = MEET
    base: int = 0
    restarts: int = 0

    def __post_init__(self) -> None:
        self.rows = [rows.lease_row(signed_terms(AGREED), AGREED.ceiling, self.at, member=True)]
        self.read()
        self.move("started")

    @property
    def at(self) -> Stamp:
        return Stamp("boot", self.now, 5_000_000 + self.now)

    def read(self) -> None:
        self.book = rows.fold(SESSION.verify_key, self.rows, self.at).book

    def restart(self) -> None:
        before = self.book.leases[NAME]
        self.read()
        after = self.book.leases[NAME]
        # A pause that nobody ended lasts as far as somebody listened; the orders are as they were.
        assert (after.approved, after.last) == (before.approved, before.last)
        assert after.orders is not None and before.orders is not None
        assert replace(after.orders, still_ms=0) == replace(before.orders, still_ms=0)
        assert after.orders.is_held is before.orders.is_held
        self.restarts += 1

    def move(self, what: str) -> None:
        self.rows.append(rows.clock_row(NAME, what, self.at))
        self.book = payer.MOVES[what](self.book, NAME, self.now)

    def order(self) -> None:
        verb = self.dice.choice(list(Verb))
        lease = self.book.leases[NAME]
        assert lease.orders is not None
        order = lease.orders.next(NAME, verb, ())
        if order is None:
            return
        signed = SignedOrder.sign(SESSION, order)
        self.rows.append(rows.order_row(signed, self.at))
        self.book = self.book.with_lease(lease.ordered(signed, self.now))
        if verb is RUN and self.verb is not RUN:
            if self.runs and self.runs[-1][1] > self.now:
                self.runs[-1][1] = self.now  # it is counted from here on as RUN
            self.runs.append([self.now, 10**12])
        if verb is not RUN and self.verb is RUN:
            self.runs[-1][1] = self.now + UNHEARD_MS
            self.base = lease.last.unit_ms_total if lease.last else 0
        self.verb = verb

    def follow(self) -> None:
        if self.verb is not RUN and self.runs:
            self.move("followed")
            self.runs[-1][1] = min(self.runs[-1][1], self.now)

    def bill(self) -> None:
        """Any part of the time since its last receipt, or of none of it."""
        before = self.paper.leases.get(NAME)
        since = self.now - 1_000_000 - (before.t1_ms if before else 0)
        ms = self.dice.choice([since, since, since // 2, 0])
        billed = ms if self.dice.random() < 0.7 else self.dice.randint(0, ms)
        billed = billed if self.runs else 0
        signed = self.paper.tick(AGREED, ms, billed=billed)
        outcome = take(self.book, signed, self.now)
        self.rows.append(rows.tick_row(signed, outcome.book, NAME, self.at))
        self.book = outcome.book

    def more(self) -> None:
        outcome = payer.approve_more(self.book, self.now)
        if outcome.sign is not None:
            self.rows.append(rows.signed_row(outcome.book))
        self.book = outcome.book

    def step(self) -> None:
        self.now += self.dice.choice([0, 100, 900, 1000, 1000, 5000, 20_000])
        moves: list[Callable[[], None]] = [
            self.bill, self.bill, self.bill, self.more, self.order, self.follow, self.restart,
            lambda: self.move("paused"), lambda: self.move("resumed"),
        ]  # fmt: skip
        self.dice.choice(moves)()
        self.check()

    def check(self) -> None:
        approved = self.book.leases[NAME].approved
        ran = sum(max(0, min(self.now, end) - start) for start, end in self.runs)
        most = owed(unit_ms(ran + AGREED.tick_ms, 1000), AGREED.rate_micro) if self.runs else 0
        assert approved <= most, "paid for time that was not ordered"
        if self.verb is not RUN and self.runs:
            held = self.base + unit_ms(UNHEARD_MS, 1000)
            assert approved <= owed(held, AGREED.rate_micro), "it grew while it was held"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_nothing_is_paid_beyond_what_was_ordered_and_three_ticks(dice: random.Random) -> None:
    story = Story(dice)
    for _ in range(60):
        story.step()


def test_the_dice_get_everywhere() -> None:
    """Else the property above would hold for want of anything that happens."""
    paid, held, restarts, denied = 0, 0, 0, 0
    for seed in range(60):
        story = Story(random.Random(seed))
        for _ in range(60):
            story.step()
        orders = story.book.leases[NAME].orders
        assert orders is not None
        paid += story.book.signed > 10 * TICK
        held += orders.is_held
        denied += orders.denied > 0
        restarts += story.restarts
    assert paid > 20 and 5 < held < 55 and denied > 5 and restarts > 100


# ---- the orders themselves -----------------------------------------------------------------------


def peer(number: int, key: int = 0) -> MeshPeer:
    return MeshPeer(number, bytes([key or number + 1]) * 32, public(f"192.0.2.{number + 1}", 51820))


def test_an_order_names_its_peers_in_their_order_and_says_nothing_twice() -> None:
    orders = Orders()
    first = orders.next(NAME, MEET, (peer(2), peer(0)))
    assert first is not None and [one.member for one in first.peers] == [0, 2]
    assert first.version == 1
    orders = orders.signed(SignedOrder.sign(SESSION, first), 0, 0, 0)
    assert orders.next(NAME, MEET, (peer(0), peer(2))) is None
    for verb, peers in ((RUN, (peer(0), peer(2))), (MEET, (peer(0),)), (MEET, ())):
        other = orders.next(NAME, verb, peers)
        assert other is not None and other.version == 2


@pytest.mark.parametrize("peers", [(peer(1), peer(1, 9)), (peer(1, 5), peer(2, 5))])
def test_one_that_no_adapter_would_take_is_not_signed(peers: tuple[MeshPeer, ...]) -> None:
    with pytest.raises(Malformed):
        Orders().next(NAME, RUN, peers)


def test_only_the_word_that_the_newest_is_followed_counts() -> None:
    orders = Orders().signed(SignedOrder.sign(SESSION, _first(HOLD)), 0, 0, 0)
    assert orders.is_newest({"verb": "HOLD", "version": 1})
    for detail in ({}, {"version": 0}, {"version": 2}, {"version": "1"}, {"version": None}):
        assert not orders.is_newest(detail)
    assert not Orders().is_newest({"version": 0})


def test_another_receipt_of_what_was_answered_is_a_fork_whatever_was_ordered() -> None:
    book, paper = running(3)
    other = SignedReceipt.sign(replace(paper.sent[-1].receipt, wall_ms=1), ADAPTER)
    with pytest.raises(ReceiptRefused) as caught:
        decide(ordered(book, HOLD, 3000), other, 3000)
    assert caught.value.code == "RECEIPT_FORKED"
