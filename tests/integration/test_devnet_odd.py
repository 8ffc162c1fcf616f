"""Odd transactions that the ledger accepts: the devnet indexes them as an explorer would, and goes on."""

from __future__ import annotations

from collections.abc import Iterator

import cbor2
import pytest

from contracts.devnet import Devnet, LedgerRefusal
from contracts.devnet.transaction import blake2b
from contracts.devnet.views import Page
from tests.integration.support_devnet import Draft, FrozenClock
from tests.integration.support_ledger_cases import World
from tests.requires import need_devnet


@pytest.fixture
def world() -> Iterator[World]:
    need_devnet()
    clock = FrozenClock()
    with Devnet(clock=clock) as devnet:
        clock.now += 100_000
        yield World(devnet)


def _answering(draft: Draft, shape: str, answers: tuple[int, ...]) -> Draft:
    """A spend whose redeemers all point at its one input; the script succeeds when it is given 42."""
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
