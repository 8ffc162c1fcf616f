"""Odd transactions: the devnet refuses what the ledger refuses, keeps what it accepts, and goes on,
over blocks and a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from contracts.devnet import Devnet, LedgerRefusal
from contracts.devnet.index.views import Page
from contracts.devnet.transaction import OutRef, blake2b
from tests.integration.support.devnet import ADA, Draft, FrozenClock, pay, ref
from tests.integration.support.ledger_cases import ALICE, World
from tests.integration.support.odd_cases import ACCEPTED, REFUSED, failing
from tests.requires import need_devnet

# Blocks come from mint(), as from the clock: what a block takes was judged, and acknowledged,
# before.
NEVER = 10**9


@pytest.fixture(scope="module")
def clock() -> FrozenClock:
    need_devnet()
    return FrozenClock()


@pytest.fixture(scope="module")
def world(clock: FrozenClock) -> Iterator[World]:
    with Devnet(clock=clock) as devnet:
        clock.now += 100_000
        yield World(devnet)


def assert_agreed(devnet: Devnet) -> None:
    """Index and ledger have the same unspent outputs, and no lovelace is made or lost."""
    assert devnet.audit()["differing"] == []
    sums = devnet.status()["lovelace"]
    total = sums["unspent"] + sums["fees"] + sums["deposits"] + sums["accounts"]
    assert sums["genesis"] + sums["rewards"] == total


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_what_the_ledger_refuses_is_refused(world: World, one: Any) -> None:
    control, mutant = one.build(world)
    before = world.devnet.ledger_utxos()
    with pytest.raises(LedgerRefusal, match=f"^{one.reason}: "):
        world.devnet.submit(mutant.signed())
    assert world.devnet.ledger_utxos() == before
    world.devnet.submit(control.signed())
    assert_agreed(world.devnet)


def test_what_was_taken_is_kept_over_blocks_and_restarts(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """Acknowledged into the mempool, a restart, a block, a restart: everything is there and the
    devnet makes blocks.
    """
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        clock.now += 100_000
        world = World(devnet)
        names = [devnet.submit(build(world).signed()) for build in ACCEPTED.values()]
        draft, locked, _ = failing(world)
        names.append(devnet.submit(draft.signed()))
        for one in REFUSED:
            control, mutant = one.build(world)
            with pytest.raises(LedgerRefusal, match=one.reason):
                devnet.submit(mutant.signed())
            names.append(devnet.submit(control.signed()))
    for waiting in (True, False):
        with Devnet(tmp_path, NEVER, clock=clock) as devnet:
            assert (set(names) <= set(devnet.status()["mempool"])) == waiting
            devnet.mint()
            assert_agreed(devnet)
            with devnet.reading() as view:
                assert [name for name in names if view.tx(name) is None] == []
                row = view.output(locked)
                assert row is not None and row["spent_by"] is None


def _answering(draft: Draft, shape: str, answers: tuple[int, ...]) -> Draft:
    """A spend whose redeemers all point at its one input; the script succeeds when it is given
    42.
    """
    ((pointer, (_, units)),) = draft.redeemers.items()
    if shape == "list":
        return draft.put(raw_redeemers=cbor2.dumps([[*pointer, one, units] for one in answers]))
    pairs = [cbor2.dumps(list(pointer)) + cbor2.dumps([one, units]) for one in answers]
    return draft.put(raw_redeemers=bytes([0xA0 + len(pairs)]) + b"".join(pairs))


@pytest.mark.parametrize("shape", ["list", "map"])
def test_of_redeemers_with_one_pointer_the_last_counts(world: World, shape: str) -> None:
    draft = world.spend()
    with pytest.raises(LedgerRefusal):
        world.devnet.submit(_answering(draft, shape, (42, 42, 41)).signed())
    name = world.devnet.submit(_answering(draft, shape, (41, 7, 42)).signed())
    with world.devnet.reading() as view:
        rows = view.redeemers("tx", name, Page())
    assert [(one["tag"], one["ix"], one["data_hash"]) for one in rows] == [
        (0, 0, blake2b(cbor2.dumps(42)))
    ]


def test_a_failing_script_costs_the_collateral_and_nothing_else(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """What the ledger takes is shown, before and after a restart and a rollback: nobody spends what
    was never made.
    """
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        clock.now += 100_000
        world = World(devnet)
        draft, locked, collateral = failing(world)
        devnet.mint()
        name = devnet.submit(draft.signed())
        devnet.mint()
        _failed(devnet, name, locked, collateral)
    with Devnet(tmp_path, NEVER, clock=clock) as devnet:
        _failed(devnet, name, locked, collateral)
        devnet.rollback(1)
        devnet.mint()
        _failed(devnet, name, locked, collateral)
        back = pay(OutRef(name, 1), ALICE, 4 * ADA, [])
        devnet.submit(back.signed())
        for gone in (OutRef(name, 0), collateral):
            with pytest.raises(LedgerRefusal, match=r"^BadInputsUTxO: "):
                devnet.submit(draft.put(valid=True, redeemers={}).set(0, [ref(gone)]).signed())


def _failed(devnet: Devnet, name: str, locked: OutRef, collateral: OutRef) -> None:
    assert_agreed(devnet)
    with devnet.reading() as view:
        found = view.tx(name)
        assert found is not None and not found.tx.valid
        assert (found.row["fee"], found.row["deposit"]) == (ADA, 0)
        made = [(row["ix"], row["lovelace"]) for row in view.outputs_of(name)]
        assert made == [(1, 4 * ADA)]
        assert view.redeemers("tx", name, Page()) == []
        rows = [view.output(one) for one in (locked, collateral)]
        assert [row and row["spent_by"] for row in rows] == [None, name]
