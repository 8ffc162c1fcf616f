"""The life of a transaction that we sent: a rollback is an ordinary event."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


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
