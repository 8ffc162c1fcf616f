"""The machine's own clock, randomness and names."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULID uses it
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)


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

    def new(self, prefix: str) -> str:
        """*prefix* ``_`` 26 characters."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._last >> 80:
                value = (now << 80) | secrets.randbits(79)
            else:  # within a millisecond: counted on, from a random start
                value = self._last + 1
            self._last = value
            high, text = self._head
            if value >> 20 != high:
                high = value >> 20
                text = "".join([_PAIRS[(high >> shift) & 1023] for shift in range(100, -1, -10)])
                self._head = (high, text)
        return f"{prefix}_{text}{_PAIRS[(value >> 10) & 1023]}{_PAIRS[value & 1023]}"

    def secret(self, size: int) -> bytes:
        """Unguessable bytes."""
        return secrets.token_bytes(size)
