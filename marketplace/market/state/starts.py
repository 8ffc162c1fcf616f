"""What one process knows of its providers' starts: who is doubted, kept up to date and not counted
anew.

The rules are those of :mod:`marketplace.market.placement.starts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from marketplace.market.base.records import Standing
from marketplace.market.base.settings import Settings


@dataclass
class Starts:
    """One process's view of providers: who is *proven*, when the last start of one lapsed (the
    store mends both with each refresh), and who of the others has *few* leases or more just now.
    """

    few: int = 4
    proven: set[str] = field(default_factory=set[str])
    lapsed: dict[str, Standing] = field(default_factory=dict[str, Standing])
    _leases: Counter[str] = field(default_factory=Counter[str])
    _crowded: set[str] = field(default_factory=set[str])

    def holds(self, provider: str) -> None:
        """One more lease."""
        self._leases[provider] += 1
        if self._leases[provider] >= self.few and provider not in self.proven:
            self._crowded.add(provider)

    def frees(self, provider: str) -> None:
        """One fewer."""
        self._leases[provider] -= 1
        if self._leases[provider] < self.few:
            self._crowded.discard(provider)
        if not self._leases[provider]:
            del self._leases[provider]

    def take(self, known: Iterable[Standing]) -> None:
        """What the store remembers of providers."""
        for one in known:
            if one.paid:
                self.proven.add(one.name)
                self._crowded.discard(one.name)
            if one.strikes:
                self.lapsed[one.name] = one

    def doubtful(self, settings: Settings, now: int) -> frozenset[str]:
        """Providers that come last: a start of theirs lapsed, or they are unproven and have a few
        already.
        """
        waits = {p for p, one in self.lapsed.items() if _wait_ms(settings, one, now)}
        return frozenset(waits | self._crowded)


def _wait_ms(settings: Settings, known: Standing, now: int) -> int:
    wait = settings.start_wait_ms << min(max(0, known.strikes - 1), 20)
    return max(0, known.last_ms + min(wait, settings.start_wait_most_ms) - now)
