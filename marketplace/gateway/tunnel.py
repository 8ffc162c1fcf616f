"""A byte stream to a port of a workload, through its adapter's socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

import anyio

from marketplace.domain.protocol import wire
from marketplace.hub.adapters import AdapterHub, Stream
from marketplace.market.base.errors import Offline

CHUNK: Final = 64 * 1024
BUFFER: Final = 256
MOST_WAITING: Final = 64  # messages on their way to an adapter before an upload waits
PATIENCE_S: Final = 60
MOST_REQUESTS: Final = (
    48  # of one lease at a time; its adapter opens 64 streams, sockets among them
)


class Tunnel:
    """``async with Tunnel(hub, provider, lease, port) as tunnel``; Offline when it cannot open."""

    def __init__(self, hub: AdapterHub, provider: str, lease: str, port: int) -> None:
        self._hub, self._provider, self._lease, self._port = hub, provider, lease, port
        self._id = hub.market.ids.new("stream")
        self._send, self._receive = anyio.create_memory_object_stream[bytes](BUFFER)
        self._stream = Stream(self._send, lease, provider)

    @property
    def error(self) -> str:
        """Why it is over; empty for an ordinary end. In part a stranger's words."""
        return self._stream.error

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """One of :data:`MOST_REQUESTS` of the lease, which is waited for: what came at once is
        answered one after the other, not refused. Offline where that takes too long.
        """
        slots = self._hub.slots
        slot = slots.get(self._lease)
        if slot is None:  # kept for as long as somebody holds it, or waits
            slot = slots[self._lease] = anyio.Semaphore(MOST_REQUESTS)
        with anyio.move_on_after(PATIENCE_S) as waiting:
            await slot.acquire()
        if waiting.cancelled_caught:
            raise Offline("the workload answers too slowly for all that ask")
        try:
            yield
        finally:
            slot.release()

    async def __aenter__(self) -> Tunnel:
        self._hub.streams[self._id] = self._stream
        if not self._hub.tell(self._provider, wire.StreamOpened(self._lease, self._id, self._port)):
            self._hub.streams.pop(self._id, None)
            self._close()
            raise Offline("the provider is not connected to this market process")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hub.streams.pop(self._id, None) is not None:
            self._hub.tell(self._provider, wire.StreamClosed(self._lease, self._id, ""))
        self._close()

    def _close(self) -> None:
        self._send.close()
        self._receive.close()

    async def room(self) -> None:
        """Wait until the adapter has taken what was sent: its line carries vouchers as well.
        Offline.
        """
        with anyio.move_on_after(PATIENCE_S):
            # Acknowledgements come by the hundred: a look now and then costs less than an event
            # each.
            while self._hub.waiting(self._provider) >= MOST_WAITING:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            return
        raise Offline("the provider takes nothing any more")

    def send(self, data: bytes) -> None:
        """To the workload; Offline when the adapter is gone."""
        for at in range(0, len(data), CHUNK):
            part = wire.StreamData(self._lease, self._id, data[at : at + CHUNK])
            if not self._hub.tell(self._provider, part):
                raise Offline("the provider went away")

    async def receive(self) -> bytes:
        """From the workload; empty once it is over."""
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""
