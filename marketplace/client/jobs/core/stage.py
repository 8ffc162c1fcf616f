"""Where a job stands at its consumer: the stages, what can happen, and what follows."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from marketplace.domain.machine import Machine


class Stage(Enum):
    """Where a job stands at whoever pays for it."""

    UNPOSTED = auto()  # no market has taken it
    WAITING = auto()  # posted; no quote is to be answered here
    ASKED = auto()  # a quote is checked, and a person or the job's own rule answers it
    AGREEING = auto()  # the answer is yes: signed, funded, told, each once
    SERVED = auto()  # the market has the signature; the payer answers the receipts
    ENDING = auto()  # the market says that it ended; what its channels hold is to come home
    OVER = auto()


class StageEvent(Enum):
    """What can happen to it."""

    POSTED = auto()
    REFUSED = auto()  # the market did not take it
    QUOTED = auto()
    AGREED = auto()
    DECLINED = auto()  # by a person, or because the quote is not what was asked for
    REMATCHED = auto()  # no quote stands: the market looks for another place, or still for one
    SERVED = auto()
    ENDED = auto()
    HOME = auto()  # every channel whose end was asked for has ended on chain


_S, _E = Stage, StageEvent

CONSUMER: Final = Machine(
    "consumer",
    _S.UNPOSTED,
    {
        (_S.UNPOSTED, _E.POSTED): _S.WAITING,
        (_S.UNPOSTED, _E.REFUSED): _S.OVER,
        (_S.WAITING, _E.QUOTED): _S.ASKED,
        (_S.WAITING, _E.REMATCHED): _S.WAITING,
        (_S.WAITING, _E.SERVED): _S.SERVED,
        (_S.WAITING, _E.ENDED): _S.ENDING,
        (_S.ASKED, _E.QUOTED): _S.ASKED,
        (_S.ASKED, _E.AGREED): _S.AGREEING,
        (_S.ASKED, _E.DECLINED): _S.WAITING,
        (_S.ASKED, _E.REMATCHED): _S.WAITING,
        (_S.ASKED, _E.SERVED): _S.SERVED,
        (_S.ASKED, _E.ENDED): _S.ENDING,
        (_S.AGREEING, _E.QUOTED): _S.ASKED,  # a fault came between: it is checked anew
        (_S.AGREEING, _E.DECLINED): _S.WAITING,
        (_S.AGREEING, _E.REMATCHED): _S.WAITING,
        (_S.AGREEING, _E.SERVED): _S.SERVED,
        (_S.AGREEING, _E.ENDED): _S.ENDING,
        (_S.SERVED, _E.QUOTED): _S.ASKED,
        (_S.SERVED, _E.REMATCHED): _S.WAITING,
        (_S.SERVED, _E.SERVED): _S.SERVED,
        (_S.SERVED, _E.ENDED): _S.ENDING,
        (_S.ENDING, _E.HOME): _S.OVER,
    },
)
