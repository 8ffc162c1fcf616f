"""The life of a workload at the provider, as its lease wishes it: the machine that drives it.

``lifecycle`` steps the table, and the reconciler brings the host to where the wish stands. A step
that is not in the table is refused (:class:`~marketplace.domain.errors.IllegalTransition`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class Wish(Enum):
    """Where a lease's workload shall be; the driver brings it there, however often it is asked."""

    WAIT = auto()  # nothing yet: the terms or the channel are not there
    RUN = auto()
    FREEZE = auto()
    STOP = auto()
    GONE = auto()  # outputs are collected: remove every trace


class WishEvent(Enum):
    """What changes the wish."""

    BEGIN = auto()  # the channel carries the lease
    PAUSE = auto()
    RESUME = auto()
    STOP = auto()
    FINISHED = auto()  # the workload is over, or never was
    COLLECTED = auto()


_S, _E = Wish, WishEvent

WORKLOAD: Final = Machine(
    "workload",
    _S.WAIT,
    {
        (_S.WAIT, _E.BEGIN): _S.RUN,
        (_S.WAIT, _E.FINISHED): _S.WAIT,  # no trace of it was ever on the host
        (_S.RUN, _E.PAUSE): _S.FREEZE,
        (_S.RUN, _E.STOP): _S.STOP,
        (_S.RUN, _E.FINISHED): _S.STOP,
        (_S.FREEZE, _E.RESUME): _S.RUN,
        (_S.FREEZE, _E.STOP): _S.STOP,
        (_S.FREEZE, _E.FINISHED): _S.STOP,
        (_S.STOP, _E.FINISHED): _S.STOP,
        (_S.STOP, _E.COLLECTED): _S.GONE,
    },
)
