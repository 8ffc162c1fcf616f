"""A payer that stops leaves no connection open, whatever the market does."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from marketplace.client.net import link
from marketplace.client.net.link import Link
from marketplace.domain.errors import Refusal
from tests.fakes import until


def test_a_market_that_does_not_hear_a_goodbye_holds_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[ClientConnection] = []

    async def noted(*dialled: Any, **how: Any) -> ClientConnection:
        made.append(await connect(*dialled, **how))
        return made[-1]

    async def refused(no: Refusal) -> None:
        raise no

    async def main() -> None:
        there, over = anyio.Event(), anyio.Event()

        async def deaf(socket: ServerConnection) -> None:
            socket.transport.pause_reading()
            there.set()
            await over.wait()
            socket.transport.abort()

        async with serve(deaf, "127.0.0.1", 0, close_timeout=0.1) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            payer = Link(f"http://127.0.0.1:{port}", 42, None)  # pyright: ignore[reportArgumentType]  (it hears nothing)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(payer.run, refused)
                await there.wait()
                await until(lambda: made)
                tasks.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            (held,) = made
            assert held.transport.get_extra_info("socket").fileno() == -1
            over.set()

    monkeypatch.setattr(link, "connect", noted)
    monkeypatch.setattr(link, "_GOODBYE_S", 0.2)
    anyio.run(main)
