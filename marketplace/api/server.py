"""How this market's HTTP server treats its clients: uvicorn, with patience that ends.

uvicorn waits for ever for the head of a request. Here a connection that has not sent a whole head
within :data:`HEAD_SECONDS` is closed, the first request's as well as a later one's; bodies have
deadlines of their own (``limits.Bodies``), websockets are pinged and prove themselves or go; until
they have, only small frames are taken of them.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from marketplace.domain import cbor

HEAD_SECONDS: float = 20
PROVING: Final = ("/v1/provider", "/v1/payer")  # where a websocket has to prove a key
MOST_PIECES: Final = 1_024  # of one message: empty ones count for no size
MOST_UNREAD: Final = 1 << 20  # bytes of answers to pings that a client does not read
HEAD_BYTES: Final = 64 * 1024
PING_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 30


class Patient(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for each request's head."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] (as uvicorn itself types it)
        self, transport: asyncio.Transport
    ) -> None:
        """A head is awaited from here on."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """The deadline ends with the head, and begins again with the first byte of the next."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_is_here()
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        """What was pipelined is looked at; a connection without a word is the keep-alive's affair."""
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:
            self._head_is_here()
        elif self.conn.trailing_data[0] and self._head is None:
            self._await_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is the websocket's connection."""
        self._head_is_here()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is awaited any more."""
        self._head_is_here()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _head_is_here(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.abort()  # a polite close would wait for a client that reads nothing


class Proving(WebSocketsSansIOProtocol):
    """uvicorn's websocket that takes frames of :data:`cbor.HELLO` size until ``state["proven"]`` is
    called, where a key has to be proven: nothing larger is read from the network before."""

    def handle_connect(self, event: Request) -> None:
        """The size is set before the first frame."""
        super().handle_connect(event)
        if self.handshake_complete or self.scope["path"] not in PROVING:
            return  # refused already, or an account's own stream
        self.conn.max_message_size = cbor.HELLO.length
        self.scope.setdefault("state", {})["proven"] = self._proven

    def _proven(self) -> None:
        self.conn.max_message_size = self.config.ws_max_size

    def handle_cont(self, event: Frame) -> None:
        """A message in countless pieces is none."""
        if len(self.frames) >= MOST_PIECES:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "too many pieces")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answered as long as the answers are read."""
        if self.transport.get_write_buffer_size() > MOST_UNREAD:
            self.transport.abort()
            return
        super().handle_ping()


def listener(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; port 0 takes a free one.

    Their answers leave at once (TCP_NODELAY, inherited by what is accepted): an answer is written in
    two parts, and otherwise the second waits for the client's delayed acknowledgement, 40 ms. asyncio
    sets it by itself only on a socket that names its protocol, which those of ``create_server`` do not.
    """
    made = socket.create_server((host, port), reuse_port=False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """The settings of every server of this market; *more* replaces some of them."""
    settings: dict[str, Any] = {
        "http": Patient,
        "ws": Proving,
        "log_level": "warning",
        "access_log": False,
        "ws_max_size": cbor.FRAME.length,
        "ws_ping_interval": PING_SECONDS,
        "ws_ping_timeout": PING_SECONDS,
        "ws_per_message_deflate": False,  # hashes and signatures: nothing to gain, much to compute
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": 3,
        "lifespan": "off",
        "h11_max_incomplete_event_size": HEAD_BYTES,
    }
    return uvicorn.Config(app, **(settings | more))
