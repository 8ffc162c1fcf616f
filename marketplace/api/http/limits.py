"""What keeps one client from taking all: rates by account and address, body sizes, slow bodies, and
a pace for each address, since a body is read before it is known whose it is and which rate it
spends.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marketplace.api.http.problems import of
from marketplace.api.http.told import Left
from marketplace.domain.client_address import counted_as
from marketplace.hub.pace import PER_SECOND, Pace
from marketplace.market.base.errors import RateLimited, TooLarge

BODY_LIMIT: Final = 1 << 20
BODY_SECONDS: float = 30
CROWDED_SECONDS: Final = 1.0
UPLOAD_PACE: Final = 16 * 1024  # bytes a second
REQUEST: Final = 1_024  # bytes that a request counts beside its body's, at the pace of strangers
KEPT: Final = 50_000
Flows = Callable[[Scope], bool]
"""Whether a request is for a workload's port, to and from which any amount may flow."""


def client_of(scope: Scope) -> str:
    """By what a request's or a socket's client is counted; ``?`` where it has no address."""
    return counted_as(str((scope.get("client") or ("", 0))[0])) or "?"


def port_path(scope: Scope) -> bool:
    """Whether the path is a port's, under the market's own address."""
    return bool(scope["path"].startswith("/p/"))


class Rates:
    """Token buckets by name, in this process; the oldest are forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, name: str, per_minute: int, tokens: int = 1) -> None:
        """RateLimited once *name* has spent *per_minute* tokens within a minute."""
        now = time.monotonic()
        left, at = self._buckets.get(name, (float(per_minute), now))
        left = min(per_minute, left + (now - at) * per_minute / 60)
        if left < tokens:
            wait = int((tokens - left) * 60_000 / per_minute) + 1
            raise RateLimited("too many requests", retry_after_ms=wait)
        self._buckets[name] = (left - tokens, now)
        self._buckets.move_to_end(name)
        while len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)

    def left(self, name: str, per_minute: int) -> Left:
        """What *name* may still spend."""
        now = time.monotonic()
        left, at = self._buckets.get(name, (float(per_minute), now))
        left = min(per_minute, left + (now - at) * per_minute / 60)
        return Left(per_minute, int(left), math.ceil((per_minute - left) * 60 / per_minute))


class Bodies:
    """ASGI middleware: a body is at most :data:`BODY_LIMIT` bytes and arrives within
    :data:`BODY_SECONDS`; uploads count their own bytes, and get as much longer as those bytes take
    at :data:`UPLOAD_PACE` a second. What flows to a workload's port may flow for ever."""

    def __init__(self, app: ASGIApp, flows: Flows = port_path) -> None:
        self.app, self.flows = app, flows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        flows = self.flows(scope)
        upload = flows or scope["path"].startswith("/v1/blobs/")
        size, complete, started, begun = 0, False, False, anyio.current_time()
        refusal: TooLarge | None = None
        too_large = TooLarge(f"a body has at most {BODY_LIMIT} bytes", limit=BODY_LIMIT)
        lengths = [v for k, v in scope["headers"] if k == b"content-length"]
        if not upload and lengths and lengths[0].isdigit() and int(lengths[0]) > BODY_LIMIT:
            await of(too_large)(scope, receive, send)
            return

        async def counted() -> Message:
            nonlocal size, complete, refusal
            since = anyio.current_time() if flows else begun
            seconds = BODY_SECONDS + (size / UPLOAD_PACE if upload else 0)
            try:
                with anyio.fail_at(None if complete else since + seconds):
                    message = await receive()
            except TimeoutError:
                refusal = TooLarge("the body came too slowly")
                raise refusal from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if not upload and size > BODY_LIMIT:
                    refusal = too_large
                    raise refusal
                # Once it is complete, what follows is the wait for a disconnect.
                complete = not message.get("more_body")
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            if refusal is not None and not started:
                return  # what the framework makes of the broken body is not the answer
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except TooLarge:
            if started or refusal is None:
                raise
        if refusal is not None and not started:
            await of(refusal)(scope, receive, send)


class Addresses:
    """What each network address has open in this process, and the pace that it keeps."""

    def __init__(self, most: int, per_minute: int) -> None:
        self.most = most
        # Not below what two accounts of one address may ask together.
        per_second = max(PER_SECOND, 2 * per_minute * REQUEST // 60)
        self.pace = Pace(per_second, at_once=per_second)
        self.open: dict[str, int] = {}


class Crowd:
    """ASGI middleware: at most so many requests and sockets at once from one network address, so
    that streams and sockets which stay open are limited as well; and no more a second than the pace
    of strangers allows, which they wait for. Files and what flows to a port count their own bytes.
    """

    def __init__(self, app: ASGIApp, addresses: Addresses, flows: Flows = port_path) -> None:
        self.app, self.addresses, self.flows = app, addresses, flows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket for as long as it lasts."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        address, opened = client_of(scope), self.addresses.open
        if opened.get(address, 0) >= self.addresses.most:
            # At once, and the refused would come again as fast as they can.
            await anyio.sleep(CROWDED_SECONDS)
            busy = RateLimited("too many open requests from one address", retry_after_ms=1000)
            answer = of(busy)
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
            return
        opened[address] = opened.get(address, 0) + 1
        uploads = self.flows(scope) or scope["path"].startswith("/v1/blobs/")

        async def paced() -> Message:
            message = await receive()
            size = len(message.get("body") or b"")
            if size and scope["type"] == "http" and not uploads:
                await self._turn(address, size, 0)
            return message

        try:
            await self._turn(address, 0, REQUEST)
            await self.app(scope, paced, send)
        finally:
            opened[address] -= 1
            if not opened[address]:
                del opened[address]

    async def _turn(self, address: str, size: int, each: int) -> None:
        wait = self.addresses.pace.spend(address, size, anyio.current_time(), each)
        if wait:
            await anyio.sleep(wait)
