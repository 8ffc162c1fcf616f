"""Where a relay stands at whoever keeps it: the stages, and what can happen to it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class Stage(Enum):
    """Where a relay stands."""

    VOLUME_WANTED = auto()  # nothing of it is rented
    VOLUME_STARTING = auto()  # its volume is agreed to, and does not run yet
    FILLING = auto()  # the volume runs, and the newest snapshot is put there if there is one
    RELAY_WANTED = auto()  # its chain is there, and nothing serves it
    RELAY_STARTING = auto()  # the relay is agreed to, and was not at its tip yet
    SERVING = auto()  # it was at its tip


class StageEvent(Enum):
    """What can happen to it."""

    RENTED = auto()  # a volume is agreed to
    RAN = auto()  # the volume runs
    FILLED = auto()  # what it begins with is there
    POSTED = auto()  # the relay is agreed to
    SERVED = auto()  # somebody saw it at its tip
    FELL = auto()  # its relay ended, or a volume before it ran: it begins again in its place
    LOST = auto()  # its volume is gone, or the provider for too long: it begins elsewhere


_S, _E = Stage, StageEvent

RELAY: Final = Machine(
    "relay",
    _S.VOLUME_WANTED,
    {
        (_S.VOLUME_WANTED, _E.RENTED): _S.VOLUME_STARTING,
        (_S.VOLUME_STARTING, _E.RAN): _S.FILLING,
        (_S.VOLUME_STARTING, _E.FELL): _S.VOLUME_WANTED,
        (_S.VOLUME_STARTING, _E.LOST): _S.VOLUME_WANTED,
        (_S.FILLING, _E.FILLED): _S.RELAY_WANTED,
        (_S.FILLING, _E.LOST): _S.VOLUME_WANTED,
        (_S.RELAY_WANTED, _E.POSTED): _S.RELAY_STARTING,
        (_S.RELAY_WANTED, _E.LOST): _S.VOLUME_WANTED,
        (_S.RELAY_STARTING, _E.SERVED): _S.SERVING,
        (_S.RELAY_STARTING, _E.FELL): _S.RELAY_WANTED,
        (_S.RELAY_STARTING, _E.LOST): _S.VOLUME_WANTED,
        (_S.SERVING, _E.FELL): _S.RELAY_WANTED,
        (_S.SERVING, _E.LOST): _S.VOLUME_WANTED,
    },
)
