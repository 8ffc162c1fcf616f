"""The payer's API on a port of loopback."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import uvicorn

from marketplace.cli.payer_api.app import PayerApi, build
from marketplace.cli.payer_api.daybook import DayBook
from marketplace.cli.payer_api.rules import TOKEN, token_of
from marketplace.client.sdk.market import Market

HOST: Final = "127.0.0.1"
AT_ONCE: Final = 64
_GRACE_S: Final = 3


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the payer decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """None: see the class."""
        yield


@asynccontextmanager
async def payer_api(
    market: Market, home: Path, port: int, most: int
) -> AsyncGenerator[dict[str, str]]:
    """Serves it meanwhile; *port* 0 takes a free one, *most* is lovelace a day. What whoever calls
    has to know: ``api``, its address, and ``token_file``.
    """
    with contextlib.closing(DayBook(home, most)) as book, socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(AT_ONCE)
        taken = int(listener.getsockname()[1])
        made = PayerApi(market, book)
        app = build(made, token_of(home), taken)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", proxy_headers=False,
            server_header=False, limit_concurrency=AT_ONCE, timeout_graceful_shutdown=_GRACE_S,
        )  # fmt: skip
        server = _Server(config)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                yield {"api": f"http://{HOST}:{taken}", "token_file": str(home / TOKEN)}
                server.should_exit = True
        finally:
            with anyio.CancelScope(shield=True):
                await made.aclose()
