"""``tally market registry``: a registry of images beside a market."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.cli.shared.options import Market, Port
from marketplace.cli.shared.printing import print_json
from marketplace.domain.units import parse_duration_ms
from marketplace.registry.serving import Plan, serve


def registry(
    market: Market,
    root: Annotated[Path, typer.Option(help="For all that is pushed; made where it is missing.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 5000,
    collect_every: Annotated[
        str, typer.Option(help="Time between two looks for what no image needs any more.")
    ] = "1h",
    idle: Annotated[
        str, typer.Option(help="So long without a push nothing is being pushed.")
    ] = "15m",
) -> None:
    """Keep the images of a market's accounts: Distribution (Debian's docker-registry), which takes
    the market's tokens, until Ctrl-C. The market is started with --registry HOST[:PORT], the name
    under which the world reaches this port. Prints one JSON line when it is ready.
    """

    async def run() -> None:
        await serve(
            Plan(
                market, root.resolve(), host, port, parse_duration_ms(collect_every) / 1000,
                lambda name: print_json({"url": f"http://{host}:{port}", "name": name}),
                parse_duration_ms(idle) / 1000,
            )
        )  # fmt: skip

    anyio.run(run)
