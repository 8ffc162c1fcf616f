"""An answer that somebody else gives, passed on as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Streamed(StreamingResponse):
    """An answer, after which *over* is called once, also where its visitor left before the first
    byte of its body was asked for: a generator that never began has no end. A *body* that is here
    as a whole needs no *over*, and nothing that watches whether its visitor is still there.
    """

    def __init__(
        self,
        body: AsyncIterator[bytes] | bytes,
        status: int,
        over: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__((body,) if isinstance(body, bytes) else body, status)
        self._whole = body if isinstance(body, bytes) else None
        self._over = over
        self._then: list[Callable[[], None]] = []

    def then(self, more: Callable[[], None]) -> None:
        """*more* is called once it is over, too."""
        self._then.append(more)

    async def leave(self) -> None:
        """It is over, unsent or sent."""
        try:
            if self._over is not None:
                await self._over()
        finally:
            for more in self._then:
                more()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            if self._whole is None:
                await super().__call__(scope, receive, send)
            else:
                head = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **head})
                await send({"type": "http.response.body", "body": self._whole})
        finally:
            with anyio.CancelScope(shield=True):
                await self.leave()
