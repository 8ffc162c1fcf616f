"""Where a replica stands at whoever keeps its service: the stages, and what can happen to it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class Stage(Enum):
    """Where a replica stands."""

    STARTING = auto()  # its job is agreed to, and does not run yet
    WARMING = auto()  # it runs, and was not fit yet: nobody is sent there
    SERVING = auto()  # in rotation
    DRAINING = auto()  # out of rotation: it ends what it has begun
    STOPPING = auto()  # its job is asked to end
    GONE = auto()


class StageEvent(Enum):
    """What can happen to it."""

    RAN = auto()
    FIT = auto()  # a look at it was good
    UNFIT = auto()  # too many looks in a row were bad, or none was good in time
    RETIRED = auto()  # another takes its place, or fewer are wanted
    DRAINED = auto()  # nothing is under way any more, or its time for that is over
    ENDED = auto()  # its job has


_S, _E = Stage, StageEvent

REPLICA: Final = Machine(
    "replica",
    _S.STARTING,
    {
        (_S.STARTING, _E.RAN): _S.WARMING,
        (_S.STARTING, _E.UNFIT): _S.STOPPING,
        (_S.STARTING, _E.RETIRED): _S.STOPPING,
        (_S.STARTING, _E.ENDED): _S.GONE,
        (_S.WARMING, _E.FIT): _S.SERVING,
        (_S.WARMING, _E.UNFIT): _S.STOPPING,
        (_S.WARMING, _E.RETIRED): _S.STOPPING,
        (_S.WARMING, _E.ENDED): _S.GONE,
        (_S.SERVING, _E.UNFIT): _S.DRAINING,
        (_S.SERVING, _E.RETIRED): _S.DRAINING,
        (_S.SERVING, _E.ENDED): _S.GONE,
        (_S.DRAINING, _E.DRAINED): _S.STOPPING,
        (_S.DRAINING, _E.ENDED): _S.GONE,
        (_S.STOPPING, _E.ENDED): _S.GONE,
    },
)
