"""One HTTP request to a port of a workload, streamed both ways for as long as it takes.

Connections to workloads are kept for the next request, where nothing can go wrong by it: a request
without a body and without a name or password of the workload's own, which may be asked again if the
workload hung up just then (RFC 9110, section 9.2.2; RFC 9112, section 9.3.1).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final, cast

import anyio
import h11
from starlette.requests import Request

from marketplace.api.http.streamed import Streamed
from marketplace.gateway.faces import Face
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.base.errors import Offline

_READS: Final = ("GET", "HEAD", "OPTIONS")


class Connection:
    """An HTTP connection to a workload."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel
        self._talk = h11.Connection(h11.CLIENT)

    @property
    def alive(self) -> bool:
        """Nobody has hung up, or said anything unasked."""
        return self.tunnel.silent

    def hang_up(self) -> None:
        """Close it."""
        self.tunnel.hang_up()

    def done(self, may_stay: bool) -> None:
        """The answer is over, or nobody wants the rest of it: it waits for the next request, if
        both sides are ready for that.
        """
        answered = self._talk.our_state is h11.DONE and self._talk.their_state is h11.DONE
        if may_stay and answered and self.alive and not self._talk.trailing_data[0]:
            self._talk.start_next_cycle()
            self.tunnel.hub.streams.keep(self.tunnel.lease, self.tunnel.port, self)
        else:
            self.hang_up()

    async def ask(self, asked: h11.Request, body: AsyncIterator[bytes] | None) -> None:
        """Send a request."""
        talk, tunnel = self._talk, self.tunnel
        await tunnel.send(talk.send(asked) or b"")
        if body is not None:
            async for chunk in body:
                if chunk:
                    await tunnel.send(talk.send(h11.Data(data=chunk)) or b"")
        await tunnel.send(talk.send(h11.EndOfMessage()) or b"")

    async def head(self) -> h11.Response:
        """Its answer's head. Offline where it says nothing, or no HTTP."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise Offline("nothing answers on that port of the workload")

    def at_hand(self) -> tuple[bytes, bool]:
        """What has come of its answer's body with the head, and whether that is all of it."""
        came: list[bytes] = []
        while isinstance(event := self._read(), h11.Data):
            came.append(bytes(event.data))
        return b"".join(came), isinstance(event, h11.EndOfMessage)

    async def body(self) -> AsyncIterator[bytes]:
        """The rest of its answer's body. Offline where it breaks off."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif not isinstance(event, h11.InformationalResponse):
                return

    async def _event(self) -> object:
        while True:
            event = self._read()
            if event is not h11.NEED_DATA:
                return event
            data = await self.tunnel.receive()
            if not data and self.tunnel.error:  # else a part may read as a whole
                raise Offline(f"the workload's connection is over: {self.tunnel.error}")
            self._talk.receive_data(data)

    def _read(self) -> object:
        try:
            return self._talk.next_event()
        except h11.RemoteProtocolError as error:
            raise Offline("the workload does not speak HTTP there") from error


async def answer(
    request: Request,
    tunnel: Tunnel,
    target: str,
    face: Face,
    *,
    content: bytes | None = None,
    whole: int = 0,
) -> Streamed:
    """What the workload answers to *request* at *target* (path and query, as on the wire), over
    *tunnel*, which is not open yet, or a connection that was kept. :class:`Offline` where it says
    nothing, or no HTTP. *content*: the request's body, where it was read already. An answer that
    says to have at most *whole* bytes is here to its end, or it is Offline.
    """
    chunked = content is None and "transfer-encoding" in request.headers
    body = _body(request, chunked, content)
    headers = face.asked(request.headers)
    may_stay = (
        body is None
        and request.method in _READS
        and all(name != "authorization" for name, _ in headers)
    )
    if content and "content-length" not in request.headers:
        headers.append(("content-length", str(len(content))))
    if chunked:
        headers.append(("transfer-encoding", "chunked"))
    if not may_stay:
        headers.append(("connection", "close"))
    asked = h11.Request(method=request.method, target=target, headers=headers)
    stack = AsyncExitStack()
    try:
        await stack.enter_async_context(tunnel.turn())
        connection, head = await _headed(tunnel, asked, body, may_stay)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await stack.aclose()
        raise

    async def over() -> None:
        connection.done(may_stay)
        await stack.aclose()

    try:
        came, all_here = connection.at_hand()
        if not all_here and 0 < _length(head) <= whole:
            came = b"".join([came, *[part async for part in connection.body()]])
            all_here = True
    except BaseException:
        with anyio.CancelScope(shield=True):
            await over()
        raise
    if all_here:
        await over()  # whoever reads slowly holds up nobody: the next one has the connection
        response = Streamed(came, head.status_code)
    else:
        response = Streamed(_on_from(came, connection.body()), head.status_code, over)
    response.raw_headers = face.shown(head)
    return response


def _body(request: Request, chunked: bool, content: bytes | None) -> AsyncIterator[bytes] | None:
    if content is not None:
        return _given(content) if content else None
    return request.stream() if chunked or int(request.headers.get("content-length") or 0) else None


async def _given(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _on_from(came: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if came:
        yield came
    async for part in rest:
        yield part


def _length(head: h11.Response) -> int:
    """Of its body in bytes; 0 where it does not say."""
    return next((int(v) for n, v in head.headers if n.lower() == b"content-length"), 0)


async def _headed(
    tunnel: Tunnel, asked: h11.Request, body: AsyncIterator[bytes] | None, may_stay: bool
) -> tuple[Connection, h11.Response]:
    """The connection that is answering, and the answer's head."""
    # One that waits is taken or closed before there is another: some servers take one at a time.
    kept = cast(Connection | None, tunnel.hub.streams.take(tunnel.lease, tunnel.port))
    if kept is not None and may_stay:
        try:
            return kept, await _asked(kept, asked, None)
        except Offline:
            pass  # it hung up between two requests: on a new one, then
    elif kept is not None:
        kept.hang_up()
    tunnel.open()
    connection = Connection(tunnel)
    return connection, await _asked(connection, asked, body)


async def _asked(
    connection: Connection, asked: h11.Request, body: AsyncIterator[bytes] | None
) -> h11.Response:
    try:
        await connection.ask(asked, body)
        return await connection.head()
    except BaseException:
        connection.hang_up()
        raise
