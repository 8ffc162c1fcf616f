"""One HTTP request to a port of a workload, streamed both ways for as long as it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import h11
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from marketplace.gateway.faces import Face
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.base.errors import Offline


async def answer(request: Request, tunnel: Tunnel, target: str, face: Face) -> Response:
    """What the workload answers to *request* at *target* (path and query, as on the wire).
    :class:`Offline` where it says nothing, or no HTTP.
    """
    stack = AsyncExitStack()
    try:
        await stack.enter_async_context(tunnel.turn())
        await stack.enter_async_context(tunnel)
        talk = h11.Connection(h11.CLIENT)
        await _ask(talk, tunnel, request, target, face)
        head = await _head(talk, tunnel)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await stack.aclose()
        raise

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                event = await _event(talk, tunnel)
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif not isinstance(event, h11.InformationalResponse):
                    return
        finally:
            with anyio.CancelScope(shield=True):
                await stack.aclose()

    response = StreamingResponse(body(), head.status_code)
    response.raw_headers = face.shown(head)
    return response


async def _ask(
    talk: h11.Connection, tunnel: Tunnel, request: Request, target: str, face: Face
) -> None:
    """The request line, the headers that are the workload's business, and the body."""
    headers = face.asked(request.headers)
    chunked = "transfer-encoding" in request.headers
    if chunked:
        headers.append(("transfer-encoding", "chunked"))
    headers.append(("connection", "close"))
    out = talk.send(h11.Request(method=request.method, target=target, headers=headers))
    tunnel.send(out or b"")
    if chunked or int(request.headers.get("content-length") or 0):
        async for chunk in request.stream():
            if chunk:
                await tunnel.room()
                tunnel.send(talk.send(h11.Data(data=chunk)) or b"")
    tunnel.send(talk.send(h11.EndOfMessage()) or b"")


async def _event(talk: h11.Connection, tunnel: Tunnel) -> object:
    while True:
        try:
            event = talk.next_event()
        except h11.RemoteProtocolError as error:
            raise Offline("the workload does not speak HTTP there") from error
        if event is not h11.NEED_DATA:
            return event
        talk.receive_data(await tunnel.receive())


async def _head(talk: h11.Connection, tunnel: Tunnel) -> h11.Response:
    while True:
        event = await _event(talk, tunnel)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            raise Offline("nothing answers on that port of the workload")
