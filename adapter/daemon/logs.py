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
    """*leases* are those of now, *lease* one of them; *handle* takes what was sent of its log."""

    def __init__(
        self,
        link: Market,
        shipping: Transfers,
        leases: Callable[[], Iterable[Lease]],
        lease: Callable[[str], Lease | None],
        handle: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._link = link
        self._shipping = shipping
        self._leases = leases
        self._lease = lease
        self._handle = handle
        self._under_way: dict[str, anyio.Event] = {}  # leases whose log is being sent; its end
        self._whole: set[str] = set()  # leases that print no more, and all they did was sent

    async def run(self) -> None:
        """Every second what is new, of each lease by itself: a flood delays its own log alone. What
        a workload printed last is sent later where the line was down, or crowded, as it ended.
        """
        async with anyio.create_task_group() as group:
            while True:
                leases = list(self._leases())
                self._whole &= {lease.id for lease in leases}
                for lease in leases:
                    if self._link.up and not {lease.id} & (self._under_way.keys() | self._whole):
                        group.start_soon(self.ship, lease.id)
                await anyio.sleep(PERIOD_MS / 1000)

    async def ship(self, name: str) -> None:
        """What is new of the log of lease *name*, from where the call before this one ended."""
        while (before := self._under_way.get(name)) is not None:
            await before.wait()
        over = self._under_way[name] = anyio.Event()
        try:
            lease = self._lease(name)
            if lease is not None:
                offset, whole = await self._shipping.pump(lease, lease.log_offset)
                if whole and lease.exited:
                    self._whole.add(name)
                event = logged(lease, offset)
                if event is not None:
                    await self._handle(event)
        finally:
            del self._under_way[name]
            over.set()
