"""The market's stores as a process of its own, told every moment which leases live."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import structlog

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.units import parse_size_mib
from marketplace.domain.work.cluster_store import StorePlace

SIZE_MIB: Final = 10 * 1024
KEEP_S: Final = 30 * 86_400
READY_S: Final = 20.0
TELL_S: Final = 2.0
AGAIN_S: Final = 1.0

log = structlog.get_logger("market")
Living = Callable[[], Awaitable[dict[str, str]]]


class StoreServerRefused(Refusal):
    """The stores' folder or address could not be had."""

    code = "STORE_SERVER_REFUSED"
    remedy = (
        "give --store a folder that this user may write, and --store-at an address that is free"
    )


@dataclass(frozen=True)
class Shelves:
    """*folder*: of all stores, *size_mib* in each; *host* and *port*: where they are served (port 0
    takes a free one); *url*: what adapters reach that by, empty for that very address; *secret*:
    between market and server; *keep_s*: how long a store is kept that nobody uses. Without a
    *folder* another process of the market serves them at *url*.
    """

    secret: bytes = field(repr=False)
    folder: Path | None = None
    size_mib: int = SIZE_MIB
    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""
    keep_s: int = KEEP_S

    @staticmethod
    def read(said: str, at: str, url: str, keep_s: int, secret: bytes) -> Shelves | None:
        """``FOLDER`` or ``FOLDER:SIZE``, ``HOST:PORT`` and an address; None where neither folder
        nor address is said. Malformed.
        """
        if not said and not url:
            return None
        if url:
            StorePlace(url, secret)
        host, colon, port = at.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            raise Malformed("stores are served at HOST:PORT, such as 127.0.0.1:8300")
        if not said:
            return Shelves(secret, url=url)
        folder, colon, size = said.rpartition(":")
        if not colon:
            return Shelves(secret, Path(said), host=host, port=int(port), url=url, keep_s=keep_s)
        mib = parse_size_mib(size)
        return Shelves(secret, Path(folder), mib, host, int(port), url, keep_s)


@asynccontextmanager
async def shelving(shelves: Shelves, living: Living) -> AsyncGenerator[StorePlace]:
    """The stores while the block runs; a server that ends by itself is begun anew, at its port.
    *living*: store by lease.
    """
    if shelves.folder is None:
        yield StorePlace(shelves.url, shelves.secret)
        return
    first, port = await _begin(shelves, shelves.port)

    async def keep(one: anyio.abc.Process) -> None:
        try:
            while True:
                await _tell(one, living)
                await one.aclose()
                log.error("the server of stores ended", code=one.returncode)
                await anyio.sleep(AGAIN_S)
                try:
                    one, _ = await _begin(shelves, port)
                except StoreServerRefused as refused:
                    log.error("stores", error=refused.line())
        finally:
            if one.returncode is None:
                one.kill()
            with anyio.CancelScope(shield=True):
                await one.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, first)
        yield StorePlace(shelves.url or f"http://{shelves.host}:{port}", shelves.secret)
        tasks.cancel_scope.cancel()


async def _tell(one: anyio.abc.Process, living: Living) -> None:
    """Until it ends. What cannot be asked for just now is told later: the server closes by
    itself.
    """
    assert one.stdin is not None
    while one.returncode is None:
        try:
            said = json.dumps(await living())
        except Exception as error:  # noqa: BLE001  a database that is away, whatever it says
            log.warning("stores", error=f"which leases live: {error}")
        else:
            try:
                await one.stdin.send(said.encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
        with anyio.move_on_after(TELL_S):
            await one.wait()


async def _begin(shelves: Shelves, port: int) -> tuple[anyio.abc.Process, int]:
    line = [sys.executable, "-m", "marketplace.cluster_store.serving"]
    made = await anyio.open_process(
        [
            *line, str(shelves.folder), str(shelves.size_mib << 20), shelves.host, str(port),
            str(shelves.keep_s),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
    )  # fmt: skip
    assert made.stdin is not None and made.stdout is not None
    said = b""
    try:
        with anyio.fail_after(READY_S):
            await made.stdin.send(shelves.secret.hex().encode() + b"\n")
            said = await made.stdout.receive()
        return made, int(json.loads(said)["port"])
    except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError, ValueError, KeyError):
        if made.returncode is None:
            made.kill()
        await made.aclose()
        raise StoreServerRefused(f"no stores at {shelves.host}:{port}") from None
