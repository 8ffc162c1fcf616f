"""``tally devnet``: a Cardano ledger on this machine, behind a Blockfrost-compatible address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contracts.devnet.server import main as serve

app = typer.Typer(help="A Cardano ledger on this machine, behind a Blockfrost-compatible address.")


@app.command()
def devnet(
    state: Annotated[Path, typer.Option(help="Where the chain is kept.")] = Path(".tally/devnet"),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8090,
    block_ms: Annotated[
        int, typer.Option(help="Milliseconds between blocks; 0 makes one for each transaction.")
    ] = 1000,
) -> None:
    """Serve until Ctrl-C. Money comes from `tally faucet ADDRESS AMOUNT`."""
    serve(["--state", str(state), "--port", str(port), "--block-ms", str(block_ms)])
