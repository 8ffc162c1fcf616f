"""What a relay's words are worth: at the tip, or not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from marketplace.domain.ouroboros.asking import Tip

_S: Final = 1000


class Standing(Enum):
    """Of a relay, at one look."""

    AT_TIP = auto()
    LAGGING = auto()
    AHEAD = auto()  # of the slot clock: no such block can be there
    UNPROVEN = auto()  # it says a tip and hands out another
    APART = auto()  # at a tip of a chain on which no other is
    OTHER_NETWORK = auto()
    REFUSING = auto()
    UNREACHABLE = auto()
    MALFORMED = auto()
    SILENT = auto()


@dataclass(frozen=True)
class SlotClock:
    """When slots are, on one network: slot *slot* began at *at_ms*, and each lasts *length_ms*
    since then (one second since Shelley).
    """

    slot: int
    at_ms: int
    length_ms: int = _S

    def at(self, ms: int) -> int:
        """The slot at *ms* since 1970."""
        return self.slot + (ms - self.at_ms) // self.length_ms

    def when(self, slot: int) -> int:
        """When *slot* began, ms since 1970."""
        return self.at_ms + (slot - self.slot) * self.length_ms


@dataclass(frozen=True)
class Network:
    """A network that relays are of."""

    name: str
    magic: int
    clock: SlotClock


# Each network's Shelley genesis and its first hard fork (book.world.dev.cardano.org).
NETWORKS: Final = {
    one.name: one
    for one in (
        Network("mainnet", 764_824_073, SlotClock(4_492_800, 1_596_059_091_000)),
        Network("preprod", 1, SlotClock(86_400, 1_655_769_600_000)),
        Network("preview", 2, SlotClock(0, 1_666_656_000_000)),
    )
}
SKEW_MS: Final = 2_000
"""How far a relay's clock, or ours, may be off."""


def judge(tip: Tip, clock: SlotClock, now_ms: int, lag_ms: int) -> Standing:
    """Where *tip* stands at *now_ms*: not beyond the clock, and at most *lag_ms* behind it."""
    behind = now_ms - clock.when(tip.point.slot)
    if behind < -SKEW_MS:
        return Standing.AHEAD
    return Standing.AT_TIP if behind <= lag_ms else Standing.LAGGING
