"""The life of a job: its states, what can happen to it, and what follows."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class JobState(Enum):
    """Where a job stands; why it ended is ``EndReason``, data beside it."""

    POSTED = auto()  # accepted; not matched yet
    QUEUED = auto()  # nothing fits now; it waits
    QUOTED = auto()  # a provider signed terms; the consumer decides
    STARTING = auto()  # both signed: channel, image, start
    RUNNING = auto()
    PAUSED = auto()
    ENDING = auto()
    ENDED = auto()


class JobEvent(Enum):
    """What can happen to one."""

    WAIT = auto()
    QUOTE = auto()
    REMATCH = auto()  # a declined or lapsed quote, or a retry after the provider was lost
    SIGN = auto()
    START = auto()
    PAUSE = auto()
    RESUME = auto()
    STOP = auto()
    END = auto()


_S, _E = JobState, JobEvent

JOB: Final = Machine(
    "job",
    _S.POSTED,
    {
        (_S.POSTED, _E.WAIT): _S.QUEUED,
        (_S.POSTED, _E.QUOTE): _S.QUOTED,
        (_S.POSTED, _E.REMATCH): _S.POSTED,
        (_S.POSTED, _E.END): _S.ENDED,
        (_S.QUEUED, _E.WAIT): _S.QUEUED,
        (_S.QUEUED, _E.REMATCH): _S.POSTED,
        (_S.QUEUED, _E.END): _S.ENDED,
        (_S.QUOTED, _E.SIGN): _S.STARTING,
        (_S.QUOTED, _E.REMATCH): _S.POSTED,
        (_S.QUOTED, _E.END): _S.ENDED,
        (_S.STARTING, _E.START): _S.RUNNING,
        (_S.STARTING, _E.STOP): _S.ENDING,
        (_S.STARTING, _E.REMATCH): _S.POSTED,
        (_S.STARTING, _E.END): _S.ENDED,
        (_S.RUNNING, _E.PAUSE): _S.PAUSED,
        (_S.RUNNING, _E.STOP): _S.ENDING,
        (_S.RUNNING, _E.REMATCH): _S.POSTED,
        (_S.RUNNING, _E.END): _S.ENDED,
        (_S.PAUSED, _E.RESUME): _S.RUNNING,
        (_S.PAUSED, _E.STOP): _S.ENDING,
        (_S.PAUSED, _E.REMATCH): _S.POSTED,
        (_S.PAUSED, _E.END): _S.ENDED,
        (_S.ENDING, _E.REMATCH): _S.POSTED,
        (_S.ENDING, _E.END): _S.ENDED,
    },
)
