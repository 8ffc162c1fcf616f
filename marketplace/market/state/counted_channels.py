"""Which channels count as paid with, and which are still to be looked at: one process's view.

The rules are those of :mod:`marketplace.market.money.paying`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

KEPT: Final = 10_000
AT_ONCE: Final = 100  # looks at the chain in one round
AGAIN_MS: Final = 1_000  # after a look that found too little; doubles with each
AGAIN_MOST_MS: Final = 300_000


class Paying:
    """One process's view: the channels that count, and those still to be looked at."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, None] = OrderedDict()
        self._asked: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # looks, the next at (ms)

    def counts(self, session_vk: bytes) -> bool:
        """Whether money is known to move over it."""
        return session_vk in self._counts

    def note(self, session_vk: bytes) -> None:
        """A receipt or voucher of it was taken: it is looked at soon, if it is not known."""
        if session_vk not in self._counts and session_vk not in self._asked:
            self._asked[session_vk] = (0, 0)
            while len(self._asked) > KEPT:
                self._asked.popitem(last=False)

    def due(self, now: int) -> list[bytes]:
        """What is to be looked at now: what was looked at least often comes first."""
        found = [(looks, vk) for vk, (looks, at) in self._asked.items() if at <= now]
        return [vk for _, vk in sorted(found, key=lambda one: one[0])[:AT_ONCE]]

    def later(self, session_vk: bytes, now: int) -> None:
        """The chain does not show enough yet."""
        looks, _ = self._asked.get(session_vk, (0, 0))
        wait = min(AGAIN_MS << min(looks, 20), AGAIN_MOST_MS)
        self._asked[session_vk] = (looks + 1, now + wait)

    def over(self, session_vk: bytes, *, counts: bool) -> None:
        """It is not looked at again before it is noted again; for ever, if it *counts*."""
        self._asked.pop(session_vk, None)
        if counts:
            self._counts[session_vk] = None
            while len(self._counts) > KEPT:
                self._counts.popitem(last=False)
