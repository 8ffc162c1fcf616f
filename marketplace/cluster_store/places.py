"""So many requests at a time of each who is let in: who writes slowly, or reads nothing of what he
asked for, holds a thread of the server for as long as that takes.

What is read and what else is asked for have places of their own: a program that reads many files at
once, and each little by little, keeps none from writing its checkpoint.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

MOST: Final = 12
"""As many as rclone begins at once (``backend/webdav``, its pacer)."""
WAIT_S: Final = 20.0
"""For a place: longer than who reads nothing keeps his (``serving.READ_S``)."""


class Places:
    """How many requests of each are being answered, and how many of theirs wait: *most* of both."""

    def __init__(self, most: int = MOST, wait_s: float = WAIT_S) -> None:
        self._most, self._wait_s = most, wait_s
        self._changed = threading.Condition()
        self._taken: Counter[Hashable] = Counter()
        self._waiting: Counter[Hashable] = Counter()

    def take(self, who: Hashable) -> bool:
        """One more of theirs, once there is a place; False: too many of theirs wait already, or
        none was free in time.
        """
        with self._changed:
            if self._waiting[who] >= self._most:
                return False
            self._waiting[who] += 1
            free = self._changed.wait_for(lambda: self._taken[who] < self._most, self._wait_s)
            _less(self._waiting, who)
            if free:
                self._taken[who] += 1
        return free

    def leave(self, who: Hashable) -> None:
        """One of theirs is answered."""
        with self._changed:
            _less(self._taken, who)
            self._changed.notify_all()


def _less(count: Counter[Hashable], who: Hashable) -> None:
    count[who] -= 1
    if not count[who]:
        del count[who]


class Leaving:
    """*body* of an answer, as WSGI has it; *leave* once, when it was sent, or cannot be.

    Not by ``close`` alone: cheroot calls none where it cannot send the head of an empty answer.
    """

    def __init__(self, body: Iterable[bytes], leave: Callable[[], None]) -> None:
        self._body = body
        self._leave: Callable[[], None] | None = leave

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        finally:
            self._left()

    def close(self) -> None:
        """The server is done with it."""
        close: Any = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._left()

    def _left(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
