"""The relay as a market's own process: what it carries takes nothing from who serves the API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.abc

from marketplace import child
from marketplace.domain.errors import Refusal
from marketplace.domain.work.mesh_relay import RelayPlace


class RelayRefused(Refusal):
    """The relay's ports could not be had."""

    code = "MESH_RELAY_REFUSED"
    remedy = "give --mesh an IPv4 address of this machine and UDP ports that nobody else has"


@asynccontextmanager
async def relaying(place: RelayPlace) -> AsyncGenerator[None]:
    """A relay at *place* while the block runs; one that ends by itself is begun anew."""

    async def begin() -> anyio.abc.Process:
        return (
            await child.begin(
                [
                    "marketplace.mesh_relay.serving",
                    place.endpoint,
                    str(place.first),
                    str(place.count),
                ],
                place.secret,
                _ready,
                RelayRefused(f"no relay at {place.endpoint}:{place.first}+{place.count}"),
            )
        )[0]

    first = await begin()
    async with child.keeping("the relay of meshes", first, begin, _wait):
        yield


async def _wait(one: anyio.abc.Process) -> None:
    await one.wait()


def _ready(said: bytes) -> None:
    if said.strip() != b"ready":
        raise ValueError(said)
