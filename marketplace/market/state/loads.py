"""What passes to services through this process, and whom of their replicas it has just missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

AWAY_MS: Final = 1_000
"""A replica that did not answer is asked last for so long, and for twice that the next time."""
AWAY_MOST_MS: Final = 30_000
MOST_HELD: Final = 200  # requests of one service


@dataclass(eq=False)
class Load:
    """Of one service. *asked*: requests that are being answered, of each job."""

    asked: Counter[str] = field(default_factory=Counter[str])
    held: int = 0
    requests: int = 0
    failed: int = 0
    untold: bool = False  # the store does not know it all
    telling: anyio.Lock = field(default_factory=anyio.Lock)  # one at a time writes it down
    _away: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _turn: int = 0

    @property
    def busy(self) -> int:
        """Requests that are being answered."""
        return self.asked.total()

    @property
    def idle(self) -> bool:
        """Nobody waits for anything."""
        return not self.busy and not self.held

    @contextmanager
    def asking(self, job: str) -> Generator[None]:
        """While *job* answers a request."""
        self.asked[job] += 1
        self.untold = True
        try:
            yield
        finally:
            self.asked[job] -= 1
            if not self.asked[job]:
                del self.asked[job]
            self.untold = True

    @contextmanager
    def holding(self) -> Generator[None]:
        """While a request waits for a replica."""
        self.held += 1
        self.untold = True
        try:
            yield
        finally:
            self.held -= 1
            self.untold = True

    def pick(self, jobs: Collection[str], now: int, kept: str = "") -> str:
        """Of *jobs*, in rotation, the one with the fewest requests under way, of equals another one
        each time; *kept*, if it is one of them and answers.
        """
        ready = [job for job in jobs if self._away.get(job, (0, 0))[0] <= now] or list(jobs)
        if kept in ready:
            return kept
        self._turn += 1
        least = min(self.asked[job] for job in ready)
        equal = sorted(job for job in ready if self.asked[job] == least)
        return equal[self._turn % len(equal)]

    def missed(self, job: str, now: int) -> None:
        """It did not answer."""
        until, last = self._away.get(job, (0, 0))
        if until <= now:  # what was asked beside it says nothing new
            pause = min(max(AWAY_MS, last * 2), AWAY_MOST_MS)
            self._away[job] = (now + pause, pause)

    def answered(self, job: str) -> None:
        """It does again."""
        self._away.pop(job, None)


class Loads:
    """All of one process."""

    def __init__(self) -> None:
        self._by_service: dict[str, Load] = {}

    def of(self, service: str) -> Load:
        """Its load, from now on."""
        return self._by_service.setdefault(service, Load())

    def untold(self) -> list[str]:
        """Those of which the store does not know all, or that somebody waits for: a number that is
        not said again is soon believed no more.
        """
        return [name for name, load in self._by_service.items() if load.untold or not load.idle]
