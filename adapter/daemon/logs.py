"""What workloads print, on its way to the market."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import anyio

from adapter.core.events import Event
from adapter.core.state import Lease
from adapter.daemon.ports import Market
from adapter.daemon.rounds import PERIOD_MS
from adapter.daemon.transfers import Transfers, logged


class Logs:
    """*leases* are those of now; *handle* takes what was sent of a lease's log."""

    def __init__(
        self,
        link: Market,
        shipping: Transfers,
        leases: Callable[[], Iterable[Lease]],
        handle: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._link = link
        self._shipping = shipping
        self._leases = leases
        self._handle = handle

    async def run(self) -> None:
        """Every second what is new, of each lease by itself: a flood delays its own log alone."""
        under_way: set[str] = set()

        async def ship(lease: Lease) -> None:
            try:
                await self.ship(lease)
            finally:
                under_way.discard(lease.id)

        async with anyio.create_task_group() as group:
            while True:
                for lease in list(self._leases()):
                    if lease.runs and self._link.up and lease.id not in under_way:
                        under_way.add(lease.id)
                        group.start_soon(ship, lease)
                await anyio.sleep(PERIOD_MS / 1000)

    async def ship(self, lease: Lease) -> None:
        """What is new of one lease's log."""
        event = logged(lease, await self._shipping.pump(lease, lease.log_offset))
        if event is not None:
            await self._handle(event)
