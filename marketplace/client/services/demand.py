"""Demand as it was: the most requests at once in each stretch of time, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STRETCHES_MS: Final = (5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000)
MOST: Final = 8_640
"""Stretches that are remembered: three days of 30 s, twelve of 2 minutes."""
DAY_MS: Final = 86_400_000


def stretch_ms(start_ms: int) -> int:
    """What suits replicas that need *start_ms* to start: half of that, or a little less."""
    return max((one for one in STRETCHES_MS if 2 * one <= start_ms), default=STRETCHES_MS[0])


@dataclass
class Demand:
    """*peaks*: of stretches of *stretch_ms* that ended one after the other, the last one at
    *until_ms*. The one that goes on is in none of them.
    """

    stretch_ms: int
    until_ms: int = 0
    peaks: list[int] = field(default_factory=list[int])
    _seen: list[int] = field(default_factory=list[int])

    def note(self, under_way: int, now: int) -> list[int]:
        """*under_way* requests at *now*; the peaks of the stretches that ended before."""
        begin = now - now % self.stretch_ms
        if not self.until_ms:
            self.until_ms = begin
        lacking = (begin - self.until_ms) // self.stretch_ms
        ended: list[int] = []
        if lacking > 0:
            # What was not seen is taken to be as it was before: a keeper that was away knows no
            # better.
            peak = max(self._seen) if self._seen else self.peaks[-1] if self.peaks else under_way
            ended = [peak] * min(lacking, MOST)
            self.peaks = [*self.peaks, *ended][-MOST:]
            self.until_ms, self._seen = begin, []
        self._seen.append(under_way)
        return ended

    @property
    def now(self) -> int:
        """Requests under way in the stretch that goes on, on average, rounded up."""
        return -(-sum(self._seen) // len(self._seen)) if self._seen else 0
