"""A request that another process of this market must answer is passed on to it, whole.

The other process checks the caller's credential itself, so that nothing here is trusted; a request
goes one step at most (``Tally-Relayed``).
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
from fastapi import Request, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from marketplace.api.http.auth import Parts
from marketplace.api.http.streamed import Streamed
from marketplace.market.base.errors import Elsewhere
from marketplace.market.upkeep import peers

MARK: Final = "tally-relayed"
REPLICA: Final = "tally-replica"
"""With :data:`MARK`: which replica of a service the first process chose. In an answer: that it
missed it.
"""
_CONNECT_S: Final = 5.0
_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "transfer-encoding", "upgrade", "host", "content-length"}
)  # fmt: skip
_HANDSHAKE: Final = "sec-websocket-"


async def target(caller: HTTPConnection, parts: Parts, provider: str) -> str:
    """The URL of the process that holds *provider*'s connection; empty to answer here (also where
    nobody holds it). :class:`Elsewhere` when it cannot be passed on.
    """
    if parts.hub.connected(provider):
        return ""
    process, url = await peers.holder(parts.market, provider)
    if not process:
        return ""
    if caller.headers.get(MARK):
        raise Elsewhere("the provider has just moved to another process of this market")
    if not url:
        raise Elsewhere(f"process {process} holds the provider's connection and told no address")
    return url


async def http(
    url: str,
    request: Request,
    host: str = "",
    content: bytes | None = None,
    beside: tuple[tuple[str, str], ...] = (),
) -> Streamed:
    """*request* answered by the process at *url*, streamed both ways; :class:`Elsewhere` if it is
    away. *host*: the ``Host`` it is asked as, where that says what is meant; else its own.
    *content*: the body, where it was read already; *beside*: further headers.
    """
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=_CONNECT_S), trust_env=False, follow_redirects=False
    )
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    asked = client.build_request(
        request.method,
        url + _path(request),
        headers=[*_headers(request), *([("host", host)] if host else []), *beside],
        content=(request.stream() if has_body else None) if content is None else content,
    )
    try:
        answer = await client.send(asked, stream=True)
    except httpx.HTTPError as error:
        await client.aclose()
        raise Elsewhere(f"the process at {url} does not answer: {type(error).__name__}") from error

    async def over() -> None:
        await answer.aclose()
        await client.aclose()

    response = Streamed(answer.aiter_raw(), answer.status_code, over)
    response.raw_headers = [
        (name.lower(), value)
        for name, value in answer.headers.raw
        if name.lower().decode() not in _HOP - {"content-length"}
    ]
    return response


async def websocket(
    url: str, socket: WebSocket, host: str = "", beside: tuple[tuple[str, str], ...] = ()
) -> None:
    """*socket*, which may be accepted already, carried to the process at *url* for as long as both
    hold; *host* and *beside* as in :func:`http`.
    """
    offered = [s.strip() for s in socket.headers.get("sec-websocket-protocol", "").split(",")]
    spoken = [Subprotocol(name) for name in offered if name]
    headers = [(n, v) for n, v in _headers(socket) if not n.startswith(_HANDSHAKE)]
    try:
        parts = urlsplit(url)
        async with connect(
            "ws" + url.removeprefix("http").replace(parts.netloc, host or parts.netloc, 1)
            + _path(socket),
            host=parts.hostname, port=parts.port or (443 if parts.scheme == "https" else 80),
            additional_headers=[*headers, *beside], subprotocols=spoken or None,
            open_timeout=_CONNECT_S, compression=None, proxy=None, max_size=1 << 20,
        ) as far:  # fmt: skip
            if socket.application_state is WebSocketState.CONNECTING:
                await socket.accept(subprotocol=far.subprotocol)
            await _pump(socket, far)
    except (WebSocketException, OSError, TimeoutError) as error:
        raise Elsewhere(f"the process at {url} refused: {type(error).__name__}") from error


async def _pump(near: WebSocket, far: ClientConnection) -> None:
    async with anyio.create_task_group() as tasks:

        async def outward() -> None:
            try:
                while (message := await near.receive())["type"] != "websocket.disconnect":
                    text = message.get("text")
                    await far.send(text if text is not None else message.get("bytes") or b"")
            except (WebSocketDisconnect, RuntimeError, ConnectionClosed):
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        try:
            async for data in far:
                await (near.send_text(data) if isinstance(data, str) else near.send_bytes(data))
            await near.close(far.close_code or 1000, far.close_reason)
        except (ConnectionClosed, WebSocketDisconnect, RuntimeError):
            pass
        tasks.cancel_scope.cancel()


def _path(caller: HTTPConnection) -> str:
    """Path and query as they came."""
    raw: Any = caller.scope.get("raw_path") or caller.url.path.encode()
    query: bytes = caller.scope.get("query_string", b"")
    return raw.decode("ascii").partition("?")[0] + (f"?{query.decode('latin-1')}" if query else "")


def _headers(caller: HTTPConnection) -> list[tuple[str, str]]:
    kept = [(n.lower(), v) for n, v in caller.headers.items() if n.lower() not in _HOP]
    kept = [(n, v) for n, v in kept if n not in ("x-forwarded-for", "x-forwarded-proto")]
    scheme = {"ws": "http", "wss": "https"}.get(caller.url.scheme, caller.url.scheme)
    host = caller.client.host if caller.client is not None else ""
    return [*kept, ("x-forwarded-for", host), ("x-forwarded-proto", scheme), (MARK, "1")]
