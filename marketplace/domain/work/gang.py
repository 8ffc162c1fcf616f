"""A gang: jobs that are placed, and end, all together; from the wish for places to its last
member's end.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class GangState(Enum):
    """Where it stands, and so what is wanted of its members: places, or their end."""

    WANTED = auto()  # no member has a place, and all are to have one
    WAITING = auto()  # not all fit now: it stands in the queue, and holds nothing
    WHOLE = auto()  # every member got one
    ENDING = auto()  # no member is wanted any more
    ENDED = auto()  # every member is over


class GangEvent(Enum):
    """What can happen to one; how a single member fares is its job's affair."""

    PLACE = auto()  # all members' providers were asked, in one change
    REFUSE = auto()  # there is no place for all, so none was asked for
    WAIT = auto()  # the same, and its consumer wants it to wait for one
    BREAK = auto()  # a member was declined, lapsed, failed, was lost, preempted or stopped
    STOP = auto()  # its consumer wants none of it any more
    FINISH = auto()  # the last member is over


_S, _E = GangState, GangEvent

GANG: Final = Machine(
    "gang",
    _S.WANTED,
    {
        (_S.WANTED, _E.PLACE): _S.WHOLE,
        (_S.WANTED, _E.REFUSE): _S.ENDED,
        (_S.WANTED, _E.WAIT): _S.WAITING,
        (_S.WANTED, _E.BREAK): _S.ENDING,
        (_S.WANTED, _E.STOP): _S.ENDING,
        (_S.WAITING, _E.PLACE): _S.WHOLE,
        (_S.WAITING, _E.WAIT): _S.WAITING,
        (_S.WAITING, _E.BREAK): _S.ENDING,
        (_S.WAITING, _E.STOP): _S.ENDING,
        (_S.WHOLE, _E.BREAK): _S.ENDING,
        (_S.WHOLE, _E.STOP): _S.ENDING,
        (_S.WHOLE, _E.FINISH): _S.ENDED,
        (_S.ENDING, _E.STOP): _S.ENDING,
        (_S.ENDING, _E.FINISH): _S.ENDED,
    },
)
