"""A byte stream to a port of a workload, through its adapter's socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import anyio

from marketplace.domain.protocol import codec, wire
from marketplace.hub.adapters import AdapterHub
from marketplace.hub.streams import Stream
from marketplace.market.base.errors import Offline, Unreached

CHUNK: Final = 64 * 1024
PATIENCE_S: Final = 60


@dataclass(frozen=True)
class Seat:
    """At a terminal in the workload, where *command* runs, with a screen of that size."""

    command: tuple[str, ...]
    rows: int
    columns: int


class Tunnel:
    """``async with Tunnel(hub, provider, lease, port) as tunnel``, or a :class:`Seat` for the port;
    Offline when it cannot open.
    """

    def __init__(self, hub: AdapterHub, provider: str, lease: str, to: int | Seat) -> None:
        self.hub, self.provider, self.lease = hub, provider, lease
        self.port, self._seat = (0, to) if isinstance(to, Seat) else (to, None)
        self._id = hub.market.ids.new("stream")
        self._stream = Stream(lease, provider, hub.able(provider, codec.FLOW))
        self._turn = anyio.Lock(fast_acquire=True)

    @property
    def error(self) -> str:
        """Why it is over; empty for an ordinary end. In part a stranger's words."""
        return self._stream.error

    @property
    def silent(self) -> bool:
        """It is open, and all that the workload said is read."""
        return not self._stream.over and not self._stream.unread

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """One of the requests that a lease may have at a time, which is waited for: what came at
        once is answered one after the other, not refused. Offline where that takes too long.
        """
        slot = self.hub.streams.slot(self.lease)
        with anyio.move_on_after(PATIENCE_S) as waiting:
            await slot.acquire()
        if waiting.cancelled_caught:
            raise Offline("the workload answers too slowly for all that ask")
        try:
            yield
        finally:
            slot.release()

    def open(self) -> None:
        """Have the adapter connect; :class:`Unreached`."""
        self.hub.streams.live[self._id] = self._stream
        key, seat = (self.lease, self._id), self._seat
        asked = (
            wire.StreamOpened(*key, self.port)
            if seat is None
            else wire.ShellOpened(*key, list(seat.command), seat.rows, seat.columns)
        )
        if not self.hub.tell(self.provider, asked):
            self.hub.streams.live.pop(self._id, None)
            self._stream.end()
            raise Unreached("the provider is not connected to this market process")

    def resize(self, rows: int, columns: int) -> None:
        """The screen of a seat has another size."""
        self.hub.tell(self.provider, wire.ShellSized(self.lease, self._id, rows, columns))

    def hang_up(self) -> None:
        """Close it; nothing if it is closed."""
        if self.hub.streams.live.pop(self._id, None) is not None:
            self.hub.tell(self.provider, wire.StreamClosed(self.lease, self._id, ""))
        self._stream.end()

    async def __aenter__(self) -> Tunnel:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()

    async def send(self, data: bytes) -> None:
        """To the workload, as fast as it reads; Offline when the adapter is gone, or nothing is
        taken for too long. Several may send at a time: what each sends stays in one piece.
        """
        async with self._turn:
            for at in range(0, len(data), CHUNK):
                await self._room()
                part = data[at : at + CHUNK]
                self._stream.sending.gave(part)
                if not self.hub.tell(self.provider, wire.StreamData(self.lease, self._id, part)):
                    raise Offline("the provider went away")

    async def _room(self) -> None:
        """Until the workload has taken what was sent, as far as may wait for it, and the adapter's
        line is free: vouchers go the same way.
        """
        with anyio.move_on_after(PATIENCE_S):
            # Acknowledgements come by the hundred: a look now and then costs less than an event
            # each.
            while self._full or self.hub.crowded(self.provider):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            return
        raise Offline("the workload takes nothing any more")

    @property
    def _full(self) -> bool:
        return self._stream.flows and not self._stream.sending.room and not self._stream.over

    async def receive(self) -> bytes:
        """From the workload; empty once it is over."""
        data, taken = await self._stream.get()
        if taken is not None:
            self.hub.tell(self.provider, wire.StreamTaken(self.lease, self._id, taken))
        return data
