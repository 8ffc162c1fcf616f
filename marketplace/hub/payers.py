"""Payers' sockets: each speaks for the channels whose session key signed its subscription."""

from __future__ import annotations

from typing import Final

import anyio
import structlog

from marketplace.domain.errors import Forbidden, NotFound, TallyError, Unauthenticated
from marketplace.domain.keys import verifies
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.conversation import subscribe_message
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.hub.sockets import Connection, Hub
from marketplace.market.base.records import Lease
from marketplace.market.context import Market
from marketplace.market.core.inputs import Stop
from marketplace.market.leases import hops, ticks
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.money import settle

log = structlog.get_logger("hub")
AGAIN_S: Final = 1.0
MOST_CHANNELS: Final = 10_000  # a session key is anybody's to make up


class PayerHub:
    """``Payers`` of the service."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.hub = Hub(market, "payer", self._message)
        self.hub.closed = self._closed
        self.by_channel: dict[bytes, set[Connection]] = {}
        self.wanted: set[bytes] = set()
        self.event = anyio.Event()
        market.bus.on("channel:", self._wake, remote_only=True)

    def tell(self, session_vk: bytes, message: wire.Message) -> bool:
        """To every payer that speaks for this channel; False when none is here."""
        heard = False
        if isinstance(message, wire.PaidSent):
            self.market.told.note(message.lease, message.amount, self.market.now)
        for connection in list(self.by_channel.get(session_vk, ())):
            if isinstance(message, wire.ReceiptSent):
                _note(connection, session_vk, message.receipt.receipt.seq)
            heard = self.hub.tell(connection.key, message) or heard
        return heard

    def _wake(self, topic: str) -> None:
        session_vk = bytes.fromhex(topic.partition(":")[2])
        if session_vk in self.by_channel:
            self.wanted.add(session_vk)
            self.event.set()

    async def deliver(self) -> None:
        """Run for ever: receipts that other processes stored for payers that are connected here."""
        while True:
            with anyio.move_on_after(5):
                await self.event.wait()
            wanted, self.wanted, self.event = self.wanted, set(), anyio.Event()
            for session_vk in wanted:
                try:
                    await self._catch_up(session_vk)
                except TallyError as error:  # the store is away: they are looked for again
                    log.warning("catch_up", error=error.line())
                    self.wanted.add(session_vk)
                    await anyio.sleep(AGAIN_S)
            if self.wanted:
                self.event.set()

    async def _catch_up(self, session_vk: bytes) -> None:
        latest = await ticks.unanswered(self.market, session_vk)
        for connection in list(self.by_channel.get(session_vk, ())):
            told = connection.extra.setdefault("told", {})
            for record in latest:
                if told.get(session_vk, 0) < record.seq:
                    _note(connection, session_vk, record.seq)
                    message = wire.ReceiptSent(record.lease, record.signed)
                    self.hub.tell(connection.key, message)

    async def _closed(self, connection: Connection) -> None:
        for session_vk in _channels_of(connection):
            speaking = self.by_channel.get(session_vk, set())
            speaking.discard(connection)
            if not speaking:
                self.by_channel.pop(session_vk, None)

    async def _message(self, connection: Connection, message: wire.Message) -> None:
        match message:
            case wire.Subscribe(session_vk, signature):
                await self._subscribe(connection, session_vk, signature)
            case wire.VoucherSent(lease, voucher):
                self._speaks(connection, voucher.session_vk)
                await ticks.take_voucher(self.market, lease, voucher)
                if self.market.book.may_be_over(voucher.session_vk, lease):
                    await settle.end_if_settled(self.market, lease)
            case wire.HopPaid():
                self._speaks(connection, message.voucher.session_vk)
                await hops.take_payment(self.market, message)
            case wire.EndSent(end):
                end.verify()
                if not await hops.take_end(self.market, end):
                    await ticks.take_end(self.market, end)
            case wire.KeepSent(keep):
                keep.verify()
                await ticks.take_keep(self.market, keep)
            case wire.StopAsked(lease, reason):
                await self._stop(connection, lease, reason)
            case _:
                raise NotFound(f"{type(message).__name__} is not for a payer to send")

    async def _subscribe(self, connection: Connection, session_vk: bytes, signature: bytes) -> None:
        server = connection.server
        assert server.hello is not None
        message = subscribe_message(server.nonce, server.hello.market, session_vk)
        if not verifies(session_vk, message, signature):
            raise Unauthenticated("the subscription is not signed by the channel's session key")
        spoken_for = _channels_of(connection)
        if len(spoken_for) >= MOST_CHANNELS and session_vk not in spoken_for:
            raise Forbidden(f"one connection speaks for at most {MOST_CHANNELS} channels")
        spoken_for.add(session_vk)
        self.by_channel.setdefault(session_vk, set()).add(connection)
        connection.put(wire.Subscribed(session_vk))
        connection.extra.setdefault("told", {}).pop(session_vk, None)
        for again in hops.at_subscription(self.market, session_vk):
            connection.put(again)
        await self._resumed(connection, session_vk)
        await self._catch_up(session_vk)

    async def _resumed(self, connection: Connection, session_vk: bytes) -> None:
        """Which of its leases go on: a payer that was away when it was told would count a pause
        still.
        """
        active = LeaseState.ACTIVE
        for lease in await self.market.store.find(Lease, session_vk=session_vk, state=active):
            if lease.stage == "RESUMED":
                connection.put(wire.LeaseProgress(lease.id, lease.stage, self.market.now, {}))

    def _speaks(self, connection: Connection, session_vk: bytes) -> None:
        if connection not in self.by_channel.get(session_vk, ()):
            raise Forbidden("subscribe to the channel first")

    async def _stop(self, connection: Connection, lease_id: str, reason: str) -> None:
        lease = await self.market.store.get(Lease, lease_id)
        if lease is None:
            raise NotFound(f"no lease {lease_id}")
        self._speaks(connection, lease.session_vk)
        why = reason if reason in {r.value for r in EndReason} else EndReason.CANCELLED
        await change_lease(self.market, lease_id, Stop(why))


def _note(connection: Connection, session_vk: bytes, seq: int) -> None:
    told = connection.extra.setdefault("told", {})
    told[session_vk] = max(told.get(session_vk, 0), seq)


def _channels_of(connection: Connection) -> set[bytes]:
    """The channels that this connection speaks for."""
    channels: set[bytes] = connection.extra.setdefault("channels", set[bytes]())
    return channels
