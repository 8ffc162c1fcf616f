"""Who looks for a place for what just now: one look at a time at each job or gang, in this
process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(eq=False)
class _Look:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    asked: int = 0


class Looks:
    """A lock for each name that is looked at, for as long as somebody does or waits to."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Look] = {}

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[None]:
        """While no other look of this process is at *name*."""
        look = self._by_name.setdefault(name, _Look())
        look.asked += 1
        try:
            async with look.lock:
                yield
        finally:
            look.asked -= 1
            if not look.asked:
                del self._by_name[name]
