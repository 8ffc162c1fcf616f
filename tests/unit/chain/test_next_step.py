"""Which step one channel is worth now: one rule, each party's policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.chain.settlement.next_step import (
    ALARM_BPS,
    LOSS_WAITS,
    Due,
    Policy,
    Why,
    alarms,
    batch_until_ms,
    batched_end,
    next_step,
)
from marketplace.domain.money.channel import Claim, Close, Closing, Finish
from marketplace.domain.money.voucher import Voucher
from tests.unit.support import snapshot as s

ADA = s.ADA
ADAPTER = Policy(claim_above=100 * ADA, claim_drained=3 * ADA, finish_expired=False)
CONSUMER = Policy(consumer=True)
MINE = s.key("adapter p").key_hash


def test_the_adapter_claims_from_its_threshold_on_and_sooner_when_it_drains() -> None:
    for unclaimed, drain, taken in (
        (100 * ADA - 1, False, None),
        (100 * ADA, False, 100 * ADA),
        (3 * ADA - 1, True, None),
        (3 * ADA, True, 3 * ADA),
    ):
        step = next_step(_due(unclaimed, drain=drain), s.snapshot(), ADAPTER, MINE)
        if taken is None:
            assert step is Why.NOT_WORTH_IT
        else:
            assert isinstance(step, Claim) and step.take_to == taken


def test_what_was_claimed_and_what_was_not_delivered_count_for_no_threshold() -> None:
    assert next_step(_due(105 * ADA, claimed=6 * ADA), s.snapshot(), ADAPTER, MINE) is (
        Why.NOT_WORTH_IT
    )
    ahead = _due(105 * ADA, owed=99 * ADA)
    assert next_step(ahead, s.snapshot(), ADAPTER, MINE) is Why.NOT_WORTH_IT
    assert ahead.signed == ahead.unclaimed == 99 * ADA


def test_an_end_is_worth_a_transaction_whatever_is_due() -> None:
    assert next_step(_due(0, end=True), s.snapshot(), ADAPTER, MINE) == Finish()
    step = next_step(_due(1, end=True), s.snapshot(), ADAPTER, MINE)
    assert isinstance(step, Finish) and step.claim is not None


def test_after_the_close_period_a_claim_ends_the_channel_but_not_the_adapters() -> None:
    over = _due(5 * ADA, drain=True, expire_in_ms=0)
    assert isinstance(next_step(over, s.snapshot(), Policy()), Finish)
    assert isinstance(next_step(over, s.snapshot(), ADAPTER, MINE), Claim)


def test_a_watchtower_leaves_alone_what_does_not_close() -> None:
    tower = Policy(rescue_only=True)
    assert next_step(_due(5 * ADA), s.snapshot(), tower) is Why.NOTHING_DUE
    assert isinstance(next_step(_due(5 * ADA, expire_in_ms=9_000_000), s.snapshot(), tower), Claim)


def test_the_consumer_closes_waits_and_pays_what_it_owes() -> None:
    assert next_step(_due(5 * ADA), s.snapshot(), CONSUMER) is Why.NOTHING_DUE
    assert next_step(_due(5 * ADA, end=True), s.snapshot(), CONSUMER) == Close()
    closing = _due(5 * ADA, end=True, expire_in_ms=1)
    assert next_step(closing, s.snapshot(), CONSUMER) is Why.CLOSE_PERIOD
    step = next_step(_due(5 * ADA, end=True, expire_in_ms=0), s.snapshot(), CONSUMER)
    assert isinstance(step, Finish) and step.claim is not None
    assert step.claim.take_to == 5 * ADA


@pytest.mark.parametrize(
    "due",
    [
        pytest.param({"cumulative": 0}, id="nothing"),
        pytest.param({"cumulative": 800_000}, id="less than an output holds"),
        pytest.param({"cumulative": 5 * ADA, "paid_at": b""}, id="to an address it does not know"),
        pytest.param({"cumulative": 5 * ADA, "claimed": 5 * ADA}, id="what was claimed"),
    ],
)
def test_the_consumer_pays_no_debt_that_cannot_stand(due: dict[str, int | bytes]) -> None:
    step = next_step(_due(**due, end=True, expire_in_ms=0), s.snapshot(), CONSUMER)  # pyright: ignore[reportArgumentType] -- by case
    assert step == Finish()


@pytest.mark.parametrize("policy", [Policy(), ADAPTER, CONSUMER, Policy(rescue_only=True)])
def test_what_is_in_flight_is_planned_by_nobody_again(policy: Policy) -> None:
    due = _due(500 * ADA, end=True, expire_in_ms=0)
    assert next_step(due, s.snapshot(), policy, MINE, {due.view.utxo.ref}) is Why.IN_FLIGHT
    assert not isinstance(next_step(due, s.snapshot(), policy, MINE, {s.ref(2)}), Why)


def test_a_close_period_alarms_at_a_quarter_and_at_half() -> None:
    period = 1_000_000
    for passed, rung in ((0, 0), (249_999, 0), (250_000, 1), (500_000, 2), (2_000_000, 2)):
        stage = Closing(s.consts("a"), 0, s.NOW_MS + period - passed)
        assert alarms(stage, period, s.NOW_MS) == ALARM_BPS[:rung]


BATCHES = Policy(claim_above=100 * ADA, finish_expired=False, batch_ms=60_000, end_cost=225_000)


def test_an_end_waits_for_others_until_its_time_is_over() -> None:
    due = _due(5 * ADA, end=True)
    until = batch_until_ms(due, s.snapshot(), BATCHES, s.NOW_MS)
    assert until == s.NOW_MS + 60_000
    waits = replace(due, batch_until_ms=until)
    assert next_step(waits, s.snapshot(), BATCHES, MINE) is Why.BATCH
    over = replace(due, batch_until_ms=s.NOW_MS)
    assert isinstance(next_step(over, s.snapshot(), BATCHES, MINE), Finish)


def test_what_is_worth_less_than_an_end_alone_waits_longer() -> None:
    nothing = batch_until_ms(_due(0, end=True), s.snapshot(), BATCHES, s.NOW_MS)
    assert nothing == s.NOW_MS + LOSS_WAITS * 60_000


@pytest.mark.parametrize(
    ("due", "policy"),
    [
        pytest.param({"drain": True}, BATCHES, id="its provider stops"),
        pytest.param({"expire_in_ms": 9_000_000}, BATCHES, id="it closes"),
        pytest.param({}, ADAPTER, id="its owner ends alone"),
    ],
)
def test_a_deadline_waits_for_nobody(due: dict[str, int | bool], policy: Policy) -> None:
    one = _due(**{"cumulative": 5 * ADA, **due}, end=True)  # pyright: ignore[reportArgumentType] -- by case
    assert batch_until_ms(one, s.snapshot(), policy, s.NOW_MS) == 0


@pytest.mark.parametrize(
    ("cumulative", "waits", "given_up"),
    [(50_000, LOSS_WAITS, True), (225_000, LOSS_WAITS, True), (226_000, 1, False)],
)
def test_what_is_no_output_waits_for_others_and_is_given_up_only_below_what_it_costs(
    cumulative: int, waits: int, given_up: bool
) -> None:
    due, now = _due(cumulative, end=True), s.snapshot()
    assert batch_until_ms(due, now, BATCHES, s.NOW_MS) == s.NOW_MS + waits * 60_000
    young = batched_end(due, now, BATCHES, s.NOW_MS)
    assert young.claim is not None and young.claim.take_to == cumulative
    old = batched_end(due, now, BATCHES, s.NOW_MS - 60_000)
    assert (old.claim is None) is given_up
    large = batched_end(_due(5 * ADA, end=True), now, BATCHES, s.NOW_MS - 60_000)
    assert large.claim is not None


def test_no_batch_is_waited_for_whose_bounty_is_more_than_an_end_alone() -> None:
    for due, waits in ((45 * ADA, True), (46 * ADA, False)):  # 0.225 and 0.230 ADA of bounty
        one = replace(_due(due, end=True), view=s.view("a", s.ref(1), 1_000 * ADA, fee_bps=50))
        assert bool(batch_until_ms(one, s.snapshot(), BATCHES, s.NOW_MS)) is waits


def test_a_channel_that_begins_to_close_waits_no_longer() -> None:
    closing = replace(_due(5 * ADA, end=True, expire_in_ms=9_000_000), batch_until_ms=2**62)
    assert isinstance(next_step(closing, s.snapshot(), BATCHES, MINE), Finish)


def _due(
    cumulative: int,
    *,
    claimed: int = 0,
    owed: int | None = None,
    end: bool = False,
    drain: bool = False,
    expire_in_ms: int | None = None,
    paid_at: bytes | None = None,
) -> Due:
    expire = None if expire_in_ms is None else s.NOW_MS + expire_in_ms
    view = s.view("a", s.ref(1), 1_000 * ADA, claimed=claimed, expire_at_ms=expire)
    voucher = Voucher.sign(s.key("session a"), cumulative) if cumulative else None
    to = s.payout_address("p") if paid_at is None else paid_at
    return Due(view, voucher, to, end, drain, owed)
