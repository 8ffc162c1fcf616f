"""The books of a routed lease: who signs how much, and what each liar gains. Names as in the design's
table of threats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from benchmarks.route_world import CAPACITY, HOP_FEE, OFFER, RESERVE, signer
from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import payee, payer, router
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Earning, HopForked, Paying, Payment
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.messages import HeadroomShort, LeaseUnknown, Owes, Send
from marketplace.domain.money.route.paid import Paid, PaidRefused
from marketplace.domain.money.route.statement import SignedStatement, Statement, StatementRefused
from marketplace.domain.money.voucher import Voucher, VoucherRefused

C, OUT, ADAPTER, LEASE = (signer(name) for name in ("hop c", "hop p", "adapter p", "lease a"))
A, B = b"\x0a" * 32, b"\x0b" * 32
TICK, BPS = 1000, 50
IN_VK, OUT_VK = C.verify_key, OUT.verify_key


def carried(lease: str, reserve: int = RESERVE) -> router.Carried:
    return router.Carried(
        lease, LEASE.verify_key, ADAPTER.verify_key, IN_VK, OUT_VK, BPS, reserve
    )  # fmt: skip


@dataclass
class Line:
    """One consumer, one router, one provider and lease A, each message delivered at once."""

    consumer: payer.PayerBook = field(default_factory=lambda: payer.PayerBook(Paying(IN_VK)))
    provider: payee.PayeeBook = field(
        default_factory=lambda: payee.PayeeBook(Earning(OUT_VK, CAPACITY))
    )
    market: router.RouterBook = field(
        default_factory=lambda: router.RouterBook(
            OFFER, {IN_VK: Earning(IN_VK, CAPACITY)}, {OUT_VK: Paying(OUT_VK)}, {OUT_VK: CAPACITY}
        )
    )
    keys: dict[bytes, Signer] = field(default_factory=lambda: {OUT_VK: OUT})
    to_consumer: list[object] = field(default_factory=list[object])
    to_provider: list[object] = field(default_factory=list[object])

    def admit(self, terms: bytes = A, lease: str = "a") -> Line:
        served = payee.Served(lease, LEASE.verify_key, TICK, RESERVE)
        self.provider = payee.admit(self.provider, terms, served)
        done = router.admit(self.market, terms, carried(lease), self.keys)
        self.market = done.state
        self.to_provider += [send.message for send in done.effects]
        bought = payer.Bought(lease, LEASE.verify_key, ADAPTER.verify_key, BPS, TICK, RESERVE)
        self.consumer = payer.admit(self.consumer, terms, bought, OFFER, HOP_FEE, C).state
        self.pay()
        return self

    def market_takes(self, message: Owes | Payment | Paid) -> None:
        done = router.decide(self.market, message, self.keys)
        self.market = done.state
        for send in done.effects:
            (self.to_consumer if send.hop == IN_VK else self.to_provider).append(send.message)

    def tick(self, terms: bytes = A) -> bool:
        """The provider serves one, and the router hears of it."""
        done = payee.meter(self.provider, terms)
        self.provider = done.state
        for send in done.effects:
            self.market_takes(send.message)
        return bool(done.effects)

    def hear(self) -> None:
        """The consumer gets all that the router has for it."""
        while self.to_consumer:
            message = self.to_consumer.pop(0)
            assert isinstance(message, (Owes, Payment, Paid))
            self.consumer = payer.decide(self.consumer, message, C).state

    def pay(self) -> None:
        """The consumer's last payment reaches the router."""
        assert self.consumer.paying.last is not None
        self.market_takes(self.consumer.paying.last)

    def earn(self) -> None:
        """The provider gets the router's last payment, and the router its Paid."""
        last = self.market.hops_out[OUT_VK].last
        assert last is not None
        done = payee.decide(self.provider, last, ADAPTER)
        self.provider = done.state
        for send in done.effects:
            self.market_takes(send.message)

    def round(self) -> None:
        """A tick all the way and back."""
        assert self.tick()
        self.hear()
        self.pay()
        self.earn()
        self.hear()

    @property
    def figures(self) -> tuple[int, int, int, int]:
        """Owed, signed in, signed out, paid."""
        lease = self.consumer.leases[A]
        return (
            self.provider.leases[A].owed, self.consumer.paying.amount(A),
            self.market.hops_out[OUT_VK].amount(A), lease.paid,
        )  # fmt: skip


def payment(leaves: list[Leaf], n: int, previous: bytes) -> Payment:
    """Any payment of the consumer's, properly signed."""
    made = Statement.of(IN_VK, n, leaves, previous)
    return Payment(SignedStatement.sign(made, C), Voucher.sign(C, made.total), tuple(leaves))


def test_a_tick_goes_both_ways_and_the_router_keeps_its_fee() -> None:
    line = Line().admit()
    for number in range(1, 6):
        line.round()
        owed = number * TICK
        assert line.figures == (owed, with_fee(owed, BPS), owed, owed)
    assert line.market.hops_in[IN_VK].total == HOP_FEE + with_fee(5 * TICK, BPS)


def test_withhold_the_router_takes_one_tick_and_nothing_more() -> None:
    """Threat 1: it passes neither payments nor Paid on; the provider serves two ticks."""
    line = Line().admit()
    line.round()
    while line.tick():
        line.hear()
        line.pay()  # and the router keeps it
    owed, signed, _, paid = line.figures
    assert owed == 3 * TICK and line.provider.earning.amount(A) == TICK and paid == TICK
    assert signed == with_fee(2 * TICK, BPS)


def test_replay_receipt_shown_again_it_is_worth_nothing() -> None:
    """Threat 2."""
    line = Line().admit()
    line.round()
    before = line.consumer
    for _ in range(3):
        line.consumer = payer.decide(line.consumer, Owes(A, TICK), C).state
    assert line.consumer == before


def test_two_routers_a_receipt_of_a_lease_that_another_carries_is_refused() -> None:
    """Threats 6 and 31: a route names one router; nobody else carries its lease."""
    line = Line().admit()
    with pytest.raises(LeaseUnknown):
        line.market_takes(Owes(B, TICK))
    with pytest.raises(LeaseUnknown):
        payer.decide(line.consumer, Owes(B, TICK), C)


def test_pay_twice_two_statements_of_one_number_stop_the_hop_and_are_kept_apart() -> None:
    """Threat 7: what rests on the hop stays; nothing more does."""
    line = Line().admit()
    line.round()
    last = line.consumer.paying.last
    assert last is not None
    said = last.signed.statement
    leaves = [replace(last.leaves[0]), replace(last.leaves[1], amount=9 * TICK)]
    forked = payment(leaves, said.n, said.previous)
    before = line.figures
    line.market_takes(forked)
    assert line.market.forked == {IN_VK} and line.figures == before
    with pytest.raises(HopForked):
        line.market.hops_in[IN_VK].take(forked)
    with pytest.raises(LeaseUnknown):
        line.pay()
    with pytest.raises(LeaseUnknown):
        router.admit(line.market, B, carried("b"), line.keys)


def test_pay_twice_a_statement_that_follows_another_than_the_last_is_a_fork_too() -> None:
    line = Line().admit()
    last = line.consumer.paying.last
    assert last is not None
    after = payment(list(last.leaves), last.signed.statement.n + 1, bytes(32))
    with pytest.raises(HopForked):
        line.market.hops_in[IN_VK].take(after)


def test_misallocate_what_is_paid_for_one_lease_pays_no_other() -> None:
    """Threat 20: never summed over leases."""
    line = Line().admit().admit(B, "b")
    assert line.tick() and line.tick(B)
    line.hear()
    last = line.consumer.paying.last
    assert last is not None
    said = last.signed.statement
    leaves = [leaf if leaf.terms != B else replace(leaf, amount=50 * TICK) for leaf in last.leaves]
    line.market_takes(payment(leaves, said.n + 1, said.hash))
    out = line.market.hops_out[OUT_VK]
    assert (out.amount(A), out.amount(B)) == (TICK, TICK)  # what is owed, and not a lovelace more


def test_ahead_what_is_signed_beyond_the_receipts_is_not_passed_on() -> None:
    line = Line().admit()
    line.round()
    last = line.consumer.paying.last
    assert last is not None
    said = last.signed.statement
    leaves = [last.leaves[0], replace(last.leaves[1], amount=40 * TICK)]
    line.market_takes(payment(leaves, said.n + 1, said.hash))
    assert line.market.hops_out[OUT_VK].amount(A) == TICK
    line.earn()
    assert line.tick() and line.market.hops_out[OUT_VK].amount(A) == 2 * TICK


def test_deny_paid_the_consumer_stops_after_a_tick_and_the_routers_payment_shows_it() -> None:
    """Threat 25: who denies is paid what the router signed, and its lease ends there."""
    line = Line().admit()
    line.round()
    while line.tick():
        line.hear()
        line.pay()
        out = line.market.hops_out[OUT_VK].last
        assert out is not None
        line.provider = payee.decide(line.provider, out, ADAPTER).state  # its Paid goes nowhere
    owed, signed, out_signed, paid = line.figures
    assert (paid, signed) == (TICK, with_fee(2 * TICK, BPS))
    assert out_signed == 2 * TICK and owed == 4 * TICK
    out = line.market.hops_out[OUT_VK].last
    assert out is not None and out.verify().total == 2 * TICK  # publishing it is paying


def test_lie_capacity_the_provider_looks_itself_and_counts_what_others_reserve() -> None:
    """Threat 17."""
    book = payee.PayeeBook(Earning(OUT_VK, 100_000))
    one = payee.Served("a", LEASE.verify_key, TICK, 60_000)
    book = payee.admit(book, A, one)
    with pytest.raises(HeadroomShort) as short:
        payee.admit(book, B, replace(one, lease="b"))
    assert short.value.fields == {"free": 40_000}
    assert payee.admit(book, B, replace(one, lease="b", reserve=40_000)).leases.keys() == {A, B}


def test_a_router_admits_what_both_hops_can_pay_with_its_fee() -> None:
    room = {OUT_VK: 60_000}
    exact = with_fee(60_000, BPS)
    book = router.RouterBook(
        OFFER, {IN_VK: Earning(IN_VK, exact)}, {OUT_VK: Paying(OUT_VK)}, room
    )  # fmt: skip
    assert router.admit(book, A, carried("a"), {OUT_VK: OUT}).state.leases
    short = replace(book, hops_in={IN_VK: Earning(IN_VK, exact - 1)})
    for lacking in (short, replace(book, room={OUT_VK: 59_999})):
        with pytest.raises(HeadroomShort):
            router.admit(lacking, A, carried("a"), {OUT_VK: OUT})


def test_nobody_pays_or_serves_beyond_the_reserve() -> None:
    line = Line().admit()
    rounds = 0
    while payee.may_serve(line.provider, A):
        line.round()
        rounds += 1
    assert rounds == RESERVE // TICK and line.figures[0] == line.figures[2] == RESERVE


def test_router_dies_each_side_has_what_it_can_claim_by_itself() -> None:
    """Threat 14: the provider's last payment and the consumer's own books need no router."""
    line = Line().admit()
    line.round()
    assert line.tick() and line.tick() and not line.tick()
    assert line.provider.earning.last is not None
    assert line.provider.earning.last.verify().total == TICK
    assert line.provider.leases[A].owed - TICK == 2 * TICK


FORGED = {
    "another hop's key": (lambda good: replace(good, voucher=Voucher.sign(OUT, good.voucher.cumulative)), LeaseUnknown),
    "a smaller voucher": (lambda good: replace(good, voucher=Voucher.sign(C, 1)), StatementRefused),
    "a voucher nobody signed": (
        lambda good: replace(good, voucher=replace(good.voucher, signature=bytes(64))), VoucherRefused),
    "a statement nobody signed": (
        lambda good: replace(good, signed=replace(good.signed, signature=bytes(64))), StatementRefused),
    "leaves of another": (lambda good: replace(good, leaves=good.leaves[::-1]), StatementRefused),
    "a leaf taken back": (lambda good: _after(good, [good.leaves[0], replace(good.leaves[1], amount=0)]), StatementRefused),
    "a leaf gone": (lambda good: _after(good, [good.leaves[0]]), StatementRefused),
    "leaves exchanged": (lambda good: _after(good, list(good.leaves[::-1])), StatementRefused),
    "more than the channel holds": (
        lambda good: _after(good, [replace(good.leaves[0], amount=CAPACITY), good.leaves[1]]), StatementRefused),
}  # fmt: skip


def _after(good: Payment, leaves: list[Leaf]) -> Payment:
    return payment(leaves, good.signed.statement.n + 1, good.signed.statement.hash)


@pytest.mark.parametrize("name", FORGED)
def test_a_payment_that_is_not_whole_changes_nothing(name: str) -> None:
    line = Line().admit()
    line.round()
    good, before = line.consumer.paying.last, line.market
    assert good is not None
    bend, kind = FORGED[name]
    with pytest.raises(kind):
        line.market_takes(bend(good))
    assert line.market == before


def test_a_payment_with_leaves_of_no_lease_is_refused_before_it_is_looked_at() -> None:
    """Else whoever pays could have a router or provider hash and keep leaves without end."""
    line = Line().admit()
    good = line.consumer.paying.last
    last = line.market.hops_out[OUT_VK].last
    assert good is not None and last is not None
    many = replace(good, leaves=(*good.leaves, *(Leaf(bytes([i]) * 32, 0) for i in range(200))))
    for bent in (many, replace(good, leaves=(*good.leaves, Leaf(B, 0)))):
        with pytest.raises(StatementRefused, match="does not pay"):
            line.market_takes(bent)
    with pytest.raises(StatementRefused, match="does not pay"):
        payee.decide(line.provider, replace(last, leaves=(Leaf(B, 0),)), ADAPTER)


def test_an_older_payment_is_void_and_the_same_one_again_changes_nothing() -> None:
    line = Line().admit()
    old = line.consumer.paying.last
    line.round()
    before = line.market.hops_in[IN_VK]
    assert old is not None and before.last is not None
    assert before.take(old) is before and before.take(before.last) is before


def test_a_hop_in_begins_with_the_routers_offer() -> None:
    line = Line().admit(B, "b")
    line.market = replace(line.market, hops_in={IN_VK: Earning(IN_VK, CAPACITY)})
    strange = payment([Leaf(B, 0), Leaf(OFFER, HOP_FEE)], 1, bytes(32))
    with pytest.raises(StatementRefused, match="offer"):
        line.market_takes(strange)


def test_a_paid_that_is_forged_or_too_large_is_no_ground_to_sign() -> None:
    line = Line().admit()
    line.round()
    before = line.consumer
    for said in (
        Paid.sign(OUT, LEASE.verify_key, "a", TICK),
        Paid.sign(ADAPTER, LEASE.verify_key, "a", 2 * TICK),
    ):
        with pytest.raises(PaidRefused):
            payer.decide(before, said, C)
    other = Paid.sign(ADAPTER, OUT.verify_key, "a", TICK)
    with pytest.raises(LeaseUnknown):
        payer.decide(before, other, C)


def test_after_a_crash_everybody_says_the_same_bytes() -> None:
    line = Line().admit()
    line.round()
    last = line.consumer.paying.last
    assert last is not None and payer.resume(line.consumer) == (Send(IN_VK, last),)
    again = router.resume(line.market)
    assert again == router.resume(line.market) and len(again) == 3
    for send in payee.resume(line.provider, ADAPTER):
        before = line.market
        line.market_takes(send.message)
        assert line.market == before


def test_no_foreign_id_neither_side_hears_of_the_others_hop() -> None:
    """Threat 29: what reaches the consumer names no hop out, what reaches the provider no hop in."""
    line = Line().admit()
    assert line.tick()
    told = list(line.to_consumer)
    line.hear()
    line.pay()
    line.earn()
    told += line.to_consumer
    assert [type(one) for one in told] == [Owes, Paid]
    assert not any(repr(OUT_VK) in repr(one) for one in told)
    assert [type(one) for one in line.to_provider] == [Payment, Payment]
    assert not any(repr(IN_VK) in repr(one) for one in line.to_provider)
    with pytest.raises(Refusal):
        payee.decide(line.provider, Owes(A, 1), ADAPTER)
