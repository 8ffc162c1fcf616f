"""How much of a connection to a port may be on its way: a credit of its own for each direction.

All connections of a provider share one line with its receipts and vouchers, so whoever is slow must
hold up nobody but himself (as in HTTP/2: RFC 9113, section 5.2). The sender counts what it sent;
the receiver says from time to time how much of that it has passed on, in all; the difference is at
most :data:`WINDOW`. Capability ``flow``; without it a connection whose end is slow is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW: Final = 1 << 20
"""Of one connection and direction, in bytes as :func:`cost` counts them."""
TOLD_EACH: Final = WINDOW // 4
EACH: Final = 64
"""What a message takes beside its bytes: a million of one byte each are no megabyte to keep."""
LINE_MOST: Final = 1 << 20
"""Bytes that one side has not acknowledged on the whole line, beyond which pages, logs and files
wait: a voucher behind them is late by the time that they take.
"""


def cost(data: bytes) -> int:
    """What *data* takes of a window."""
    return len(data) + EACH


@dataclass
class Sending:
    """One direction, at its sender."""

    sent: int = 0
    taken: int = 0

    @property
    def room(self) -> bool:
        """Whether one more message may be sent: the last may be larger than what is left."""
        return self.sent - self.taken < WINDOW

    def gave(self, data: bytes) -> None:
        """*data* was sent."""
        self.sent += cost(data)

    def heard(self, taken: int) -> None:
        """The receiver has passed on *taken* in all; more than was sent, or less than it said
        before, counts as what can be.
        """
        self.taken = max(self.taken, min(taken, self.sent))


@dataclass
class Receiving:
    """One direction, at its receiver."""

    taken: int = 0
    told: int = 0

    def passed(self, data: bytes) -> int | None:
        """*data* was passed on: what is to be told now, if anything."""
        self.taken += cost(data)
        if self.taken - self.told < TOLD_EACH:
            return None
        self.told = self.taken
        return self.taken
