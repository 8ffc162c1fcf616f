"""``tally store``: what clusters left in the market's stores."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Annotated

import anyio
import typer

from marketplace import rclone
from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import DEFAULT_MARKET, Home, Json, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import Declined, guarded
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.tables import when
from marketplace.domain.work.cluster_store import Store

app = typer.Typer(
    help="What your clusters left in the market's stores: list it, get at it, remove it.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip
Name = Annotated[
    str, typer.Argument(help="The store's name, as `cluster.store` of a job file says.")
]
_MIB = 1 << 20


@app.callback()
def store() -> None:
    """Stores of the market's own (`store: {name: …}` of a job file's `cluster`). They outlive their
    clusters; what nobody used for a month is removed.
    """


@app.command("list")
def list_(home: Home, market: MarketOption = DEFAULT_MARKET, as_json: Json = False) -> None:
    """Your stores, and how much lies in each."""

    async def story() -> None:
        from marketplace.client.sdk import stores

        async with reading(Where(market, "", "", home)) as opened:
            found = await stores.listed(opened)
        if as_json:
            print_json(found)
            return
        rows = [
            (one["name"], f"{one['bytes'] / _MIB:.1f}", one["entries"], when(one["used_at_ms"]))
            for one in found
        ]
        print_table("stores", ("name", "MiB", "files and folders", "last used"), rows)

    run_story(story)


@app.command("rclone", context_settings={"ignore_unknown_options": True})
def rclone_(
    home: Home,
    name: Name,
    arguments: Annotated[
        list[str], typer.Argument(help="What rclone is to do; the store is `store:`.")
    ],
    market: MarketOption = DEFAULT_MARKET,
) -> None:
    """Run this machine's rclone with the store as `store:`, decrypted; it is let in for an hour.

    tally store rclone run-1 -- lsl store: · tally store rclone run-1 -- copy store: ./run-1
    """

    async def story() -> Mapping[str, str]:
        from marketplace.client.sdk import stores

        async with reading(Where(market, "", "", home)) as opened:
            return await stores.environment(opened, name)

    found: Mapping[str, str] = guarded(lambda: anyio.run(story))
    environment = {**os.environ, **found}
    line = [rclone.PROGRAM, *arguments]
    if os.name == "nt":
        raise typer.Exit(subprocess.run(line, env=environment, check=False).returncode)
    # It takes our place: what it asks and says is the user's, it hears signals itself (a mount that
    # is killed stays behind), and its exit code is ours.
    os.execvpe(line[0], line, environment)


@app.command()
def remove(
    home: Home,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """Remove a store with all that lies in it; nothing brings it back."""

    async def story() -> None:
        from marketplace.client.sdk import stores

        asked = f"remove {Store(name).name} with all that lies in it?"
        if not yes and not typer.confirm(asked, err=True):
            raise Declined("nothing was removed")
        async with reading(Where(market, "", "", home)) as opened:
            await stores.removed(opened, name)
        if as_json:
            print_json({"store": name, "removed": True})
        else:
            out.print(f"{name} is gone", markup=False)

    run_story(story)
