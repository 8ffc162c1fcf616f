"""A port of a workload, at a port of this machine's loopback: TCP through the market.

Each connection is carried over a websocket of its own. Who else is on this machine can connect as
well, and the market and the provider see the bytes: what must be hidden from them is encrypted by
whoever talks there (TLS, SSH).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio.abc import SocketAttribute, SocketStream
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from marketplace.client.net.http import Http, MarketFault, problem
from marketplace.domain.errors import TallyError

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 64 * 1024
LINGER_S: Final = 5.0
"""A local program that has said all may still read. That it has closed for good cannot be told from
that, so what is silent for so long after it is closed, as by socat's ``-t``."""
_CONNECT_S: Final = 10.0
_MOST: Final = 1 << 20  # bytes of a message
_UNAUTHENTICATED: Final = 401


@asynccontextmanager
async def forwarding(
    http: Http, job: str, port: int, local: int, told: Callable[[str], None]
) -> AsyncGenerator[int]:
    """The local port: *local*, or a free one for 0. *told* hears why a connection was refused or
    broke. OSError where *local* is taken.
    """
    forward = _Forward(http, f"/v1/jobs/{job}/ports/{port}/stream", told)
    listener = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=local)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, forward.carry)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


def logged(why: str) -> None:
    """Where nobody asked to hear why a connection broke off."""
    structlog.get_logger("tally.client").warning("a forwarded connection", why=why)


class _Forward:
    def __init__(self, http: Http, path: str, told: Callable[[str], None]) -> None:
        self._http, self._path, self._told = http, path, told

    async def carry(self, near: SocketStream) -> None:
        """One connection, to its end."""
        async with near:
            try:
                far = await reach(self._http, self._path)
            except TallyError as error:
                self._told(error.line())
                return
            try:
                why = await _both_ways(near, far)
            finally:
                with anyio.CancelScope(shield=True):
                    await far.close()
            if why:
                self._told(why)


async def reach(http: Http, path: str) -> ClientConnection:
    """A websocket of bytes of the market; a session that is over is signed in anew, once."""
    used = http.token
    try:
        return await _connect(http, path)
    except TallyError as refused:
        over = refused.fields.get("status") == _UNAUTHENTICATED
        if http.renew is None or not over:
            raise
        if http.token == used:
            await http.renew()
    return await _connect(http, path)


async def _connect(http: Http, path: str) -> ClientConnection:
    try:
        return await connect(
            "ws" + http.base.removeprefix("http") + path,
            additional_headers={"Authorization": f"Bearer {http.token}"},
            open_timeout=_CONNECT_S, compression=None, max_size=_MOST,
        )  # fmt: skip
    except InvalidStatus as refused:
        answer = refused.response
        raise problem(answer.status_code, bytes(answer.body or b"")) from refused
    except (WebSocketException, OSError, TimeoutError) as error:
        raise MarketFault(f"{http.base}: {type(error).__name__} {error}"[:300]) from error


def why_closed(closed: ConnectionClosed) -> str:
    """In the market's words, of which a part may be a stranger's."""
    last = closed.rcvd
    return last.reason if last is not None and last.reason else "the market hung up"


async def _both_ways(near: SocketStream, far: ClientConnection) -> str:
    """Until either end closes: why the far one did, empty for an ordinary end."""
    why, heard = "", anyio.current_time()
    async with anyio.create_task_group() as tasks:

        async def quiet(since: float) -> None:
            while (left := max(heard, since) + LINGER_S - anyio.current_time()) > 0:  # noqa: ASYNC110  it is time that is waited for
                await anyio.sleep(left)

        async def outward() -> None:
            try:
                while True:
                    await far.send(await near.receive(CHUNK))
            except anyio.EndOfStream:
                await quiet(anyio.current_time())
            except ConnectionClosed:
                return  # who reads it is told why
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the local program is gone
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        try:
            async for data in far:  # ends at an ordinary close
                heard = anyio.current_time()
                await near.send(data if isinstance(data, bytes) else data.encode())
        except ConnectionClosed as closed:
            why = why_closed(closed)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        tasks.cancel_scope.cancel()
    return why
