"""How this market's HTTP server treats its clients: uvicorn, with patience that ends.

uvicorn waits for ever for the head of a request. Here a connection that has not sent a whole head
within :data:`HEAD_SECONDS` is closed, the first request's as well as a later one's; bodies have
deadlines of their own (``limits.Bodies``), websockets are pinged and prove themselves or go; until
they have, only small frames are taken of them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from marketplace.domain import cbor
from marketplace.domain.client_address import counted_as
from marketplace.market.base.errors import Offline

HEAD_SECONDS: float = 20
PROVING: Final = ("/v1/provider", "/v1/payer")  # where a websocket has to prove a key
MOST_PIECES: Final = 64  # of one message: empty ones count for no size
SLICE: Final = 4 * 1024  # bytes that are parsed at a time: 585 of the smallest frames
CONTROLS_AT_ONCE: Final = 30  # pings and pongs of a client; whoever is well pings every ten seconds
CONTROLS_PER_SECOND: Final = 1
CONNECTIONS: Final = 1_024  # of one address; an IPv6 one by its /64
MOST_UNREAD: Final = 1 << 20  # bytes of answers to pings that a client does not read
HEAD_BYTES: Final = 64 * 1024
PING_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 30


class Lobby:
    """How many connections each address has; proxies that speak for others are not counted."""

    def __init__(self, proxies: str | list[str] | None, most: int = CONNECTIONS) -> None:
        named = proxies.split(",") if isinstance(proxies, str) else proxies or ["127.0.0.1"]
        self._all = "*" in named
        self._proxies = list(_networks(named))
        self._most = most
        self._here: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """One more of *address*; False if it has as many as it may."""
        name = self._name(address)
        self._here[name] = self._here.get(name, 0) + 1
        return not name or self._here[name] <= self._most

    def leave(self, address: str) -> None:
        """One fewer."""
        name = self._name(address)
        self._here[name] = self._here.get(name, 1) - 1
        if not self._here[name]:
            del self._here[name]

    def _name(self, address: str) -> str:
        """By what it is counted; empty for a proxy, or what has no address (a Unix socket)."""
        try:
            known = ip_address(address)
        except ValueError:
            return ""
        if self._all or any(known in one for one in self._proxies):
            return ""
        return counted_as(address)


def _networks(named: list[str]) -> Iterator[IPv4Network | IPv6Network]:
    for one in named:
        with suppress(ValueError):  # a Unix socket's path, which uvicorn takes as well
            yield ip_network(one.strip(), strict=False)


class Config(uvicorn.Config):
    """uvicorn's, with the lobby that its connections share."""

    lobby: Lobby


def _address(protocol: H11Protocol | WebSocketsSansIOProtocol) -> str:
    return str((protocol.client or ("",))[0])


class Patient(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for each request's head."""

    _head: asyncio.TimerHandle | None = None
    _upgraded = False

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] (as uvicorn itself types it)
        self, transport: asyncio.Transport
    ) -> None:
        """A head is awaited from here on."""
        super().connection_made(transport)
        if not cast(Config, self.config).lobby.enter(_address(self)):
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """The deadline ends with the head, and begins again with the first byte of the next."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_is_here()
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        """What was pipelined is looked at; a connection without a word is the keep-alive's
        affair.
        """
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:
            self._head_is_here()
        elif self.conn.trailing_data[0] and self._head is None:
            self._await_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is the websocket's connection."""
        self._head_is_here()
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is awaited any more."""
        self._head_is_here()
        if not self._upgraded:
            cast(Config, self.config).lobby.leave(_address(self))
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

    _controls = float(CONTROLS_AT_ONCE)
    _controls_at = 0.0
    _heard_at = 0.0

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._unparsed = bytearray()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is parsed."""
        self._unparsed.clear()
        cast(Config, self.config).lobby.leave(_address(self))
        super().connection_lost(exc)

    async def send(self, message: ASGISendEvent) -> None:
        """A refusal completes the handshake as well: it would be logged as this application's
        error.
        """
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True

    def data_received(self, data: bytes) -> None:
        """Parsed in slices; what comes while a message waits for its reader waits as well."""
        self._heard_at = self.loop.time()
        self._unparsed += data
        self._parse()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # A head that HTTP takes and a websocket does not: no event tells it.
            self.transport.abort()

    def shutdown(self) -> None:
        """What has not shaken hands is let go of; the others are told."""
        if self.handshake_initiated and self.initial_response is None:
            super().shutdown()
        else:
            self.transport.abort()

    def _parse(self) -> None:
        while self._unparsed and not self.read_paused and not self.transport.is_closing():
            part = bytes(self._unparsed[:SLICE])
            del self._unparsed[:SLICE]
            super().data_received(part)
            if self.close_sent and self._unparsed:  # it is told to go, and has more to say
                self._unparsed.clear()
                self.transport.close()
        if self._unparsed and not self.transport.is_closing():
            self.transport.pause_reading()

    async def receive(self) -> Any:
        """The next message; what was held back for it is parsed after it is taken."""
        message = await super().receive()
        if self._unparsed and not self.read_paused:
            self._parse()
        return message

    def keepalive_timeout(self) -> None:
        """Not for a client that is heard, or that is read slowly: its pong comes behind the rest
        of what it has sent.
        """
        patience = float(self.ping_timeout or 0)
        waits = bool(self._unparsed) or self.read_paused
        if waits or self.loop.time() - self._heard_at < patience:
            self.pong_timer = self.loop.call_later(patience, self.keepalive_timeout)
        else:
            super().keepalive_timeout()

    def _control(self) -> bool:
        """Whether one more ping or pong is heard; else the connection ends."""
        now = self.loop.time()
        more = (now - self._controls_at) * CONTROLS_PER_SECOND
        self._controls = min(CONTROLS_AT_ONCE, self._controls + more) - 1
        self._controls_at = now
        if self._controls < 0:
            self._unparsed.clear()
            self.transport.abort()
        return self._controls >= 0

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
        """Answered as long as the answers are read, and they are few."""
        if self.transport.get_write_buffer_size() > MOST_UNREAD:
            self.transport.abort()
        elif self._control():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        """Asked for or not, they are few."""
        if self._control():
            super().handle_pong(event)


class _BrokenOff(logging.Filter):
    """An answer that a workload broke off is broken off at its visitor, which takes an exception;
    whoever serves a page could fill the market's log with them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for such a one."""
        return not (record.exc_info and isinstance(record.exc_info[1], Offline))


_BROKEN_OFF: Final = _BrokenOff()


def listener(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; port 0 takes a free one.

    Their answers leave at once (TCP_NODELAY, inherited by what is accepted): an answer is written
    in two parts, and otherwise the second waits for the client's delayed acknowledgement, 40 ms.
    asyncio sets it by itself only on a socket that names its protocol, which those of
    ``create_server`` do not.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, reuse_port=False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def config(app: ASGIApp, **more: Any) -> Config:
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
    made = Config(app, **(settings | more))
    logging.getLogger("uvicorn.error").addFilter(_BROKEN_OFF)
    made.lobby = Lobby(made.forwarded_allow_ips)
    return made
