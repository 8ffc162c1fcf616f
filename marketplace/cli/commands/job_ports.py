"""``tally job open | forward | share | shell``: what a running job's workload has inside; ``mesh``:
what those of a cluster have among them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import DEFAULT_MARKET, Home, Json, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import DONE, guarded
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.tables import when
from marketplace.cli.shared.wanted import WithCommand, command_of
from marketplace.domain.errors import Malformed
from marketplace.domain.units import parse_duration_ms

app = typer.Typer()
Name = Annotated[str, typer.Argument(help="The job's id.", metavar="ID")]
WhichPort = Annotated[
    int | None, typer.Argument(min=1, max=65_535, help="Which port, where it has several.")
]


def run_story(story: Callable[[], Coroutine[Any, Any, int | None]]) -> None:
    """Run *story*; its number is the exit code."""
    code = guarded(lambda: anyio.run(story))
    raise typer.Exit(code or DONE)


@app.command("open")
def open_service(
    home: Home,
    name: Name,
    port: WhichPort = None,
    market: MarketOption = DEFAULT_MARKET,
    browser: Annotated[bool, typer.Option(help="Open the page, where there is a browser.")] = True,
    as_json: Json = False,
) -> None:
    """Where a running service is, and its page in a browser."""

    async def story() -> None:
        from marketplace.cli.commands import job_open

        async with reading(Where(market, "", "", home)) as opened:
            one = job_open.chosen(market, await opened.job(name).refresh(), port)
            if as_json:
                print_json({"job": name, "port": one.port, "auth": one.auth, "url": one.url})
                return
            out.print(one.url, markup=False, soft_wrap=True)
            if browser and job_open.has_browser():
                if not await job_open.open_page(opened.http, home, one, name):
                    out.print("no browser could be started", style="dim")
            elif one.auth != "public":
                hint = "with a session or an API key: curl -H 'Authorization: Bearer …' ADDRESS"
                out.print(hint, markup=False, style="dim")

    run_story(story)


@app.command()
def forward(
    home: Home,
    name: Name,
    port: WhichPort = None,
    local: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port here; 0: a free one.")
    ] = None,
    member: Annotated[
        int | None, typer.Option(min=0, help="Which member of a gang, from 0, where ID is one.")
    ] = None,
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """A port of a running job at 127.0.0.1, for any program that speaks TCP."""

    async def story() -> None:
        from marketplace.cli.commands import job_forward

        async with reading(Where(market, "", "", home)) as opened:
            job = await job_forward.member_of(opened, name, member)
            await job_forward.forward(opened, market, job, port, local, as_json)

    run_story(story)


@app.command(cls=WithCommand)
def shell(
    ctx: typer.Context,
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
) -> None:
    """A terminal inside a running job: a shell, or the command after --."""

    async def story() -> None:
        from marketplace.cli.commands import job_shell

        async with reading(Where(market, "", "", home)) as opened:
            await job_shell.shell(opened.job(name), command_of(ctx))

    run_story(story)


@app.command()
def share(
    home: Home,
    name: Name,
    port: WhichPort = None,
    lasts: Annotated[
        str, typer.Option("--for", help="How long the link opens it: 1m to 30d.", metavar="TIME")
    ] = "1d",
    listed: Annotated[bool, typer.Option("--list", help="The links that there are.")] = False,
    end: Annotated[str, typer.Option(help="End this link, by its id.", metavar="LINK")] = "",
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """A link that opens a port of a running job to whoever has it."""

    async def story() -> None:
        from marketplace.cli.commands import job_open

        async with reading(Where(market, "", "", home)) as opened:
            job = opened.job(name)
            one = job_open.chosen(market, await job.refresh(), port)
            door = job.port(one.port)
            if end:
                await door.end_link(end)
                if as_json:
                    print_json({"id": end, "ended": True})
                else:
                    out.print(f"{end} opens nothing any more", markup=False)
            elif listed:
                links = await door.links()
                if as_json:
                    print_json(links)
                    return
                rows = [(link["id"], when(link["expires_at_ms"])) for link in links]
                print_table(f"links to port {one.port}", ("id", "ends"), rows, whole=("id",))
            else:
                made = await door.share(parse_duration_ms(lasts))
                if as_json:
                    print_json(made)
                    return
                out.print(made["url"] or "", markup=False, soft_wrap=True)
                text = f"{made['id']} ends {when(made['expires_at_ms'])}; whoever has it is in"
                out.print(text, markup=False, style="dim", soft_wrap=True)

    run_story(story)


@app.command()
def mesh(
    home: Home,
    name: Annotated[str, typer.Argument(help="A gang's id, or one of its jobs'.", metavar="ID")],
    join: Annotated[
        Path | None,
        typer.Option(help="Join it with a machine of yours, by the WireGuard file that this makes.",
                     metavar="FILE"),
    ] = None,
    stay: Annotated[
        bool,
        typer.Option("--stay", help="With --join: stay, and carry by the market's relay what does"
                                    " not go direct."),
    ] = False,
    endpoint: Annotated[
        str,
        typer.Option(help="With --join: where members reach that machine.", metavar="IPV4:PORT"),
    ] = "",
    lasts: Annotated[
        str, typer.Option("--for", help="With --join: for how long, 1m to 30d.", metavar="TIME")
    ] = "1d",
    leave: Annotated[
        bool, typer.Option("--leave", help="Sign out whoever joined from this --home.")
    ] = False,
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:  # fmt: skip
    """The members of a cluster: what each was ordered, and who hears whom in their network."""

    async def story() -> None:
        from marketplace.cli.commands import job_join, job_mesh

        if join is None and (stay or endpoint):
            raise Malformed("--stay and --endpoint go with --join FILE")
        if join is not None and leave:
            raise Malformed("--join or --leave, not both")
        for_ms = parse_duration_ms(lasts)
        async with reading(Where(market, "", "", home)) as opened:
            if join is not None:
                asked = job_join.Asked(join, for_ms, endpoint, stay)
                await job_join.join(opened, name, asked, as_json)
            elif leave:
                await job_join.leave(opened, name, as_json)
            else:
                await job_mesh.mesh(opened, name, as_json)

    run_story(story)
