"""What a channel's end costs, before there is one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from marketplace.chain.errors import NotDeployed
from marketplace.chain.settlement.costs import finish_fee
from tests.unit.support import snapshot as s


def test_the_end_is_a_little_above_what_the_devnet_charges_for_one() -> None:
    measured = 224_352  # docs/costs.md: finish, ADA, one channel, signed by two keys
    assert measured <= finish_fee(s.snapshot()) <= measured * 107 // 100


def test_the_end_follows_the_chains_parameters() -> None:
    now = s.snapshot()
    dearer = replace(now, params=replace(s.PARAMS, fee_fixed=s.PARAMS.fee_fixed + 100_000))
    assert finish_fee(dearer) == finish_fee(now) + 100_000
    free = replace(now, params=replace(s.PARAMS, price_mem=Fraction(0), price_step=Fraction(0)))
    assert finish_fee(free) < finish_fee(now)
    with pytest.raises(NotDeployed):
        finish_fee(s.snapshot(deployed=False))
