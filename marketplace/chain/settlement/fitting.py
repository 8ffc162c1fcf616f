"""How much of a batch one transaction holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Settlement
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.errors import (
    TxRefused,
)
from marketplace.chain.transaction.snapshot import Snapshot


def fit(snapshot: Snapshot, funds: Funds, batch: Batch) -> Settlement:
    """As much of *batch*, from its beginning in ledger order, as one transaction may hold.

    A run that the size cuts in two is left whole for the next transaction if its part here would
    not clear the least output.
    """
    moves = sorted(batch.moves, key=lambda m: m.utxo.ref)
    limit = snapshot.params.max_tx_size
    best: Settlement | None = None
    count, too_many = len(moves), len(moves) + 1
    while too_many - (len(best.moves) if best else 0) > 1:
        planned = plans.settle(snapshot, funds, replace(batch, moves=tuple(moves[:count])))
        size = planned.draft.size
        if size <= limit:
            best = planned
        else:
            too_many = count
        fitting = len(best.moves) if best else 0
        count = min(max(count * limit // size, fitting + 1), too_many - 1)
    if best is None:
        raise TxRefused("one channel alone exceeds a transaction")
    whole = _whole_runs(best.moves, moves)
    if best.subsidy and 0 < whole < len(best.moves):
        return plans.settle(snapshot, funds, replace(batch, moves=tuple(moves[:whole])))
    return best


def _whole_runs(taken: Sequence[plans.Move], moves: Sequence[plans.Move]) -> int:
    """How many of *taken* are in runs that end within it."""
    count = len(taken)
    if count == len(moves):
        return count
    payouts = [read_stage(m.utxo.datum or b"").consts.payout for m in moves[: count + 1]]
    while count and payouts[count - 1] == payouts[-1]:
        count -= 1
    return count
