"""A process may have one devnet after another: the ledger stays loaded, and nothing of the one
before is in the next.
"""

from __future__ import annotations

import py_mini_racer
import pytest

from contracts.devnet import Devnet, LedgerRefusal
from contracts.devnet.ledger import engine as engines
from contracts.devnet.ledger.engine import Engine
from contracts.devnet.source import fetch_ledger
from tests.integration.support.devnet import ADA, FrozenClock, Party, out, pay
from tests.requires import need_devnet

ALICE, BOB = Party("alice"), Party("bob")
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _ledger_there() -> None:
    need_devnet()


@pytest.fixture(autouse=True)
def _none_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_spare", [])


def unused() -> str:
    raise AssertionError("it was loaded once more")


def test_the_next_knows_nothing_of_the_one_before():
    clock = FrozenClock()
    with Devnet(clock=clock) as first:
        funds = first.faucet(ALICE.address, 100 * ADA)
        held = first.ledger_utxos()
    spend = pay(funds, ALICE, 100 * ADA, [out(BOB.raw, 10 * ADA)]).signed()
    clock.now += DAY_MS
    with Devnet(clock=clock) as second:
        assert second.slot() == 0, "its time is its own"
        assert second.ledger_utxos() != held
        with pytest.raises(LedgerRefusal):
            second.submit(spend)
        # What the first was asked for gives the second the same state: nothing in between counts.
        assert second.faucet(ALICE.address, 100 * ADA) == funds
        assert second.ledger_utxos() == held
        second.submit(spend)


def test_what_is_loaded_serves_the_next_and_only_one_is_kept():
    one, two = (Engine(fetch_ledger, 0) for _ in range(2))
    one.close()
    two.close()
    assert len(engines._spare) == 1
    three = Engine(unused, 0)
    assert not engines._spare
    three.close()
    three.close()
    assert len(engines._spare) == 1, "closed twice is closed"


def test_what_was_ended_in_the_middle_serves_nobody():
    broken = Engine(fetch_ledger, 0)
    assert broken._v8 is not None
    with pytest.raises(py_mini_racer.JSEvalException):
        broken._v8.call("tallyThrows")
    broken.close()
    assert not engines._spare
    after = Engine(fetch_ledger, 0)
    assert after._v8 is not None
    assert after._v8.call("tallyRelease", []) == 0
    after.close()
