"""The payer's websocket to one market: reconnects for ever, and loses nothing on the way.

Messages are handled one at a time, in order, and acknowledged once their effect is durable. Every
process speaks with a key of its own, so that an SDK and a daemon of one consumer do not end each
other's session; what proves a channel is the session key's signature over each connection's nonce.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from marketplace import disk
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import (
    Client,
    HelloRefused,
    MarketOlder,
    Numbering,
    Phase,
    subscribe_message,
)
from marketplace.domain.site import origin_of

_SOFTWARE: Final = "tally-payer/0.1"
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
_HELLO_S: Final = 10.0
_GOODBYE_S: Final = 1.0

log = structlog.get_logger("tally.payer")


class Handler(Protocol):
    """What the link hands messages to; returns once their effect is durable."""

    async def handle(self, message: wire.Message) -> None:
        """One message of the market."""
        ...

    async def opened(self) -> None:
        """A connection stands: the market knows every channel again."""
        ...


class Link:
    """One market's ``/v1/payer``. ``run`` it in a task group; ``send`` and ``watch`` from
    anywhere.
    """

    def __init__(self, market: str, magic: int, handler: Handler) -> None:
        self.url = _socket_url(market)
        self._handler = handler
        self._client = Client(
            "payer",
            Signer(secrets.token_bytes(32)),
            magic,
            _SOFTWARE,
            Numbering(secrets.token_bytes(16)),
            origin_of(market),
        )
        self._sessions: dict[bytes, Signer] = {}
        self._socket: ClientConnection | None = None
        self._turn = anyio.Lock()
        self.open = anyio.Event()
        self.opened_ms = 0
        self._answered = anyio.Event()

    @property
    def connected(self) -> bool:
        """Whether a connection stands now."""
        return self._socket is not None and self._client.phase is Phase.OPEN

    async def watch(self, session: Signer) -> None:
        """Speak for the channel of *session* from now on, over every connection."""
        self._sessions[session.verify_key] = session
        if self.connected:
            await self.send(self._subscription(session))

    def unwatch(self, session_vk: bytes) -> None:
        """Do not subscribe to it again."""
        self._sessions.pop(session_vk, None)

    async def send(self, message: wire.Message) -> None:
        """Goes out now if connected, else after the next welcome; once only either way."""
        async with self._turn:
            frame = self._client.send(message)
            socket = self._socket
            if socket is not None and self._client.phase is Phase.OPEN:
                try:
                    await socket.send(frame)
                except WebSocketException:
                    return  # kept by the numbering; goes out with the next connection

    async def heard_out(self) -> None:
        """Until the market has acknowledged all that was sent."""
        while self._client.numbering.unacked:
            await self._answered.wait()

    async def run(self, refused: Callable[[Refusal], Awaitable[None]]) -> None:
        """Connect, serve, reconnect; *refused* hears when the market rejects this payer."""
        turn = 0
        while True:
            before = self.opened_ms
            try:
                await self._connection()
            except MarketOlder:
                continue
            except HelloRefused as error:
                await refused(error)
            except (
                Malformed,
                codec.WireRefused,
            ) as error:  # a frame that is none: the market, or who stands between
                log.warning("payer_link_nonsense", url=self.url, code=error.code, why=error.message)
            except (
                OSError,
                WebSocketException,
                TimeoutError,
                InvalidHandshake,
                InvalidURI,
            ) as error:
                log.info("payer_link_down", url=self.url, error=str(error)[:200])
            turn = 0 if self.opened_ms != before else turn + 1
            await anyio.sleep(_PAUSES_S[min(turn, len(_PAUSES_S) - 1)])

    async def _connection(self) -> None:
        socket = await connect(
            self.url,
            max_size=codec.MAX_FRAME,
            open_timeout=_HELLO_S,
            ping_interval=15,
            ping_timeout=20,
        )
        try:
            self._socket = socket
            await socket.send(self._client.connected())
            with anyio.fail_after(_HELLO_S):
                while self._client.phase is not Phase.OPEN:
                    await self._step(socket, await socket.recv())
            await self._subscribe_all()
            self.opened_ms += 1
            self.open.set()
            with _own_files():
                await self._handler.opened()
            async for frame in socket:
                await self._step(socket, frame)
        finally:
            self._socket = None
            self._client.phase = Phase.GREETING
            # Also where it is cancelled: else the socket stays open until the market ends it.
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_GOODBYE_S):
                    await socket.close()
                socket.transport.abort()

    async def _step(self, socket: ClientConnection, frame: str | bytes) -> None:
        if isinstance(frame, str):
            raise Malformed("the market sent text where frames are binary")
        before = self._client.numbering.received
        async with self._turn:
            answers, message = self._client.receive(frame)
            if self._client.phase is Phase.PROVING:
                self._renew_subscriptions()
            for answer in answers:
                await socket.send(answer)
        self._answered.set()
        self._answered = anyio.Event()
        if message is not None:
            with _own_files():
                await self._handler.handle(message)
        if self._client.numbering.received != before:
            await socket.send(self._client.handled())

    def _renew_subscriptions(self) -> None:
        """A subscription that was never acknowledged is signed anew, over this connection's
        nonce.
        """
        numbering = self._client.numbering
        renewed: list[tuple[int, bytes]] = []
        for seq, payload in numbering.unacked:
            message = codec.from_bytes(payload)
            session = self._sessions.get(getattr(message, "session_vk", b""))
            if isinstance(message, wire.Subscribe) and session is not None:
                payload = codec.to_bytes(self._subscription(session))
            renewed.append((seq, payload))
        numbering.unacked = deque(renewed)

    async def _subscribe_all(self) -> None:
        waiting = {
            message.session_vk
            for message in (codec.from_bytes(p) for _, p in self._client.numbering.unacked)
            if isinstance(message, wire.Subscribe)
        }
        for session_vk, session in list(self._sessions.items()):
            if session_vk not in waiting:
                await self.send(self._subscription(session))

    def _subscription(self, session: Signer) -> wire.Subscribe:
        client, vk = self._client, session.verify_key
        return wire.Subscribe(vk, session.sign(subscribe_message(client.nonce, client.market, vk)))


@contextmanager
def _own_files() -> Generator[None]:
    """What this machine's own files refuse is no lost connection: it goes up, and ends the
    process.
    """
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise disk.fault(error, "a message could not be handled", error.filename or "") from error


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def market_of(url: str) -> tuple[str, int, str]:
    """(host, port, path) of a market, the same for every way to write its address."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    return ("localhost" if host in _LOOPBACK else host, port, parts.path.rstrip("/"))


def _socket_url(market: str) -> str:
    base = market.rstrip("/")
    schemes: Mapping[str, str] = {"http://": "ws://", "https://": "wss://"}
    for http, ws in schemes.items():
        if base.startswith(http):
            return ws + base.removeprefix(http) + "/v1/payer"
    raise Malformed(f"{market[:100]!r} is not the address of a market: http:// or https://")
