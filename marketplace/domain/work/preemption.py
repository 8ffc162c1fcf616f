"""A preemption: room made for one waiting job of a higher priority, from the notice to what came of
it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class PreemptionState(Enum):
    """Where it stands; the job, its victims and the devices are data beside it."""

    NOTICE = auto()  # the victims were told, and run on
    STOPPING = auto()  # the notice is over; the victims were asked to end
    TAKEN = auto()  # the room is the job's: its provider was asked
    USED = auto()  # the job started there
    WASTED = auto()  # somebody was ended, and the job's consumer did not use the room
    WITHDRAWN = auto()  # the room is not needed any more
    LOST = auto()  # the provider or its host could not give the room


class PreemptionEvent(Enum):
    """What can happen to one."""

    ELAPSED = auto()  # the notice is over
    FREED = auto()  # every victim has ended
    STARTED = auto()  # the job runs there
    UNUSED = auto()  # the job ended without running there
    WITHDRAW = auto()  # the job was placed elsewhere, or ended before anybody was asked to
    LOSE = auto()  # the room cannot be had: too late, gone or declined


_S, _E = PreemptionState, PreemptionEvent

PREEMPTION: Final = Machine(
    "preemption",
    _S.NOTICE,
    {
        (_S.NOTICE, _E.ELAPSED): _S.STOPPING,
        (_S.NOTICE, _E.FREED): _S.TAKEN,
        (_S.NOTICE, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.NOTICE, _E.LOSE): _S.LOST,
        (_S.STOPPING, _E.FREED): _S.TAKEN,
        (_S.STOPPING, _E.UNUSED): _S.WASTED,
        (_S.STOPPING, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.STOPPING, _E.LOSE): _S.LOST,
        (_S.TAKEN, _E.STARTED): _S.USED,
        (_S.TAKEN, _E.UNUSED): _S.WASTED,
        (_S.TAKEN, _E.LOSE): _S.LOST,
    },
)
