"""The relay as a market's own process: what it carries takes nothing from who serves the API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog

from marketplace.domain.errors import Refusal
from marketplace.domain.work.mesh_relay import RelayPlace

READY_S: Final = 20.0
AGAIN_S: Final = 1.0

log = structlog.get_logger("market")


class RelayRefused(Refusal):
    """The relay's ports could not be had."""

    code = "MESH_RELAY_REFUSED"
    remedy = "give --mesh an IPv4 address of this machine and UDP ports that nobody else has"


@asynccontextmanager
async def relaying(place: RelayPlace) -> AsyncGenerator[None]:
    """A relay at *place* while the block runs; one that ends by itself is begun anew."""
    first = await _begin(place)

    async def keep(one: anyio.abc.Process) -> None:
        try:
            while True:
                await one.wait()
                await one.aclose()
                log.error("the relay of meshes ended", code=one.returncode)
                await anyio.sleep(AGAIN_S)
                try:
                    one = await _begin(place)
                except RelayRefused as refused:
                    log.error("relay", error=refused.line())
        finally:
            if one.returncode is None:
                one.kill()
            with anyio.CancelScope(shield=True):
                await one.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, first)
        yield
        tasks.cancel_scope.cancel()


async def _begin(place: RelayPlace) -> anyio.abc.Process:
    line = [sys.executable, "-m", "marketplace.mesh_relay.serving"]
    made = await anyio.open_process(
        [*line, place.endpoint, str(place.first), str(place.count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
    )  # fmt: skip
    assert made.stdin is not None and made.stdout is not None
    try:
        with anyio.fail_after(READY_S):
            await made.stdin.send(place.secret.hex().encode() + b"\n")
            said = await made.stdout.receive()
    except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        said = b""
    if said.strip() == b"ready":
        return made
    if made.returncode is None:
        made.kill()
    await made.aclose()
    raise RelayRefused(f"no relay at {place.endpoint}:{place.first}+{place.count}")
