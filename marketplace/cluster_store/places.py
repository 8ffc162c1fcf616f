"""So many requests at a time of each who is let in: who writes slowly, or reads nothing of what he
asked for, holds a thread of the server for as long as that takes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

MOST: Final = 16
"""Of one lease, or of one store's owner."""


class Places:
    """How many requests of each are being answered."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, who: str) -> bool:
        """One more of theirs; False: they have as many as they may."""
        with self._lock:
            free = self._taken[who] < self._most
            if free:
                self._taken[who] += 1
        return free

    def leave(self, who: str) -> None:
        """One of theirs is answered."""
        with self._lock:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]


class Leaving:
    """*body* of an answer, as WSGI has it; *leave* once the server has closed it."""

    def __init__(self, body: Iterable[bytes], leave: Callable[[], None]) -> None:
        self._body, self._leave = body, leave

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """The server does so also where the other side is gone."""
        close: Any = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._leave()
