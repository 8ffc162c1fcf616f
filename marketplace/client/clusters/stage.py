"""Where a cluster stands at whoever pays for it: the stages, and what can happen to it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class Stage(Enum):
    """Where a cluster stands."""

    ASSEMBLING = auto()  # it has not begun: its members start, unbilled
    RUNNING = auto()  # all members are ordered to run
    SHRUNK = auto()  # those that are there run, and not all are
    STALLED = auto()  # fewer are there than it needs: they are held, unbilled
    ENDED = auto()


class StageEvent(Enum):
    """What can happen to it."""

    WHOLE = auto()  # every member that has not completed runs
    FEWER = auto()  # some run, and it goes on with them
    TOO_FEW = auto()  # it does not go on with those that are left
    OVER = auto()  # no member of it is wanted any more


_S, _E = Stage, StageEvent

CLUSTER: Final = Machine(
    "cluster",
    _S.ASSEMBLING,
    {
        (_S.ASSEMBLING, _E.WHOLE): _S.RUNNING,
        (_S.ASSEMBLING, _E.FEWER): _S.SHRUNK,
        (_S.ASSEMBLING, _E.OVER): _S.ENDED,
        (_S.RUNNING, _E.FEWER): _S.SHRUNK,
        (_S.RUNNING, _E.TOO_FEW): _S.STALLED,
        (_S.RUNNING, _E.OVER): _S.ENDED,
        (_S.SHRUNK, _E.WHOLE): _S.RUNNING,
        (_S.SHRUNK, _E.TOO_FEW): _S.STALLED,
        (_S.SHRUNK, _E.OVER): _S.ENDED,
        (_S.STALLED, _E.WHOLE): _S.RUNNING,
        (_S.STALLED, _E.FEWER): _S.SHRUNK,
        (_S.STALLED, _E.OVER): _S.ENDED,
    },
)
