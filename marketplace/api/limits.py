"""What keeps one client from taking all: rates by account and address, body sizes, slow bodies."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marketplace.api.problems import of
from marketplace.service.errors import RateLimited, TooLarge

BODY_LIMIT: Final = 1 << 20
BODY_SECONDS: Final = 30
KEPT: Final = 50_000


class Rates:
    """Token buckets by name, in this process; the oldest are forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, name: str, per_minute: int) -> None:
        """RateLimited once *name* has spent *per_minute* tokens within a minute."""
        now = time.monotonic()
        left, at = self._buckets.get(name, (float(per_minute), now))
        left = min(per_minute, left + (now - at) * per_minute / 60)
        if left < 1:
            wait = int((1 - left) * 60_000 / per_minute) + 1
            raise RateLimited("too many requests", retry_after_ms=wait)
        self._buckets[name] = (left - 1, now)
        self._buckets.move_to_end(name)
        while len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)


class Bodies:
    """ASGI middleware: a body is at most :data:`BODY_LIMIT` bytes (uploads count their own) and
    arrives within :data:`BODY_SECONDS`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["path"].startswith(("/v1/blobs/", "/p/"))
        size, started = 0, False
        too_large = TooLarge(f"a body has at most {BODY_LIMIT} bytes", limit=BODY_LIMIT)
        lengths = [v for k, v in scope["headers"] if k == b"content-length"]
        if not upload and lengths and lengths[0].isdigit() and int(lengths[0]) > BODY_LIMIT:
            await of(too_large)(scope, receive, send)
            return

        async def counted() -> Message:
            nonlocal size
            with anyio.fail_after(None if size < 0 else BODY_SECONDS):
                message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if not upload and size > BODY_LIMIT:
                    raise too_large
                if not message.get("more_body"):
                    size = -1  # complete: what follows is the wait for a disconnect
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except (TooLarge, TimeoutError) as error:
            if started:
                raise
            slow = TooLarge("the body came too slowly")
            await of(error if isinstance(error, TooLarge) else slow)(scope, receive, send)
