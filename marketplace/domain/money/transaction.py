"""The life of a transaction that we sent: a rollback is an ordinary event."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine

FINAL_DEPTH: Final = 15
"""Blocks that hold what no rollback is expected to undo (design of the channel)."""


def depth(tip_height: int, height: int) -> int:
    """How many blocks hold what the block at *height* holds, that block included; 0 above the
    tip.
    """
    return max(0, tip_height - height + 1)


class TxState(Enum):
    """Where a transaction stands."""

    BUILT = auto()  # signed and its id stored, not yet sent
    SUBMITTED = auto()  # a node accepted it; in nobody's block yet
    SEEN = auto()  # in a block that may still be rolled back
    FINAL = auto()  # deep enough that no rollback is expected
    ROLLED_BACK = auto()  # its block is gone; the same bytes are sent again
    EXPIRED = auto()  # can never be included: its inputs are spent or its slot is past


class TxEvent(Enum):
    """What can happen to one."""

    SENT = auto()
    INCLUDED = auto()
    DEEP = auto()
    VANISHED = auto()
    IMPOSSIBLE = auto()


_S, _E = TxState, TxEvent

TRANSACTION: Final = Machine(
    "transaction",
    _S.BUILT,
    {
        (_S.BUILT, _E.SENT): _S.SUBMITTED,
        (_S.BUILT, _E.INCLUDED): _S.SEEN,  # sent just before a crash
        (_S.BUILT, _E.IMPOSSIBLE): _S.EXPIRED,
        (_S.SUBMITTED, _E.SENT): _S.SUBMITTED,  # resubmission of the same bytes
        (_S.SUBMITTED, _E.INCLUDED): _S.SEEN,
        (_S.SUBMITTED, _E.IMPOSSIBLE): _S.EXPIRED,
        (_S.SEEN, _E.INCLUDED): _S.SEEN,
        (_S.SEEN, _E.DEEP): _S.FINAL,
        (_S.SEEN, _E.VANISHED): _S.ROLLED_BACK,
        (_S.ROLLED_BACK, _E.SENT): _S.SUBMITTED,
        (_S.ROLLED_BACK, _E.INCLUDED): _S.SEEN,
        (_S.ROLLED_BACK, _E.IMPOSSIBLE): _S.EXPIRED,
    },
)


def looked_at(
    state: TxState, blocks: int, *, dead: bool, final_depth: int = FINAL_DEPTH
) -> list[TxEvent]:
    """What one look at the chain tells of a transaction in *state*, in order.

    *blocks* hold it (0: it is in none); *dead*: it can be in none any more, since its last slot has
    passed or another transaction spent an input.
    """
    if blocks:
        return [TxEvent.INCLUDED, *([TxEvent.DEEP] if blocks >= final_depth else [])]
    gone = [TxEvent.VANISHED] if state is TxState.SEEN else []
    return [*gone, *([TxEvent.IMPOSSIBLE] if dead else [])]
