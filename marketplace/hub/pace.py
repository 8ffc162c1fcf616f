"""How much of the market's time strangers get: what one address may send before any of its
connections has had a receipt or voucher taken.

Whoever has a key is heard, and keys are free; so frames of strangers are read at a pace, and no
number of connections from one address takes the turn of leases that tick.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

PER_SECOND: Final = 256 * 1024  # bytes; reading the worst of them takes about an eighth of a core
AT_ONCE: Final = 1 << 20  # bytes that may come before the pace is felt
EACH: Final = 2_048  # bytes that a frame counts beside its own, and every message that answers it
KEPT: Final = 50_000  # addresses; the oldest are forgotten


class Pace:
    """A bucket of bytes for each address, which may be overdrawn by one frame and its answers."""

    def __init__(self, per_second: int = PER_SECOND, at_once: int = AT_ONCE) -> None:
        self._per_second, self._at_once = per_second, at_once
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str, size: int, now: float, each: int = EACH) -> float:
        """Seconds (of the clock that *now* is of) to wait before *size* bytes are read."""
        return max(0.0, -self.owe(address, size + each, now) / self._per_second)

    def owe(self, address: str, size: int, now: float) -> float:
        """Take *size* bytes more; what is left, less than nothing when overdrawn."""
        left, at = self._left.pop(address, (float(self._at_once), now))
        left = min(self._at_once, left + (now - at) * self._per_second) - size
        self._left[address] = (left, now)
        if len(self._left) > KEPT:
            self._left.popitem(last=False)
        return left
