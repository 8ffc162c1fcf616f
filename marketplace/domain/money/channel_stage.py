"""Where a channel stands, in one word that adapter, market and consumer share.

A *stage* is what was last seen of a channel on the chain.  It follows the chain, not a plan: a
rollback takes a Close away again, so CLOSING leads back to OPEN.  Only ENDED is left by nobody:
each party decides how deep an end must lie before it says so.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final

from marketplace.domain.machine import Machine


class ChannelStage(StrEnum):
    """What was seen last: no output yet, the script's stage Open or Closing, or no output any
    more.
    """

    OPENING = "OPENING"
    OPEN = "OPEN"
    CLOSING = "CLOSING"
    ENDED = "ENDED"

    @classmethod
    def _missing_(cls, value: object) -> ChannelStage | None:
        """Adapters once wrote AWAITED for OPENING in their journals."""
        return cls.OPENING if value == "AWAITED" else None


class ChannelEvent(Enum):
    """What a look at the chain shows of a channel."""

    UNSEEN = auto()  # no block shows its open transaction: not yet, or not any more
    SHOWN_OPEN = auto()
    SHOWN_CLOSING = auto()
    SHOWN_ENDED = auto()  # and deep enough for the one who looks


_S, _E = ChannelStage, ChannelEvent

CHANNEL: Final = Machine(
    "channel",
    _S.OPENING,
    {
        (_S.OPENING, _E.UNSEEN): _S.OPENING,
        (_S.OPENING, _E.SHOWN_OPEN): _S.OPEN,
        (_S.OPENING, _E.SHOWN_CLOSING): _S.CLOSING,
        (_S.OPENING, _E.SHOWN_ENDED): _S.ENDED,
        (
            _S.OPEN,
            _E.UNSEEN,
        ): _S.OPEN,  # rolled back: nothing more is served, the stage is as it was
        (_S.OPEN, _E.SHOWN_OPEN): _S.OPEN,
        (_S.OPEN, _E.SHOWN_CLOSING): _S.CLOSING,
        (_S.OPEN, _E.SHOWN_ENDED): _S.ENDED,
        (_S.CLOSING, _E.UNSEEN): _S.CLOSING,
        (_S.CLOSING, _E.SHOWN_OPEN): _S.OPEN,  # a rollback took the Close away
        (_S.CLOSING, _E.SHOWN_CLOSING): _S.CLOSING,
        (_S.CLOSING, _E.SHOWN_ENDED): _S.ENDED,
        (_S.ENDED, _E.SHOWN_ENDED): _S.ENDED,  # said twice
    },
)

LIVING: Final = (ChannelStage.OPENING, ChannelStage.OPEN, ChannelStage.CLOSING)
"""Stages in which money may still move."""

USABLE: Final = (ChannelStage.OPENING, ChannelStage.OPEN)
"""Stages in which a further lease may be paid over the channel."""

_SHOWN: Final = {
    ChannelStage.OPENING: ChannelEvent.UNSEEN,
    ChannelStage.OPEN: ChannelEvent.SHOWN_OPEN,
    ChannelStage.CLOSING: ChannelEvent.SHOWN_CLOSING,
    ChannelStage.ENDED: ChannelEvent.SHOWN_ENDED,
}


def after(known: ChannelStage, shown: ChannelStage) -> ChannelStage:
    """The stage of a channel that was *known* and of which the chain now shows *shown*.

    Raises :class:`IllegalTransition` where an ended channel shows anything else.
    """
    return CHANNEL.step(known, _SHOWN[shown])
