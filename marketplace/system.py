"""The machine's own clock, randomness, names and memory."""

from __future__ import annotations

import gc
import resource
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULID uses it
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_DRAWN: Final = 1_000  # random bytes at a time: each draw is a call to the kernel
_COLLECT: Final = (20_000, 10, 10)


FILES: Final = 1 << 16
LOOP: Final = {"use_uvloop": True}
"""For :func:`anyio.run`, of what carries bytes for others: libuv's event loop (decision 0219)."""


def raise_file_limit() -> None:
    """As many open files as the host allows, up to :data:`FILES`: a connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class SystemClock:
    """``Clock`` of the service."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class SystemIds:
    """``Ids`` of the service: 48 bits of time and 80 of randomness, increasing within a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._head = (-1, "")  # all but the last 20 bits of the last one, and how they read
        self._random, self._used = b"", 0

    def new(self, prefix: str) -> str:
        """*prefix* ``_`` 26 characters."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._last >> 80:
                value = (now << 80) | self._start()
            else:  # within a millisecond: counted on, from a random start
                value = self._last + 1
            self._last = value
            high, text = self._head
            if value >> 20 != high:
                high = value >> 20
                text = "".join([_PAIRS[(high >> shift) & 1023] for shift in range(100, -1, -10)])
                self._head = (high, text)
        return f"{prefix}_{text}{_PAIRS[(value >> 10) & 1023]}{_PAIRS[value & 1023]}"

    def _start(self) -> int:
        """79 random bits."""
        if self._used == len(self._random):
            self._random, self._used = secrets.token_bytes(_DRAWN), 0
        drawn = self._random[self._used : self._used + 10]
        self._used += 10
        return int.from_bytes(drawn, "big") >> 1

    def secret(self, size: int) -> bytes:
        """Unguessable bytes."""
        return secrets.token_bytes(size)


@contextmanager
def settled_memory() -> Generator[None]:
    """What lives now is taken to stay: within the block the cycle collector leaves it alone, and
    comes less often.

    A market's modules, offers and holdings are some hundred thousand objects; to look at all of
    them again for every few hundred new ones takes a tenth of a second each time, while everybody
    waits. Nothing happens outside the main thread, or where somebody has settled it already: there
    the process is somebody else's.
    """
    if threading.current_thread() is not threading.main_thread() or gc.get_freeze_count():
        yield
        return
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
