"""The devnet refuses what Cardano's ledger refuses, for the ledger's reasons; and what it refused
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contracts.devnet import Devnet, LedgerRefusal
from tests.integration.support.devnet import FrozenClock
from tests.integration.support.ledger_cases import CASES, Case, World
from tests.requires import need_devnet


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    need_devnet()
    clock = FrozenClock()
    with Devnet(clock=clock) as devnet:
        clock.now += 100_000
        yield World(devnet)


def test_there_are_cases_enough() -> None:
    assert len(CASES) >= 39
    assert len({one.name for one in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_one_wrong_value_is_refused(world: World, case: Case) -> None:
    control, mutant = case.build(world)
    assert control.signed() != mutant.signed()
    before = world.devnet.ledger_utxos()
    with pytest.raises(LedgerRefusal) as refused:
        world.devnet.submit(mutant.signed())
    assert case.reason in refused.value.reason
    assert world.devnet.ledger_utxos() == before
    # The control differs in that one value and is accepted: so it was this value that the ledger
    # refused.
    world.devnet.submit(control.signed())
