"""The sockets of adapters and payers: frames in and out, one numbering a client, acknowledgement
only after the effect is durable. What the messages mean is the service's affair.

Ticks are handled alongside one another, since each waits for a commit that it shares with others;
every other message waits until all before it have had their effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Backlog, HelloRefused, Numbering, Server
from marketplace.hub.pace import EACH, Pace
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Sent
from marketplace.market.context import Market

log = structlog.get_logger("hub")
HELLO_SECONDS: float = 15
REJECT_SECONDS: Final = 5
QUEUE: Final = 2_000
ALONGSIDE: Final = (wire.ReceiptSent, wire.VoucherSent, wire.HopPaid, wire.PaidSent)
AT_ONCE: Final = 100  # of one client
LAST_SECONDS: Final = 10  # for what is being handled when its socket is over
_ACK: Final = b""  # in the queue of frames: an acknowledgement, as it stands when it is written
FAULT_TRIES: Final = 6
KEPT: int = 20_000  # numberings of clients that may come back; anybody can make up keys


class Socket(Protocol):
    """One websocket with binary frames; both raise :class:`Closed` when it is over."""

    async def receive(self) -> bytes:
        """The next frame."""
        ...

    async def send(self, frame: bytes) -> None:
        """Write one frame."""
        ...

    def proven(self) -> None:
        """Its client has proven a key: frames of full size are taken from here on."""
        ...

    async def close(self) -> None:
        """Close it; nothing if it is closed."""
        ...


class Closed(Exception):
    """The socket is over."""


Handler = Callable[["Connection", wire.Message], Awaitable[None]]


@dataclass(eq=False)
class Connection:
    """One client's live socket: its conversation and what waits to be written."""

    server: Server
    socket: Socket
    address: str = ""
    ticked: bool = False  # on a channel that money moves over: no stranger
    said: int = 0  # messages that were queued for it
    outgoing: Any = None  # anyio memory object stream of frames
    owed: dict[int, str] = field(default_factory=dict[int, str])  # seq → outbox id
    seen: set[str] = field(default_factory=set[str])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    over: bool = False  # its client is here again: nothing more is taken from this one
    room: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))
    under_way: int = 0  # messages that are being handled
    idle: anyio.Event = field(default_factory=anyio.Event)
    ack_waits: bool = False

    @property
    def key(self) -> bytes:
        """Who it is: the Ed25519 key of its hello."""
        assert self.server.hello is not None
        return self.server.hello.key

    def put(self, message: wire.Message, outbox: str = "") -> None:
        """Number it and queue it for writing; Backlog when the other side never answers."""
        if outbox:
            if outbox in self.seen:
                return
            self.seen.add(outbox)
        frame = self.server.send(message)
        self.said += 1
        if outbox:
            assert self.server.numbering is not None
            self.owed[self.server.numbering.sent] = outbox
        self.write(frame)

    def write(self, frame: bytes) -> None:
        """Queue one frame; a client that does not read is cut off, its numbering is kept."""
        try:
            self.outgoing.send_nowait(frame)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.extra["slow"] = True

    def handled(self, seq: int) -> None:
        """Message *seq* of the client has had its effect: it is acknowledged as soon as all before
        it are, together with what else is by then."""
        assert self.server.numbering is not None
        self.server.numbering.finish(seq)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Queue one acknowledgement, if none waits."""
        if not self.ack_waits:
            self.ack_waits = True
            self.write(_ACK)

    def frame(self, queued: bytes) -> bytes:
        """What is written for a queued frame."""
        if queued != _ACK:
            return queued
        self.ack_waits = False
        return self.server.acknowledgement()

    def begun(self) -> None:
        """One more message is being handled."""
        if not self.under_way:
            self.idle = anyio.Event()
        self.under_way += 1

    def ended(self, count: int = 1) -> None:
        """And no longer."""
        self.under_way -= count
        if not self.under_way:
            self.idle.set()

    async def quiet(self) -> None:
        """Until nothing of it is being handled."""
        while self.under_way:
            await self.idle.wait()

    def acked(self, seq: int) -> list[str]:
        """The outbox ids that are done."""
        done = [s for s in self.owed if s <= seq]
        return [self.owed.pop(s) for s in done]


class Hub:
    """All live connections of one role in this process."""

    def __init__(self, market: Market, role: str, handler: Handler) -> None:
        self.market, self.role, self.handler = market, role, handler
        self.numberings: dict[tuple[bytes, bytes], Numbering] = {}
        self.sessions: dict[bytes, bytes] = {}
        self.live: dict[bytes, Connection] = {}
        self.opened: Callable[[Connection], Awaitable[None]] | None = None
        self.closed: Callable[[Connection], Awaitable[None]] | None = None
        self.pace = Pace()

    async def serve(self, socket: Socket, address: str = "") -> None:
        """One connection from its hello to its end; *address* is its client's on the network."""
        market = self.market
        server = Server(
            market.settings.magic, market.ids.secret(32), b"", self.numberings, market.names
        )
        connection = Connection(server, socket, address)
        try:
            await self._greet(connection)
        except (Refusal, TimeoutError) as refused:
            self._unproven(server)
            await self._reject(socket, refused)
            return
        except Closed:
            self._unproven(server)
            return
        old = self.live.get(connection.key)
        if old is not None:
            await old.socket.close()
        self.live[connection.key] = connection
        try:
            await self._converse(connection)
        finally:
            connection.ended(connection.under_way)  # what was cancelled before it began
            if self.live.get(connection.key) is connection:
                del self.live[connection.key]
                if self.closed is not None:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                        await self.closed(connection)
                self._forget()

    def _unproven(self, server: Server) -> None:
        """Nothing is kept of a key that somebody only named."""
        key = server.hello.key if server.hello is not None else b""
        if not any(name[0] == key for name in self.numberings):
            self.sessions.pop(key, None)

    def _forget(self) -> None:
        """The oldest numberings beyond :data:`KEPT`: such a client counts anew when it comes
        back.
        """
        surplus = len(self.numberings) - KEPT
        if surplus > 0:
            away = [name for name in self.numberings if name[0] not in self.live]
            for name in away[:surplus]:
                del self.numberings[name]
                self.sessions.pop(name[0], None)

    async def _greet(self, connection: Connection) -> None:
        server, socket = connection.server, connection.socket
        with anyio.fail_after(HELLO_SECONDS):
            for _ in range(2):
                frame = await socket.receive()
                if server.hello is not None:
                    server.session = self._session(server.hello.key)
                frames, _ = server.receive(frame, self.market.now)
                if server.hello is not None and server.hello.role != self.role:
                    raise HelloRefused(f"this address is for the role {self.role}")
                if server.numbering is not None:
                    await self._take_over(server)
                    socket.proven()
                for answer in frames:
                    await socket.send(answer)

    async def _take_over(self, server: Server) -> None:
        """What an older connection of this client took is done first: nothing is handled twice at
        once.
        """
        assert server.hello is not None
        old = self.live.get(server.hello.key)
        if old is None:
            return
        old.over = True
        await old.quiet()
        if self.numberings.get((server.hello.key, server.hello.session)) is not server.numbering:
            raise HelloRefused("what was said last could not be handled: say it again")

    def _session(self, key: bytes) -> bytes:
        """The market's session towards one client: a new one means that numbers start anew."""
        if key not in self.sessions:
            self.sessions[key] = self.market.ids.secret(16)
        return self.sessions[key]

    async def _converse(self, connection: Connection) -> None:
        send, receive = anyio.create_memory_object_stream[bytes](QUEUE)
        connection.outgoing = send
        with send, receive:
            await self._both_ways(connection, receive)

    async def _both_ways(self, connection: Connection, receive: Any) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, connection, receive, tasks.cancel_scope)
            try:
                if self.opened is not None:
                    await self.opened(connection)
                await self._read(connection, tasks)
            except Closed:
                with anyio.move_on_after(LAST_SECONDS):
                    await connection.quiet()
            except Refusal as refused:
                log.warning("connection", role=self.role, error=refused.line())
                await self._reject(connection.socket, refused)
            tasks.cancel_scope.cancel()

    async def _write(self, connection: Connection, frames: Any, scope: anyio.CancelScope) -> None:
        try:
            async for queued in frames:
                with anyio.fail_after(30):
                    await connection.socket.send(connection.frame(queued))
                if connection.extra.get("slow"):
                    break
        except (Closed, TimeoutError):
            pass
        await connection.socket.close()
        scope.cancel()

    async def _read(self, connection: Connection, tasks: TaskGroup) -> None:
        server = connection.server
        while True:
            frame = await connection.socket.receive()
            if not connection.ticked:
                wait = self.pace.spend(connection.address, len(frame), anyio.current_time())
                if wait:
                    await anyio.sleep(wait)
            if connection.over:
                raise Closed
            frames, message = server.receive(frame, self.market.now)
            for answer in frames:
                connection.write(answer)
            if message is None:
                await self._maybe_acked(connection, frame)
                continue
            assert server.numbering is not None
            seq = server.numbering.received
            if isinstance(message, ALONGSIDE):
                connection.begun()
                await connection.room.acquire()
                tasks.start_soon(self._alongside, connection, message, seq, tasks.cancel_scope)
            else:
                await connection.quiet()
                connection.begun()
                await self._effect(connection, message, seq)

    async def _alongside(
        self, connection: Connection, message: wire.Message, seq: int, scope: anyio.CancelScope
    ) -> None:
        try:
            await self._effect(connection, message, seq)
        except Closed:
            await connection.socket.close()
            scope.cancel()
        finally:
            connection.room.release()

    async def _effect(self, connection: Connection, message: wire.Message, seq: int) -> None:
        said = connection.said
        try:
            await self._handle(connection, message)
            connection.handled(seq)
        finally:
            connection.ended()
            if not connection.ticked:  # one frame may ask for a thousand answers
                answers = EACH * (connection.said - said)
                self.pace.owe(connection.address, answers, anyio.current_time())

    async def _maybe_acked(self, connection: Connection, frame: bytes) -> None:
        """Delivered outbox messages leave the outbox."""
        told = codec.from_bytes(frame)
        if isinstance(told, wire.Ack):
            done = connection.acked(told.seq)
            if done:
                drops = [Sent(outbox, "", b"", 0) for outbox in done]
                await self.market.store.apply(Change(drops=[*drops]))
                connection.seen.difference_update(done)
        else:
            connection.acknowledge()

    async def _handle(self, connection: Connection, message: wire.Message) -> None:
        """A refusal goes back; a fault is tried again, and in the end the numbering is given up."""
        for attempt in range(FAULT_TRIES):
            try:
                await self.handler(connection, message)
                connection.ticked = connection.ticked or self.market.paying.counts(
                    _channel(message)
                )
                return
            except Refusal as no:
                kind = type(message).__name__
                log.warning("refused", role=self.role, kind=kind, error=no.line())
                lease = str(getattr(message, "lease", ""))
                text = f"{kind} {lease}: {no.message}"[:1000]
                connection.put(wire.Rejected(no.code, text, no.remedy))
                return
            except Fault as fault:
                log.error("fault", role=self.role, error=fault.line(), attempt=attempt)
                await anyio.sleep(min(0.2 * 2**attempt, 5))
        # Never acknowledged, so the client still has it: a new session makes it say it again.
        self.sessions.pop(connection.key, None)
        for name in [n for n in self.numberings if n[0] == connection.key]:
            del self.numberings[name]
        raise Closed

    async def _reject(self, socket: Socket, error: Exception) -> None:
        refused = error if isinstance(error, Refusal) else HelloRefused("no hello in time")
        answer = wire.Rejected(refused.code, str(refused)[:1000], refused.remedy)
        try:
            with anyio.move_on_after(REJECT_SECONDS):  # for a client that reads nothing
                await socket.send(codec.to_bytes(answer))
        except Closed:
            return
        await socket.close()

    def tell(self, key: bytes, message: wire.Message, outbox: str = "") -> bool:
        """Send if it is connected here; False if not."""
        connection = self.live.get(key)
        if connection is None:
            return False
        try:
            connection.put(message, outbox)
        except Backlog as full:
            log.error("backlog", role=self.role, error=full.line())
            return False
        return True


def _channel(message: wire.Message) -> bytes:
    """Whose tick it is; empty for all else."""
    match message:
        case wire.ReceiptSent(_, signed):
            return signed.receipt.session_vk
        case wire.VoucherSent(_, voucher) | wire.HopPaid(voucher=voucher):
            return voucher.session_vk
        case _:
            return b""
