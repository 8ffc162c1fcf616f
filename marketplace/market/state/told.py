"""What payers were told of Paid, and when: for an unpaid end nobody is blamed beyond what that
allows (:func:`~marketplace.market.core.ending.lacks`), whatever a router says that it said.

Of this process only: a payer that connects again is told again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

ANSWER_MS: Final = 1_000  # a payer that is there answers at once
MOST: Final = 100_000  # leases; the oldest of more are forgotten: that blames nobody
YOUNG: Final = 16
"""Words of a lease that are too new to be answered. A further one takes the place of the last, so
that a provider which says many only makes them count later.
"""


class Told:
    """Lovelace by lease; a word counts once its payer had :data:`ANSWER_MS` to answer it."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()

    def note(self, lease: str, amount: int, now_ms: int) -> None:
        """*amount* was just passed on, or could not be for want of a payer."""
        words = self._words.setdefault(lease, [])
        if words and amount <= words[-1][1]:
            return  # known
        old = [one for one in words if now_ms - one[0] >= ANSWER_MS][-1:]
        young = [one for one in words if now_ms - one[0] < ANSWER_MS]
        self._words[lease] = [*old, *young[: YOUNG - 1], (now_ms, amount)]
        self._words.move_to_end(lease)
        while len(self._words) > MOST:
            self._words.popitem(last=False)

    def amount(self, lease: str, now_ms: int) -> int:
        """The most that there was time to answer; 0 if nothing was told."""
        words = self._words.get(lease, ())
        return max((one[1] for one in words if now_ms - one[0] >= ANSWER_MS), default=0)
