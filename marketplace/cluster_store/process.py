"""The market's stores as a process of its own, told every moment which leases live."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import structlog

from marketplace import child
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.units import parse_size_mib
from marketplace.domain.work.cluster_store import StorePlace

SIZE_MIB: Final = 10 * 1024
KEEP_S: Final = 30 * 86_400
TELL_S: Final = 2.0

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

    async def again() -> anyio.abc.Process:
        return (await _begin(shelves, port))[0]

    async def attend(one: anyio.abc.Process) -> None:
        await _tell(one, living)

    async with child.keeping("the server of stores", first, again, attend):
        yield StorePlace(shelves.url or f"http://{shelves.host}:{port}", shelves.secret)


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
    told = (shelves.folder, shelves.size_mib << 20, shelves.host, port, shelves.keep_s)
    return await child.begin(
        ["marketplace.cluster_store.serving", *map(str, told)],
        shelves.secret,
        lambda said: int(json.loads(said)["port"]),
        StoreServerRefused(f"no stores at {shelves.host}:{port}"),
    )
