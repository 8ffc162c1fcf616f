"""``tally service``: replicas of a job behind one address, kept running for as long as the command
does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.shared.consumer import answers, reading
from marketplace.cli.shared.options import (
    DEFAULT_MARKET,
    ChainUrl,
    Home,
    Json,
    ProjectId,
    SubmitUrl,
    Where,
    Yes,
)
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.tables import when
from marketplace.cli.shared.wanted import Change
from marketplace.domain.units import parse_duration_ms

app = typer.Typer(
    help="Replicas of a job behind one address, kept running.", rich_markup_mode=None,
    no_args_is_help=True,
)  # fmt: skip
Name = Annotated[str, typer.Argument(help="The service's name.", metavar="NAME")]
File = Annotated[
    Path,
    typer.Argument(help="A job file with a `service` section; see docs/services.md.",
                   metavar="FILE"),
]  # fmt: skip


@app.command()
def up(
    home: Home,
    file: File,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
) -> None:
    """Start it and keep it running; where it runs already, replace its replicas one after the other
    by what the file says now. Ctrl-C ends the service, SIGTERM leaves it to the next `up`.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))

    async def story() -> int:
        from marketplace.cli.commands import service_keep

        await answers(market)
        return await service_keep.up(where, file, change or [], yes)

    run_story(story)


@app.command()
def down(
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
) -> None:
    """End it: its replicas finish what they have begun, and its address goes."""
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))

    async def story() -> int:
        from marketplace.cli.commands import service_keep

        return await service_keep.down(where, name)

    run_story(story)


@app.command("list")
def listed(home: Home, market: MarketOption = DEFAULT_MARKET, as_json: Json = False) -> None:
    """The account's services."""

    async def story() -> None:
        from marketplace.client.net.answers import ServiceAnswer
        from marketplace.client.net.reading import read_all

        async with reading(Where(market, "", "", home)) as opened:
            found = read_all(ServiceAnswer, await opened.http.all("/v1/services"), "services")
        if as_json:
            print_json(found)
            return
        rows = [
            (
                one["name"],
                f"{sum(r['serving'] for r in one['replicas'])} of {len(one['replicas'])}",
                one["load"]["busy"], one["load"]["held"], one["auth"], one["url"],
            )
            for one in found
        ]  # fmt: skip
        names = ("name", "serving", "busy", "held", "auth", "address")
        print_table("services", names, rows, whole=("name", "address"))

    run_story(story)


@app.command()
def show(
    home: Home, name: Name, market: MarketOption = DEFAULT_MARKET, as_json: Json = False
) -> None:
    """Its replicas, what passes to them, and what its keeper last met with."""

    async def story() -> None:
        from marketplace.cli.commands import service_screen
        from marketplace.client.net.answers import ServiceAnswer
        from marketplace.client.net.reading import read
        from marketplace.client.services.folder import ServiceFolder

        folder = ServiceFolder(home, name)
        async with reading(Where(market, "", "", home)) as opened:
            answer = await opened.http.get(f"/v1/services/{name}")
            view = read(ServiceAnswer, answer, "service")
        service_screen.show(view, folder.standing(), folder.is_kept, as_json)

    run_story(story)


@app.command("open")
def open_service(
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
    browser: Annotated[bool, typer.Option(help="Open the page, where there is a browser.")] = True,
) -> None:
    """Its address, and the page in a browser."""

    async def story() -> None:
        from marketplace.cli.commands import job_open
        from marketplace.client.net.answers import ServiceAnswer
        from marketplace.client.net.reading import read
        from marketplace.client.sdk.ports import Entrance

        async with reading(Where(market, "", "", home)) as opened:
            answer = await opened.http.get(f"/v1/services/{name}")
            view = read(ServiceAnswer, answer, "service")
            out.print(view["url"], markup=False, soft_wrap=True)
            if not browser or not job_open.has_browser():
                return
            entrance = view["url"]
            if view["auth"] != "public":
                entrance = await Entrance.of_service(opened.http, name).ticket()
            if not await job_open.open_entrance(home, entrance):
                out.print("no browser could be started", style="dim")

    run_story(story)


@app.command()
def share(
    home: Home,
    name: Name,
    lasts: Annotated[
        str, typer.Option("--for", help="How long the link opens it: 1m to 30d.", metavar="TIME")
    ] = "1d",
    end: Annotated[str, typer.Option(help="End this link, by its id.", metavar="LINK")] = "",
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """A link that opens it to whoever has it."""

    async def story() -> None:
        from marketplace.client.sdk.ports import Entrance

        async with reading(Where(market, "", "", home)) as opened:
            door = Entrance.of_service(opened.http, name)
            if end:
                await door.end_link(end)
                out.print(f"{end} opens nothing any more", markup=False)
                return
            made = await door.share(parse_duration_ms(lasts))
        if as_json:
            print_json(made)
            return
        out.print(made["url"] or "", markup=False, soft_wrap=True)
        text = f"{made['id']} ends {when(made['expires_at_ms'])}; whoever has it is in"
        out.print(text, markup=False, style="dim", soft_wrap=True)

    run_story(story)
