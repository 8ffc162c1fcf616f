"""``tally up`` as a process of its own, as its users start it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from marketplace.cli.embedded.product import Embedded
from tests.e2e.support.embedded import Command, command
from tests.ports import free_port

PORTS: Final = ("--port", "0", "--devnet-port", "0")
_OF: Final = dict[Path, tuple[str, ...]]()


def ports_of(home: Path) -> tuple[str, ...]:
    """The same at each start of one home, and nobody else's in between."""
    if home not in _OF:
        _OF[home] = ("--port", str(free_port()), "--devnet-port", str(free_port()))
    return _OF[home]


@asynccontextmanager
async def up(home: Path) -> AsyncGenerator[tuple[Command, dict[str, str]]]:
    """``tally up`` under *home*, ready, and what it told its users to use."""
    arguments = ("up", "--json", "--home", str(home), "--simulate", "h100x2", *ports_of(home))
    async with command(*arguments) as running:
        await running.until(lambda it: bool(it.out))
        said = running.last
        assert said.pop("ready") is True
        yield running, said


@asynccontextmanager
async def swept(home: Path) -> AsyncGenerator[None]:
    """Afterwards no container of this home's adapter is left."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            place = Embedded(home / "up")
            if place.passphrase_file.exists():
                os.environ["TALLY_PASSPHRASE_FILE"] = str(place.passphrase_file)
                await place.sweep()
