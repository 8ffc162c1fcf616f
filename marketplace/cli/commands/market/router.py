"""``tally market router``: what this market's router holds and risks, and where it is funded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.chain.node.blockfrost import connect
from marketplace.cli.shared.options import ChainUrl, Json, ProjectId
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import out
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.units import show_ada
from marketplace.process.chain_supervisor import MAINNET
from marketplace.router.figures import Figures, figures
from marketplace.router.journal import peek
from marketplace.router.limits import Limits
from marketplace.router.running import Place
from marketplace.system import SystemClock

_NO_CHAIN = 1
"""A magic that is no network's: limits as they are where money is money."""


def router(
    route: Annotated[Path, typer.Option("--route", envvar="TALLY_ROUTE", help="Its folder.")],
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    mainnet: Annotated[bool, typer.Option(help="Without a chain: of mainnet.")] = False,
    as_json: Json = False,
) -> None:
    """What the router holds and risks, its limits, and its address to fund; also while it runs."""

    async def run() -> None:
        purse = await anyio.to_thread.run_sync(Purse.load, route)
        balance, magic, address = -1, MAINNET if mainnet else _NO_CHAIN, ""
        if chain_url:
            chain = await connect(chain_url, project_id)
            till = Till(purse, chain)
            balance, magic, address = await till.balance(), chain.magic, till.address
        limits = await anyio.to_thread.run_sync(Limits.of, route, magic)
        state = await anyio.to_thread.run_sync(peek, Place.of(route).books)
        found = figures(state, limits, SystemClock().now_ms())
        address = address or purse.address(mainnet=mainnet)
        if as_json:
            held = {"address": address, "balance": None if balance < 0 else balance}
            print_json({**held, **asdict(found), "limits": asdict(limits)})
        else:
            _print(address, balance, found, limits, play=magic == DEVNET_MAGIC)

    anyio.run(run)


def _print(address: str, balance: int, found: Figures, limits: Limits, *, play: bool) -> None:
    held = "" if balance < 0 else f" holds {show_ada(balance)}"
    lines = [
        f"fund it at {address}{held}",
        f"hops out: {found.hops_out}, {show_ada(found.locked)} locked: {show_ada(found.signed)} are"
        f" the providers', {show_ada(found.free)} free",
        f"hops in: {found.hops_in}, {show_ada(found.unclaimed)} due and not on chain; leases:"
        f" {found.leases}",
        f"at risk: {show_ada(found.unclaimed)} if it sleeps through a close; at most"
        f" {show_ada(found.young)} in blocks that may be rolled back",
    ]
    if found.forked:
        lines.append(f"{found.forked} hops in contradicted themselves: their proof is in the books")
    if found.recovering:
        lines.append(
            f"{found.recovering} hops out wait for their providers: an old copy of the books was"
            " restored"
        )
    if found.resting:
        lines.append(f"{found.resting} providers' last hops ended: each earns another, a day later")
    lines.append("limits" + (" (a devnet's)" if play else "") + ", of limits.toml:")
    lines += [f"  {name:16}{shown}" for name, shown in limits.lines()]
    out.print("\n".join(lines), markup=False)
