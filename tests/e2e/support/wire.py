"""A door between two processes that can be shut, or shut in the face of one message.

A TCP proxy on loopback. A websocket's frames are read on their way (never changed), so that a test
can say *hold the first receipt*: what the sender has made durable stays unacknowledged, for as long
as the test likes. Of plain HTTP the answer to one kind of request can be held in the same way.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from marketplace.domain.protocol import codec, wire

Message = wire.Message
Holds = Callable[[bool, Message], bool]
"""(is it on its way to the server?, the message) → hold it, and all that comes after it?"""


@dataclass
class Door:
    """Open at first. ``url`` is what a client is given instead of the server's."""

    target: int
    port: int = 0
    shut: bool = False
    holds: Holds | None = None
    holds_answer_to: bytes | None = None
    held: anyio.Event = field(default_factory=anyio.Event)
    passed: list[str] = field(default_factory=list)
    _open: set[anyio.abc.SocketStream] = field(default_factory=set)

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def hold(self, holds: Holds) -> None:
        """From now on; ``held`` is set when it happened."""
        self.held, self.holds = anyio.Event(), holds

    def hold_answer(self, start_of_request: bytes) -> None:
        """Let such a request through, and keep the server's answer to it."""
        self.held, self.holds_answer_to = anyio.Event(), start_of_request

    async def cut(self, *, shut: bool) -> None:
        """End every connection; *shut*: and let nobody in until ``shut`` is False again."""
        self.shut, self.holds, self.holds_answer_to = shut, None, None
        for stream in list(self._open):
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await stream.aclose()

    async def serve(self, client: anyio.abc.SocketStream) -> None:
        if self.shut:
            await client.aclose()
            return
        try:
            server = await anyio.connect_tcp("127.0.0.1", self.target)
        except OSError:
            await client.aclose()
            return
        self._open |= {client, server}
        try:
            async with client, server, anyio.create_task_group() as tasks:
                connection = _Connection(self, client, server)

                async def one_way(pump: Callable[[], object]) -> None:
                    with suppress(
                        anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError,
                        anyio.ClosedResourceError, OSError,
                    ):  # fmt: skip
                        await pump()  # type: ignore[misc]
                    tasks.cancel_scope.cancel()

                tasks.start_soon(one_way, connection.upwards)
                tasks.start_soon(one_way, connection.downwards)
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass
        finally:
            self._open -= {client, server}


@dataclass
class _Connection:
    """One connection through the door."""

    door: Door
    client: anyio.abc.SocketStream
    server: anyio.abc.SocketStream
    awaited: bool = False
    talking: anyio.Event = field(default_factory=anyio.Event)

    async def upwards(self) -> None:
        source = BufferedByteReceiveStream(self.client)
        head = await source.receive_until(b"\r\n\r\n", 1 << 16) + b"\r\n\r\n"
        self._note(head)
        if b"upgrade: websocket" in head.lower():
            # without its compression, so that frames can be read
            head = re.sub(rb"(?i)sec-websocket-extensions:[^\r]*\r\n", b"", head)
            await self.server.send(head)
            self.talking.set()
            await self._frames(source, self.server, True)
            return
        await self.server.send(head)
        while True:
            chunk = await source.receive()
            self._note(chunk)
            await self.server.send(chunk)

    def _note(self, chunk: bytes) -> None:
        wanted = self.door.holds_answer_to
        if wanted is not None and chunk.startswith(wanted):
            self.awaited = True

    async def downwards(self) -> None:
        source = BufferedByteReceiveStream(self.server)
        head = await source.receive_until(b"\r\n\r\n", 1 << 16) + b"\r\n\r\n"
        if self.awaited:
            await self._keep()
        await self.client.send(head)
        if self.talking.is_set():
            await self._frames(source, self.client, False)
            return
        while True:
            chunk = await source.receive()
            if self.awaited:
                await self._keep()
            await self.client.send(chunk)

    async def _keep(self) -> None:
        self.door.held.set()
        await anyio.sleep_forever()

    async def _frames(
        self, source: BufferedByteReceiveStream, to: anyio.abc.SocketStream, up: bool
    ) -> None:
        while True:
            raw, opcode, payload = await _frame(source)
            message = _message(payload) if opcode == 2 else None
            if message is not None:
                if self.door.holds is not None and self.door.holds(up, message):
                    await self._keep()
                self.door.passed.append(("↑" if up else "↓") + type(message).__name__)
            await to.send(raw)


async def _frame(source: BufferedByteReceiveStream) -> tuple[bytes, int, bytes]:
    """(the bytes as they came, opcode, payload) of one websocket frame (RFC 6455, section 5.2)."""
    raw = await source.receive_exactly(2)
    opcode, size = raw[0] & 0x0F, raw[1] & 0x7F
    if size >= 126:
        more = await source.receive_exactly(2 if size == 126 else 8)
        raw, size = raw + more, int.from_bytes(more)
    mask = b""
    if raw[1] & 0x80:
        mask = await source.receive_exactly(4)
    body = await source.receive_exactly(size) if size else b""
    plain = bytes(b ^ mask[i % 4] for i, b in enumerate(body)) if mask else body
    return raw + mask + body, opcode, plain


def _message(payload: bytes) -> Message | None:
    """What a frame says; the payload of a numbered one. None for a part of a larger one."""
    with suppress(Exception):
        message = codec.from_bytes(payload)
        return codec.from_bytes(message.payload) if isinstance(message, wire.Data) else message
    return None


_KEPT: list[socket.socket] = []
_PORTS: list[int] = []


def keep_ports(count: int) -> list[str]:
    """Addresses at which the next doors will stand: a market must be told by which it is
    dialled. They stay bound, so that nobody else is given one; who does not listen takes no call.
    """
    while _KEPT:
        _KEPT.pop().close()
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        _KEPT.append(one)
    _PORTS[:] = [one.getsockname()[1] for one in _KEPT]
    return [f"http://127.0.0.1:{port}" for port in _PORTS]


@asynccontextmanager
async def door(target: str) -> AsyncGenerator[Door]:
    """A door to the port of the URL *target*."""
    port = _PORTS.pop(0) if _PORTS else 0
    listener = await anyio.create_tcp_listener(
        local_host="127.0.0.1", local_port=port, reuse_port=True
    )
    made = Door(int(target.split("://")[1].split("/")[0].rsplit(":", 1)[1]))
    made.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.serve)
        yield made
        tasks.cancel_scope.cancel()
