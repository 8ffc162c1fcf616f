"""What every answer says of itself: the request's id, and what is left of the caller's rate.

The id is ours, never the caller's: it is in each line that the log says meanwhile, in the problem
if it comes to one, and in ``Request-Id``. The rate's names are those of the IETF's draft
(draft-ietf-httpapi-ratelimit-headers, its version 6, which clients read).
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "Request-Id"
LIMITS: Final = (
    "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy",
)  # fmt: skip
_current: ContextVar[str] = ContextVar("request", default="")


@dataclass(frozen=True)
class Left:
    """Of *limit* requests a minute *remaining* are left; all are again in *reset_s* seconds."""

    limit: int
    remaining: int
    reset_s: int


def request_id() -> str:
    """The id of the request that is answered here; empty outside of one."""
    return _current.get()


class Told:
    """ASGI middleware: gives each request its id, and its answer the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or handshake."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        # Not taken back: each request runs in a context of its own, and what the server makes of an
        # exception that nobody caught is said after this has returned.
        name = f"req_{secrets.token_hex(8)}"
        _current.set(name)
        structlog.contextvars.bind_contextvars(request=name)
        state = scope.setdefault("state", {})

        async def told(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                headers[HEADER] = name
                left = state.get("left")
                if isinstance(left, Left):
                    values = (left.limit, left.remaining, left.reset_s, f"{left.limit};w=60")
                    for header, value in zip(LIMITS, values, strict=True):
                        headers[header] = str(value)
            await send(message)

        await self.app(scope, receive, told)
