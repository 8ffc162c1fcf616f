"""A terminal inside a running workload, over the market, which sees what is typed and shown there
as the provider does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

from marketplace.client.net.http import Http
from marketplace.client.sdk.forward import reach, why_closed
from marketplace.domain.errors import Fault


class TerminalLost(Fault):
    """It ended otherwise than by its own program."""

    code = "TERMINAL_LOST"
    remedy = "open another one; what ran in this one was ended"


class Terminal:
    """``async with job.terminal() as terminal``."""

    def __init__(self, far: ClientConnection) -> None:
        self._far = far

    async def read(self) -> bytes:
        """What it shows; empty once its program has ended. :class:`TerminalLost`."""
        try:
            data = await self._far.recv()
        except ConnectionClosedOK:
            return b""
        except ConnectionClosed as closed:
            raise TerminalLost(why_closed(closed)) from closed
        return data if isinstance(data, bytes) else data.encode()

    async def write(self, data: bytes) -> None:
        """Type *data*; nothing where it has ended, which :meth:`read` tells."""
        try:
            await self._far.send(data)
        except ConnectionClosed:
            return

    async def resize(self, rows: int, columns: int) -> None:
        """The window has this size now."""
        try:
            await self._far.send(json.dumps({"rows": rows, "columns": columns}))
        except ConnectionClosed:
            return


@asynccontextmanager
async def terminal(
    http: Http, job: str, command: Sequence[str], rows: int, columns: int
) -> AsyncGenerator[Terminal]:
    """Where *command* runs; it is ended with the block."""
    asked = urlencode({"command": list(command), "rows": rows, "columns": columns}, doseq=True)
    far = await reach(http, f"/v1/jobs/{job}/shell?{asked}")
    try:
        yield Terminal(far)
    finally:
        with anyio.CancelScope(shield=True):
            await far.close()
