"""What the consumer's reading commands share: the purse, and a market to read. No chain is needed.

Commands that pay have :mod:`marketplace.cli.shared.paying`, which takes longer to import.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
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
    purse = await anyio.to_thread.run_sync(load_purse, where.home)
    reader = Reader(
        where.market,
        wallet=purse,
        chain_url=where.chain_url or None,
        project_id=where.project_id or None,
    )
    async with AsyncExitStack() as stack:
        with told_when_silent(where.market):
            opened = await stack.enter_async_context(reader)
        yield opened


def load_purse(home: Path) -> Purse:
    """The purse of *home*; asks for the passphrase where it must."""
    return Purse.load(private_folder(home))
