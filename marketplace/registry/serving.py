"""One registry, served: Distribution and the door before it, and a collection now and then."""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import httpx
import structlog
import uvicorn

from marketplace.domain.errors import Refusal, TallyError
from marketplace.registry import distribution
from marketplace.registry.distribution import RegistryFailed, Served
from marketplace.registry.door import IDLE_S, Door

_log = structlog.get_logger("registry")
_TRIES: Final = 60


class NoMarketRegistry(Refusal):
    """The market names no registry, or another one."""

    code = "REGISTRY_NOT_NAMED"
    remedy = "start the market with --registry HOST[:PORT], the name that images will have"


@dataclass(frozen=True)
class Plan:
    """What an operator says: *root* for all files, where to listen, and the seconds between two
    collections; *on_ready* is told the registry's name.
    """

    market: str
    root: Path
    host: str
    port: int
    collect_s: float
    on_ready: Callable[[str], None]
    idle_s: float = IDLE_S


async def serve(plan: Plan) -> None:
    """Until SIGINT or SIGTERM. NoMarketRegistry, RegistryFailed."""
    folder = tempfile.mkdtemp(prefix="tally-")
    try:
        served = await told(plan.market, plan.root, Path(folder) / "registry.sock")
        async with distribution.running(served) as process:
            door = Door(served, plan.idle_s)
            server = _Server(
                uvicorn.Config(
                    door.app, host=plan.host, port=plan.port, log_config=None, access_log=False,
                    lifespan="off", h11_max_incomplete_event_size=64 * 1024,
                )
            )  # fmt: skip
            server.on_started = lambda: plan.on_ready(served.name)

            async def watch() -> None:
                await process.wait()
                server.should_exit = True

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(_signals, server)
                tasks.start_soon(_collect, door, plan.collect_s)
                await server.serve()
                tasks.cancel_scope.cancel()
            await door.aclose()
            if process.returncode is not None:
                code = process.returncode
                raise RegistryFailed(f"{distribution.PROGRAM} ended with code {code}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def told(market: str, root: Path, at: Path) -> Served:
    """What the *market* says of its registry. NoMarketRegistry; RegistryFailed when it is away."""
    try:
        said = (await _asked(f"{market.rstrip('/')}/v1/registry")).json()
        return Served(root, said["name"], said["realm"], said["certificate"], at)
    except (ValueError, KeyError, TypeError):
        raise NoMarketRegistry(f"{market} says of no registry") from None


async def _asked(url: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10) as client:
        for _ in range(_TRIES):
            with suppress(httpx.HTTPError):
                return await client.get(url)
            await anyio.sleep(1)
    raise RegistryFailed(f"{url} does not answer", remedy="start the market first")


async def _collect(door: Door, every_s: float) -> None:
    while True:
        await anyio.sleep(every_s)
        try:
            await door.collect()
        except TallyError as error:
            _log.error("not collected", error=error.line())


async def _signals(server: uvicorn.Server) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, and leaves signals alone: it would end this process by
    the one that it was sent, and Distribution would stay behind.
    """

    on_started: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """None: see the class."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """And say so."""
        await super().startup(sockets)
        if self.started:
            self.on_started()
