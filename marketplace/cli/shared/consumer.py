"""What the consumer's reading commands share: the purse, and a market to read. No chain is needed.

Commands that pay have :mod:`marketplace.cli.shared.paying`, which takes longer to import.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.silence import told_when_silent
from marketplace.client.sdk.read_only import Reader
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder


@asynccontextmanager
async def reading(where: Where) -> AsyncGenerator[Reader]:
    """The market of *where*, signed in to with the purse; nothing is paid."""
    reader = Reader(
        where.market, chain_url=where.chain_url or None, project_id=where.project_id or None
    )
    async with reader:
        with told_when_silent(where.market):
            await reader.knock()  # before the purse, whose passphrase takes its time
        purse = await anyio.to_thread.run_sync(load_purse, where.home)
        with told_when_silent(where.market):
            await reader.enter(purse)
        yield reader


async def answers(market: str) -> None:
    """Returns once *market*, an address, answered. Commands that pay ask it first: what they import
    and unlock takes longer than somebody with a wrong address should wait to hear of it.
    """
    async with Reader(market) as reader:
        with told_when_silent(market):
            await reader.knock()


def load_purse(home: Path) -> Purse:
    """The purse of *home*; asks for the passphrase where it must."""
    return Purse.load(private_folder(home))
