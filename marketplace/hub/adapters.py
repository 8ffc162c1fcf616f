"""Adapters' sockets: the outbox is delivered here, and port streams and calls find their answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import structlog

from marketplace.domain.errors import TallyError
from marketplace.domain.protocol import codec, flow, wire
from marketplace.hub.sockets import Connection, Hub
from marketplace.hub.streams import Streams
from marketplace.market.accounts.blobs import Blobs
from marketplace.market.base.errors import Offline
from marketplace.market.base.records import Channel, Lease, OfferRecord, Sent, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.leases import clusters, hops
from marketplace.market.leases.adapters import Adapters
from marketplace.market.money.ends import Ends

log = structlog.get_logger("hub")
AGAIN_S = 1.0
_OF_LEASES = ("voucher", "keep", "order")  # topics that name no adapter
MOST_WAITING = 64  # messages on their way to an adapter before an upload waits


class AdapterHub:
    """``Providers`` of the service."""

    def __init__(self, market: Market, adapters: Adapters, blobs: Blobs) -> None:
        self.market, self.adapters, self.blobs = market, adapters, blobs
        self.ends = Ends(market)
        self.hub = Hub(market, "adapter", self._message)
        self.hub.opened, self.hub.closed = self._opened, self._closed
        self.calls: dict[tuple[str, str], Any] = {}
        self.streams = Streams()
        self.wanted: set[str] = set()
        self.event = anyio.Event()
        self.welcomed: list[Callable[[Connection], Awaitable[None]]] = []
        market.bus.on("adapter:", self._wake, remote_only=True)
        market.bus.on("voucher:", self._wake, remote_only=True)
        market.bus.on("keep:", self._wake, remote_only=True)
        market.bus.on("order:", self._wake, remote_only=True)

    def connected(self, provider: str) -> bool:
        """True when its socket ends here."""
        return bytes.fromhex(provider) in self.hub.live

    def able(self, provider: str, capability: str) -> bool:
        """True when its socket ends here, and both sides have stated *capability*."""
        connection = self.hub.live.get(bytes.fromhex(provider))
        numbering = connection.server.numbering if connection is not None else None
        return numbering is not None and capability in numbering.agreed

    def tell(self, provider: str, message: wire.Message) -> bool:
        """Without the outbox; False when it is not connected here."""
        return self.hub.tell(bytes.fromhex(provider), message)

    def crowded(self, provider: str) -> bool:
        """Whether pages and uploads are to wait: its vouchers go the same way, after all that it
        has not acknowledged.
        """
        connection = self.hub.live.get(bytes.fromhex(provider))
        numbering = connection.server.numbering if connection is not None else None
        if numbering is None:
            return False
        many = len(numbering.unacked) >= MOST_WAITING
        return many or numbering.waiting_bytes >= flow.LINE_MOST

    def committed(self, sent: list[Sent]) -> None:
        """Messages that were just committed here go out at once."""
        for one in sent:
            name = one.target.removeprefix("adapter:")
            if bytes.fromhex(name) in self.hub.live:
                self._bring(name, one)

    def _bring(self, provider: str, one: Sent) -> None:
        """From the outbox; what an adapter of before could not read stays there."""
        message = codec.from_bytes(one.payload)
        if not isinstance(message, wire.RouteProposed) or self.able(provider, codec.ROUTE):
            self.hub.tell(bytes.fromhex(provider), message, one.id)

    def _wake(self, topic: str) -> None:
        kind, _, name = topic.partition(":")
        if kind in _OF_LEASES or bytes.fromhex(name) in self.hub.live:
            self.wanted.add(topic)
            self.event.set()

    async def deliver(self) -> None:
        """Run for ever: what other processes wrote for adapters that are connected here."""
        while True:
            with anyio.move_on_after(5):
                await self.event.wait()
            self.streams.sweep()
            topics, self.wanted, self.event = self.wanted, set(), anyio.Event()
            try:
                await self._deliver(topics)
            except (
                TallyError
            ) as error:  # the store is away: the outbox is kept, vouchers come again
                log.warning("deliver", error=error.line())
                self.wanted |= topics
                await anyio.sleep(AGAIN_S)
                self.event.set()

    async def _deliver(self, topics: set[str]) -> None:
        if not topics:  # what a command line wrote, or a notification that was lost
            topics = {f"adapter:{key.hex()}" for key in await self._owed()}
        for topic in sorted(topics):  # the outbox first: it may hold the lease that is ordered
            kind, _, name = topic.partition(":")
            if kind == "voucher":
                await self._voucher(bytes.fromhex(name))
            elif kind == "keep":
                await self._keep(bytes.fromhex(name))
            elif kind == "order":
                await clusters.ordered(self.market, name)
            else:
                await self._outbox(name)

    async def _owed(self) -> list[bytes]:
        if not self.hub.live:
            return []
        here = [f"adapter:{key.hex()}" for key in self.hub.live]
        found = await self.market.store.find(Sent, target=here, limit=500)
        return [bytes.fromhex(t.partition(":")[2]) for t in {one.target for one in found}]

    async def _outbox(self, provider: str) -> None:
        for one in await self.market.store.find(Sent, target=f"adapter:{provider}"):
            self._bring(provider, one)

    async def _voucher(self, session_vk: bytes) -> None:
        record = await self.market.store.get(VoucherRecord, session_vk)
        lease = await self.market.store.get(Lease, record.lease) if record is not None else None
        if record is None or lease is None:
            return
        connection = self.hub.live.get(bytes.fromhex(lease.provider))
        if connection is None:
            return
        told = connection.extra.setdefault("vouchers", {})
        if told.get(session_vk, -1) < record.cumulative:
            told[session_vk] = record.cumulative
            self.tell(lease.provider, wire.VoucherSent(record.lease, record.voucher))

    async def _keep(self, session_vk: bytes) -> None:
        channel = await self.market.store.get(Channel, session_vk)
        if channel is not None and channel.keep_signature:
            self.tell(channel.provider, wire.KeepSent(channel.keep))

    async def _opened(self, connection: Connection) -> None:
        provider = connection.key.hex()
        if self.able(provider, codec.ROUTE):  # before it is asked for leases over these hops
            for message in hops.at_welcome(self.market, provider):
                connection.put(message)
        await self._outbox(provider)
        for message in await clusters.orders(self.market, provider):
            connection.put(message)
        for listener in self.welcomed:
            await listener(connection)

    async def _closed(self, connection: Connection) -> None:
        provider = connection.key.hex()
        self.ends.gone(provider)
        await self.adapters.gone(provider)
        self.streams.gone(provider)

    async def _message(self, connection: Connection, message: wire.Message) -> None:
        provider = connection.key.hex()
        match message:
            case wire.ExecDone(_, call):
                self._answer(provider, call, message)
            case wire.StreamData(_, stream_id, data):
                stream = self.streams.of(stream_id, provider)
                if stream is not None:
                    await stream.put(data)
            case wire.StreamTaken(_, stream_id, taken):
                stream = self.streams.of(stream_id, provider)
                if stream is not None:
                    stream.sending.heard(taken)
            case wire.StreamClosed(_, stream_id, error):
                self.streams.closed(stream_id, provider, error)
            case wire.BlobWanted():
                part = await self.blobs.part(provider, message)
                connection.put(part)
            case wire.BlobPart(lease, sha256, offset):
                self._answer(provider, f"{lease}/{sha256}/{offset}", message)
            case wire.EndOffered():
                await self.ends.offered(provider, message)
            case wire.EndsSigned() | wire.EndsRefused():
                self._answer(provider, message.round, message)
            case _:
                await self.adapters.handle(provider, message)

    def _answer(self, provider: str, name: str, message: wire.Message) -> None:
        """To whoever asked this very provider; a second answer is dropped."""
        asker = self.calls.get((provider, name))
        if asker is not None:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                asker.send_nowait(message)

    async def ask(self, provider: str, name: str, message: wire.Message, seconds: float) -> Any:
        """Send *message* and wait for the answer that arrives under *name*; Offline."""
        send, receive = anyio.create_memory_object_stream[Any](1)
        self.calls[provider, name] = send
        try:
            if not self.tell(provider, message):
                raise Offline("the provider is not connected to this process")
            with anyio.move_on_after(seconds):
                return await receive.receive()
            raise Offline("the provider did not answer in time")
        finally:
            self.calls.pop((provider, name), None)
            send.close()
            receive.close()

    async def where(self, provider: str) -> str:
        """The market process that holds the provider's connection, empty when none does."""
        found = await self.market.store.find(OfferRecord, provider=provider, limit=1)
        return found[0].process if found and not found[0].away_ms else ""
