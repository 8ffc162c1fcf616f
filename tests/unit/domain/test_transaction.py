"""What one look at the chain makes of a transaction: the same for every party that follows one."""

from __future__ import annotations

import itertools

import pytest

from marketplace.domain.money.transaction import (
    FINAL_DEPTH,
    TRANSACTION,
    TxEvent,
    TxState,
    depth,
    looked_at,
)

FOLLOWED = (TxState.BUILT, TxState.SUBMITTED, TxState.SEEN, TxState.ROLLED_BACK)


@pytest.mark.parametrize(("tip", "height", "blocks"), [(10, 10, 1), (24, 10, 15), (9, 10, 0)])
def test_a_block_holds_its_own_transactions_once(tip: int, height: int, blocks: int) -> None:
    assert depth(tip, height) == blocks


@pytest.mark.parametrize(
    ("state", "blocks", "dead"),
    list(itertools.product(FOLLOWED, (0, 1, FINAL_DEPTH - 1, FINAL_DEPTH), (False, True))),
)
def test_every_look_is_a_way_through_the_table(state: TxState, blocks: int, dead: bool) -> None:
    at = state
    for event in looked_at(state, blocks, dead=dead):
        at = TRANSACTION.step(at, event)
    if blocks:
        assert at is (TxState.FINAL if blocks >= FINAL_DEPTH else TxState.SEEN)
    elif dead:
        assert at is TxState.EXPIRED
    else:
        assert at is (TxState.ROLLED_BACK if state is TxState.SEEN else state)


def test_a_rollback_is_told_before_the_end() -> None:
    assert looked_at(TxState.SEEN, 0, dead=True) == [TxEvent.VANISHED, TxEvent.IMPOSSIBLE]
