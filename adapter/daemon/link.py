"""The one connection to the market: outbound, authenticated, resumed for ever.

The protocol is ``marketplace.domain.protocol.conversation``; here are the socket, the backoff and
the queue. A message with a *number* lies in the journal's outbox: when the market has acknowledged
it, its number is handed back.  The market's messages are acknowledged after the daemon made them
durable.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import anyio
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from adapter.core.state import Own
from marketplace.domain.errors import Refusal
from marketplace.domain.protocol import codec, flow, wire
from marketplace.domain.protocol.conversation import Client, MarketOlder, Numbering, Phase
from marketplace.domain.site import origin_of

WINDOW: Final = 1000
"""Messages on their way; more wait here, so that the conversation's own bound is never met."""
BULK: Final = 200
"""Messages that the market has not acknowledged, beyond which pages, logs and files wait."""
FIRST_WAIT_S: Final = 0.5
MOST_WAIT_S: Final = 30.0
OPEN_S: Final = 10.0

SOFTWARE: Final = "tally-adapter/0.1.0"

_log = structlog.get_logger("adapter.link")


class Listener(Protocol):
    """Who is told."""

    async def connected(self) -> None:
        """The market welcomed us."""
        ...

    async def disconnected(self) -> None:
        """The connection is gone."""
        ...

    async def heard(self, message: wire.Message) -> None:
        """A message, once and in order; it is acknowledged when this returns."""
        ...

    async def acknowledged(self, numbers: list[int]) -> None:
        """The market has these journaled messages."""
        ...


def provider_url(market: str) -> str:
    """``https://market.example`` → ``wss://market.example/v1/provider``."""
    parts = urlsplit(market)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith("/v1/provider"):
        path += "/v1/provider"
    return urlunsplit((scheme, parts.netloc, path, "", ""))


class Link:
    """One per process."""

    def __init__(
        self,
        market: str,
        client: Client,
        listener: Listener,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.url = provider_url(market)
        self._client = client
        self._listener = listener
        self._sleep = sleep
        self._numbers: deque[int | None] = deque()
        self._waiting: deque[tuple[wire.Message, int | None]] = deque()
        self._out: deque[bytes] = deque()
        self._stir = anyio.Event()
        self._acked = anyio.Event()
        self._welcomed = False

    @property
    def up(self) -> bool:
        """True while the market hears us."""
        return self._client.phase is Phase.OPEN

    @property
    def backlog(self) -> int:
        """Messages that the market has not acknowledged."""
        return len(self._numbers) + len(self._waiting)

    def send(self, message: wire.Message, number: int | None = None) -> None:
        """Now, or after the next welcome; in order."""
        self._waiting.append((message, number))
        self._refill()

    def can(self, capability: str) -> bool:
        """Whether the market that last welcomed us has it."""
        return capability in self._client.numbering.agreed

    @property
    def crowded(self) -> bool:
        """Whether pages, logs and files are to wait: receipts and vouchers go the same way, after
        all that is under way.
        """
        return self.backlog >= BULK or self._client.numbering.waiting_bytes >= flow.LINE_MOST

    async def room(self) -> None:
        """Wait until the line is not crowded."""
        while self.crowded:
            await self._acked.wait()

    def _refill(self) -> None:
        while self._waiting and len(self._numbers) < WINDOW:
            message, number = self._waiting.popleft()
            frame = self._client.send(message)
            self._numbers.append(number)
            if self.up:
                self._out.append(frame)
        self._stir.set()

    async def run(self) -> None:
        """Connect, talk, reconnect; returns only when cancelled."""
        wait = FIRST_WAIT_S
        while True:
            self._welcomed = False
            try:
                await self._once()
            except (OSError, WebSocketException, TimeoutError) as error:
                _log.warning(
                    "not listed: the market is unreachable, it goes on trying",
                    url=self.url, cause=str(error)[:200],
                )  # fmt: skip
            except MarketOlder:
                continue
            except Refusal as refusal:
                _log.error("market refuses", code=refusal.code, cause=refusal.message)
            wait = FIRST_WAIT_S if self._welcomed else min(MOST_WAIT_S, wait * 2)
            await self._sleep(wait * random.uniform(0.5, 1.0))

    async def _once(self) -> None:
        """One connection, from hello to its end."""
        socket = await connect(
            self.url, max_size=2 * codec.MAX_FRAME, open_timeout=OPEN_S, close_timeout=2
        )
        failed: Exception | None = None
        try:
            self._out.clear()
            await socket.send(self._client.connected())
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, socket)
                try:
                    await self._read(socket)
                except (WebSocketException, Refusal) as error:
                    failed = error  # raised below, outside the group, as itself
                group.cancel_scope.cancel()
        finally:
            was_up, self._client.phase = self.up, Phase.GREETING
            self._out.clear()
            with anyio.CancelScope(shield=True):
                await socket.close()
                if was_up:
                    await self._listener.disconnected()
        if failed is not None:
            raise failed

    async def _read(self, socket: ClientConnection) -> None:
        async for frame in socket:
            if isinstance(frame, str):
                continue
            before = self.up
            frames, message = self._client.receive(frame)
            self._out.extend(frames)
            self._stir.set()
            await self._forget_acknowledged()
            if self.up and not before:
                self._welcomed = True
                _log.info("market connected", url=self.url)
                await self._listener.connected()
            if message is not None:
                await self._listener.heard(message)
                self._out.append(self._client.handled())
                self._stir.set()

    async def _forget_acknowledged(self) -> None:
        """The conversation keeps what is unacknowledged, in order: the rest of ours is done."""
        done: list[int] = []
        while len(self._numbers) > len(self._client.numbering.unacked):
            number = self._numbers.popleft()
            if number is not None:
                done.append(number)
            self._acked.set()
            self._acked = anyio.Event()
        if done:
            await self._listener.acknowledged(done)
        self._refill()

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            while self._out:
                try:
                    await socket.send(self._out.popleft())
                except WebSocketException:
                    return  # the reader sees the end of the connection too
            self._stir = anyio.Event()
            await self._stir.wait()


def socket_link(market: str, own: Own, session: bytes) -> Callable[[Listener], Link]:
    """The real link; *session* is 16 random bytes that name this run of the process."""

    def make(listener: Listener) -> Link:
        numbering, at = Numbering(session), origin_of(market)
        client = Client("adapter", own.signer, own.offer.magic, SOFTWARE, numbering, at)
        return Link(market, client, listener)

    return make
