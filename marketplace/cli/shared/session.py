"""Opens what a spending command needs: a key from the encrypted keystore, and the chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from marketplace.cli.shared.logs import configure_logs
from marketplace.cli.shared.refusals import UsageError
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder

if TYPE_CHECKING:
    from marketplace.chain.actions.session import Desk
    from marketplace.chain.node.blockfrost import ChainReader
    from marketplace.client.wallet.chain_wallet import Till


async def chain(url: str, project_id: str, submit_urls: Sequence[str] = ()) -> ChainReader:
    """The chain at *url*; a usage error when none is named."""
    if not url:
        raise UsageError("no chain is named: give --chain-url or TALLY_CHAIN_URL")
    from marketplace.chain.node.blockfrost import connect

    return await connect(url, project_id, submit_urls=submit_urls)


async def desk(
    home: Path,
    name: str,
    url: str,
    project_id: str,
    *,
    asset: str = "",
    submit_urls: Sequence[str] = (),
) -> Desk:
    """A wallet of key *name* on the chain at *url*, with its transaction log in *home*."""
    from marketplace.chain.actions.session import Desk
    from marketplace.chain.node.submit import FileLog

    configure_logs()
    purse = Purse.load(home, name=name)
    reader = await chain(url, project_id, submit_urls)
    log = FileLog(private_folder(home) / f"{name}.transactions")
    return Desk(reader, purse.wallet(mainnet=reader.mainnet), asset, log)


async def till(
    home: Path, name: str, url: str, project_id: str, submit_urls: Sequence[str] = ()
) -> Till:
    """A purse of key *name* at the chain at *url*: it spends one transaction at a time."""
    from marketplace.client.wallet.chain_wallet import Till

    configure_logs()
    purse = Purse.load(private_folder(home), name=name)
    return Till(purse, await chain(url, project_id, submit_urls))
