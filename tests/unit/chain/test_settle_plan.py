"""What is settled, when and together with what: decided purely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.chain.build import plans
from marketplace.chain.channels.capacity import Funding
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.errors import TxRefused
from marketplace.chain.settlement import planner
from marketplace.chain.settlement.next_step import Due, Policy, Why
from marketplace.chain.settlement.planner import Costs, plan
from marketplace.domain.money.channel import Claim, Finish
from marketplace.domain.money.voucher import Voucher
from tests.unit.support import snapshot as s

ADA = s.ADA
COSTS = Costs.of(s.PARAMS, s.snapshot().ref_bytes)
EAGER = Policy(target_bps=10_000)


def test_the_costs_it_reckons_with_are_near_those_measured() -> None:
    assert 195_000 <= COSTS.fixed <= 205_000
    assert 22_000 <= COSTS.channel <= 26_000


def test_a_claim_waits_until_it_is_worth_its_share_of_the_fee() -> None:
    alone = (COSTS.fixed + COSTS.channel) * 200  # 0.5 % is a two-hundredth
    assert _why([_due("a", 1, alone - 1)]) == [Why.NOT_WORTH_IT]
    assert _sent([_due("a", 1, alone)]) == [["a"]]
    ten = (COSTS.fixed + 10 * COSTS.channel) * 200 // 10 + 1
    assert ten < alone / 5
    assert len(_sent([_due(f"v{i}", i, ten) for i in range(10)])[0]) == 10


def test_one_that_must_go_takes_along_what_pays_for_its_own_place() -> None:
    closing = _due("c", 1, 2 * ADA, expire_in_ms=9_000_000)
    fair = _due("f", 2, COSTS.channel * 200)
    poor = _due("p", 3, COSTS.channel * 199)
    wish = plan([closing, fair, poor], s.snapshot(), Policy())
    assert _names(wish) == [["c", "f"]]
    assert wish.waiting[poor.view.session_vk] is Why.NOT_WORTH_IT


def test_closing_low_ending_and_draining_go_at_once_but_never_at_a_loss() -> None:
    worth, dust = 2 * ADA, 200_000
    for name, dues in {
        "closing": lambda n: _due("a", 1, n, expire_in_ms=9_000_000),
        "low": lambda n: _due("a", 1, n, amount=n + 1_700_000),
        "drain": lambda n: _due("a", 1, n, drain=True),
    }.items():
        assert _sent([dues(worth)]) == [["a"]], name
        assert _why([dues(dust)]) == [Why.NOT_WORTH_IT], name


def test_an_ended_channel_is_finished_by_its_own_adapter_only() -> None:
    due = _due("a", 1, 3 * ADA, end=True)
    adapter = s.key("adapter p").key_hash
    [batch] = plan([due], s.snapshot(), Policy(), adapter).batches
    assert isinstance(batch.moves[0].step, Finish) and batch.signers == (adapter,)
    [batch] = plan([due], s.snapshot(), Policy(), s.key("another").key_hash).batches
    assert isinstance(batch.moves[0].step, Claim) and not batch.signers
    nothing = _due("a", 1, 0, end=True)
    [batch] = plan([nothing], s.snapshot(), Policy(), adapter).batches
    assert batch.moves[0].step == Finish()


def test_an_expired_channel_is_claimed_and_sent_home_in_one_step() -> None:
    expired = _due("a", 1, 5 * ADA, expire_in_ms=0)
    [batch] = plan([expired], s.snapshot(), Policy()).batches
    assert isinstance(batch.moves[0].step, Finish) and batch.moves[0].step.claim
    assert batch.since_ms == s.NOW_MS and not batch.signers
    plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch)  # the twin agrees
    assert _why([_due("a", 1, 0, expire_in_ms=0)]) == [Why.NOTHING_DUE]  # a stranger's own errand


def test_a_strangers_end_of_an_expired_channel_is_no_errand_to_pay_for() -> None:
    dust = _due("a", 1, 1_000, expire_in_ms=0, end=True)
    assert _why([dust]) == [Why.NOT_WORTH_IT]
    assert _why([_due("a", 1, 0, expire_in_ms=0, end=True)]) == [Why.NOT_WORTH_IT]


def test_a_voucher_is_taken_as_far_as_the_channel_can_still_be_closed() -> None:
    due = _due("a", 1, 900 * ADA, amount=40 * ADA)
    [batch] = plan([due], s.snapshot(), Policy()).batches
    step = batch.moves[0].step
    assert isinstance(step, Claim)
    kept = 40 * ADA - step.take_to
    assert 1_500_000 < kept < 1_700_000


def test_a_channel_that_would_cost_its_settler_money_is_refused() -> None:
    """Opening runs no script: a negative bounty is paid by whoever claims, a negative start by
    nobody.
    """
    for odd in (
        s.view("a", s.ref(1), 10 * ADA, fee_bps=-400_000, expire_at_ms=s.NOW_MS + 9_000_000),
        s.view("a", s.ref(1), 10 * ADA, claimed=-90 * ADA, fundings=[Funding(10 * ADA, 99)]),
        s.view("a", s.ref(1), 10 * ADA, fee_bps=10_001, expire_at_ms=0),
    ):
        voucher = Voucher.sign(s.key("session a"), 2 * ADA)
        good = _due("b", 2, 5 * ADA, drain=True)
        wish = plan(
            [Due(odd, voucher, s.payout_address("p"), drain=True), good], s.snapshot(), EAGER
        )
        assert wish.waiting[odd.session_vk] is Why.REFUSED
        assert _names(wish) == [["b"]]


def test_a_claim_of_more_than_there_is_is_refused_before_it_is_written() -> None:
    view = s.view("a", s.ref(1), 10 * ADA)
    claim = plans.claim_step(Voucher.sign(s.key("session a"), 11 * ADA))
    batch = plans.Batch(
        (plans.Move(view.utxo, claim),), {view.consts.payout: s.payout_address("p")}
    )
    with pytest.raises(TxRefused):
        plans.settle(s.snapshot(), s.funds(50 * ADA), batch)


def test_payouts_below_the_least_output_wait_unless_they_are_ones_own() -> None:
    small = [_due("a", 1, 400_000, provider="q", drain=True)]
    assert _why(small) == [Why.BELOW_LEAST]
    own = Policy(own_payouts=frozenset((small[0].view.consts.payout,)))
    assert _sent(small, own) == [["a"]]
    assert _sent(small, Policy(gift_most=600_000)) == [["a"]]


def test_neighbours_share_an_output_and_the_scattered_get_a_transaction_by_payout() -> None:
    order = sorted(range(8), key=s.ref)
    mixed = [
        _due(f"v{i}", n, 600_000, provider="pq"[i % 2], drain=True) for i, n in enumerate(order)
    ]
    # Interleaved, no run reaches the least output; by payout, four of each do.
    wish = plan(mixed, s.snapshot(), EAGER)
    assert sorted(map(sorted, _names(wish))) == [["v0", "v2", "v4", "v6"], ["v1", "v3", "v5", "v7"]]
    apart = [
        _due(f"v{i}", n, 600_000, provider="p" if i < 4 else "q", drain=True)
        for i, n in enumerate(order)
    ]
    assert len(_names(plan(apart, s.snapshot(), EAGER))) == 1
    rich = [
        _due(f"v{i}", n, 2 * ADA, provider="pq"[i % 2], drain=True) for i, n in enumerate(order)
    ]
    assert len(_names(plan(rich, s.snapshot(), EAGER))) == 1


def test_one_bad_voucher_is_named_and_the_others_go() -> None:
    good, bad = _due("a", 1, 80 * ADA, amount=100 * ADA), _due("b", 2, 80 * ADA, amount=100 * ADA)
    forged = Due(
        bad.view,
        Voucher(bad.view.session_vk, 80 * ADA, bytes(64)),
        bad.payout_address,
    )
    wish = plan([forged, good], s.snapshot(), Policy())
    assert _names(wish) == [["a"]]
    assert wish.waiting == {bad.view.session_vk: Why.REFUSED}
    assert wish.refused[bad.view.session_vk].code == "CHANNEL_VOUCHER_NOT_SIGNED"


def test_a_tower_leaves_open_channels_alone() -> None:
    tower = Policy(rescue_only=True)
    assert _why([_due("a", 1, 90 * ADA, amount=100 * ADA)], tower) == [Why.NOTHING_DUE]
    assert _sent([_due("a", 1, 90 * ADA, expire_in_ms=1, amount=100 * ADA)], tower) == [["a"]]


@given(
    st.lists(
        st.tuples(st.sampled_from("pqr"), st.integers(0, 5 * ADA), st.booleans()),
        min_size=1,
        max_size=14,
    )
)
@settings(max_examples=80, deadline=None)
def test_every_channel_is_sent_once_or_waits_for_a_reason_and_nobody_is_gifted(
    wishes: list[tuple[str, int, bool]],
) -> None:
    dues = [_due(f"v{i}", i, owed, provider=p, drain=d) for i, (p, owed, d) in enumerate(wishes)]
    wish = plan(dues, s.snapshot(), EAGER)
    sent = [m.utxo.ref for b in wish.batches for m in b.moves]
    assert len(sent) == len(set(sent))
    waiting = {d.view.utxo.ref for d in dues if d.view.session_vk in wish.waiting}
    assert set(sent) | waiting == {d.view.utxo.ref for d in dues}
    assert not set(sent) & waiting
    for batch in wish.batches:
        assert plans.settle(s.snapshot(), s.funds(5 * ADA, 500 * ADA), batch).subsidy == 0


def _due(
    name: str,
    number: int,
    owed: int,
    *,
    amount: int = 500 * ADA,
    provider: str = "p",
    expire_in_ms: int | None = None,
    end: bool = False,
    drain: bool = False,
) -> Due:
    expire = None if expire_in_ms is None else s.NOW_MS + expire_in_ms
    view: ChannelView = s.view(name, s.ref(number), amount, provider=provider, expire_at_ms=expire)
    voucher = Voucher.sign(s.key(f"session {name}"), owed) if owed else None
    return Due(view, voucher, s.payout_address(provider), end, drain)


def _names(wish: planner.Plan) -> list[list[str]]:
    known = {s.key(f"session {n}").verify_key: n for n in (*"abcfp", *(f"v{i}" for i in range(20)))}
    from marketplace.chain.encoding.datum import read_stage

    return [
        sorted(known[read_stage(m.utxo.datum or b"").consts.session_vk] for m in batch.moves)
        for batch in wish.batches
    ]


def _sent(dues: Sequence[Due], policy: Policy | None = None) -> list[list[str]]:
    return _names(plan(dues, s.snapshot(), policy or Policy()))


def _why(dues: Sequence[Due], policy: Policy | None = None) -> list[Why]:
    return list(plan(dues, s.snapshot(), policy or Policy()).waiting.values())


def test_no_more_is_claimed_than_was_delivered() -> None:
    """What a voucher was signed ahead over stays in the channel, at a claim and at the adapter's
    end.
    """
    for end in (False, True):
        whole = _due("a", 1, 7 * ADA, end=end)
        for stated, taken in ((None, 7 * ADA), (5 * ADA, 5 * ADA), (9 * ADA, 7 * ADA)):
            vkh = whole.view.consts.adapter_vkh
            (batch,) = plan([replace(whole, owed=stated)], s.snapshot(), EAGER, vkh).batches
            (move,) = batch.moves
            claim = move.step.claim if isinstance(move.step, Finish) else move.step
            assert isinstance(claim, Claim) and claim.take_to == taken, (end, stated)
