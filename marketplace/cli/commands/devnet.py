"""``tally devnet``: a Cardano ledger on this machine, behind a Blockfrost-compatible address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contracts.devnet.server import main as serve
from marketplace.cli.shared.options import Port
from marketplace.cli.shared.refusals import DONE, WORLD_FAILED

app = typer.Typer(
    help="A Cardano ledger on this machine, behind a Blockfrost-compatible address.",
    rich_markup_mode=None,
)


@app.command()
def devnet(
    state: Annotated[Path, typer.Option(help="Where the chain is kept.")] = Path(".tally/devnet"),
    port: Port = 8090,
    block_ms: Annotated[
        int, typer.Option(help="Milliseconds between blocks; 0 makes one for each transaction.")
    ] = 1000,
    like_preprod: Annotated[
        bool,
        typer.Option(
            help="Go as preprod does: blocks by lottery every 20 s, forks, an index that is 20 s"
            " behind, 10 requests a second."
        ),
    ] = False,
) -> None:
    """Serve until Ctrl-C: Blockfrost's API under /api/v0, for any client; any project id will do.

    Money comes from `tally faucet ADDRESS AMOUNT`. Network id 0, magic 42, slot = seconds since
    system_start of /genesis.

    Controls under /devnet: status, faucet, time, blocks, rollback, lag, pace, reward. Every route
    is in /openapi.json; docs/devnet.md says how clients connect and what is not checked.
    """
    asked = ["--state", str(state), "--port", str(port), "--block-ms", str(block_ms)]
    code = serve([*asked, "--like", "preprod"] if like_preprod else asked)
    raise typer.Exit(WORLD_FAILED if code else DONE)
