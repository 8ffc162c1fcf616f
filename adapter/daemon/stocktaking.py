"""The images on the host: the market is told what is there, and the owner's rule is followed.

Told again only when it differs in what counts: what is held, or a figure by a tenth. What the
market forgot it hears within the hour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
import structlog

from adapter.core.shelving import Shelving, Stock
from adapter.core.workload import RuntimeFault
from adapter.daemon.ports import Market
from marketplace.domain.errors import TallyError
from marketplace.domain.protocol import wire

LOOK_S: Final = 15.0
STEP_S: Final = 1.0
KEEP_S: Final = 60.0
AHEAD_S: Final = 600.0
AGAIN_S: Final = 3600.0

_log = structlog.get_logger("adapter.images")


class Store(Protocol):
    """A runtime that has images. Calls block; RuntimeFault."""

    @property
    def changes(self) -> int:
        """Goes up with each that what is told may differ by."""
        ...

    def stock(self) -> Stock:
        """What is on the host now."""
        ...

    def found(self) -> list[tuple[str, list[str]]]:
        """(lease, documents) of images that were read since the last call."""
        ...

    def evict(self, rule: Shelving) -> list[str]:
        """Remove what *rule* lets go."""
        ...

    def fetch(self, rule: Shelving) -> str:
        """Bring one popular image that is not here; its name, or "" where none is wanted."""
        ...


class Stocktaking:
    """One per daemon that has a store. *busy*: a lease is being started, which needs the line."""

    def __init__(
        self, link: Market, store: Store, rule: Shelving, busy: Callable[[], bool]
    ) -> None:
        self._link, self._store, self._rule, self._busy = link, store, rule, busy
        self._told: Stock | None = None
        self._seen = -1
        self.latest: Stock | None = None
        self._next: dict[str, float] = {}

    def status(self) -> dict[str, Any]:
        """For ``tally adapter status``."""
        now = self.latest
        if now is None:
            return {}
        return {
            "images": now.images, "images_mib": now.mib, "start_ms": now.start_ms,
            "pull_ms": now.pull_ms, "pull_bytes_s": now.bytes_s,
        }  # fmt: skip

    async def run(self) -> None:
        """Until cancelled; what fails is logged, and tried again at its next time."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._forever, self.step)
            group.start_soon(self._forever, self.ahead)  # a long pull holds up nothing that is told

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except RuntimeFault as fault:
                _log.warning("images", code=fault.code, cause=fault.message)
            except TallyError as error:
                _log.info("images", error=error.line())
            await anyio.sleep(STEP_S)

    async def step(self) -> None:
        """What is due now: telling, and removing. RuntimeFault."""
        if self._store.changes != self._seen or self._is_due("look", LOOK_S):
            await self._look()
        if self._is_due("keep", KEEP_S):
            gone = await anyio.to_thread.run_sync(self._store.evict, self._rule)
            if gone:
                _log.info("images dropped", images=gone)

    async def ahead(self) -> None:
        """Fetch one popular image, if it is time for that. RuntimeFault."""
        if not self._rule.ahead or self._busy() or not self._is_due("ahead", AHEAD_S):
            return
        name = await anyio.to_thread.run_sync(self._store.fetch, self._rule)
        if name:
            _log.info("image fetched ahead", image=name)
            self._next["ahead"] = 0.0  # perhaps one more

    async def _look(self) -> None:
        self._seen = self._store.changes
        self.latest = now = await anyio.to_thread.run_sync(self._store.stock)
        if not self._link.up:
            return  # told once it is
        for lease, documents in self._store.found():
            self._link.send(wire.ManifestTold(lease, documents))
        if self._told is None or differs(self._told, now) or self._is_due("again", AGAIN_S):
            self._told = now
            self._link.send(wire.StockTold(now.held, now.start_ms, now.pull_ms, now.bytes_s))
            self._next["again"] = anyio.current_time() + AGAIN_S

    def _is_due(self, what: str, every: float) -> bool:
        now = anyio.current_time()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every
        return True


def differs(told: Stock, now: Stock) -> bool:
    """Whether the market is to hear of it."""
    pairs = (
        (told.start_ms, now.start_ms), (told.pull_ms, now.pull_ms), (told.bytes_s, now.bytes_s),
    )  # fmt: skip
    return told.held != now.held or any(abs(a - b) * 10 > max(a, b) for a, b in pairs)
