"""The daemon's eye on the chain while the chain is not there yet.

After a restart what runs is taken up and metered at once: a chain that does not answer, or that is
slow to, must not leave workloads running unwatched.  Watches and settlements that are asked for
meanwhile are kept and handed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapter.daemon.ports import Chain
from marketplace.domain.protocol import wire


class DeferredChain:
    """``ports.Chain`` over one that *make* brings, however long that takes."""

    def __init__(self, make: Callable[[], Awaitable[Chain]]) -> None:
        self._make = make
        self._made: Chain | None = None
        self._watched: dict[bytes, None] = {}
        self._settling: dict[bytes, None] = {}

    def watch(self, session_vk: bytes) -> None:
        """Look at this channel as soon as there is a chain, and again and again."""
        if self._made is not None:
            self._made.watch(session_vk)
        else:
            self._watched[session_vk] = None

    def examine(self, session_vk: bytes, tx: bytes) -> None:
        """While there is no chain nothing can be judged: its lease waits for a block."""
        if self._made is not None:
            self._made.examine(session_vk, tx)

    def settle(self, session_vk: bytes) -> None:
        """Finish this channel; repeated until the chain shows it."""
        if self._made is not None:
            self._made.settle(session_vk)
        else:
            self._settling[session_vk] = None

    def heard(self, message: wire.EndsProposed | wire.EndDeclined) -> None:
        """Nothing is on offer while there is no chain, so nothing is answered."""
        if self._made is not None:
            self._made.heard(message)

    async def run(self) -> None:
        """Bring the chain, hand over, and watch until cancelled; what *make* raises ends it."""
        made = await self._make()
        for session_vk in self._watched:
            made.watch(session_vk)
        for session_vk in self._settling:
            made.settle(session_vk)
        self._made = made
        await made.run()
