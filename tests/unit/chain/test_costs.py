"""What a channel's open and end cost, before there is one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from marketplace.chain.errors import FundsShort, NotDeployed
from marketplace.chain.settlement.costs import finish_fee, open_cost
from tests.unit.support import snapshot as s


def test_the_end_is_a_little_above_what_the_devnet_charges_for_one() -> None:
    measured = 224_352  # docs/costs.md: finish, ADA, one channel
    assert measured <= finish_fee(s.snapshot()) <= measured * 105 // 100


def test_the_end_follows_the_chains_parameters() -> None:
    now = s.snapshot()
    dearer = replace(now, params=replace(s.PARAMS, fee_fixed=s.PARAMS.fee_fixed + 100_000))
    assert finish_fee(dearer) == finish_fee(now) + 100_000
    free = replace(now, params=replace(s.PARAMS, price_mem=Fraction(0), price_step=Fraction(0)))
    assert finish_fee(free) < finish_fee(now)
    with pytest.raises(NotDeployed):
        finish_fee(s.snapshot(deployed=False))


def test_an_open_counts_the_coins_that_it_takes() -> None:
    now = s.snapshot()
    one, many = open_cost(now, s.funds(50 * s.ADA)), open_cost(now, s.funds(*[3 * s.ADA] * 6))
    assert 165_000 < one.fee < many.fee < 250_000
    assert 1_000_000 < one.reserve == many.reserve < 3_000_000
    with pytest.raises(FundsShort):
        open_cost(now, s.funds(2 * s.ADA))
