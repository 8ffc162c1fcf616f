"""How this market's HTTP server treats its clients: uvicorn, with patience that ends.

uvicorn waits for ever for the head of a request. Here a connection that has not sent a whole head
within :data:`HEAD_SECONDS` is closed, the first request's as well as a later one's; bodies have
deadlines of their own (``limits.Bodies``), websockets are pinged and prove themselves or go.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: float = 20
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
        "log_level": "warning",
        "access_log": False,
        "ws_max_size": 1 << 20,
        "ws_ping_interval": PING_SECONDS,
        "ws_ping_timeout": PING_SECONDS,
        "ws_per_message_deflate": False,  # hashes and signatures: nothing to gain, much to compute
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": 3,
        "lifespan": "off",
        "h11_max_incomplete_event_size": HEAD_BYTES,
    }
    return uvicorn.Config(app, **(settings | more))
