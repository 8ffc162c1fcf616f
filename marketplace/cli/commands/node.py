"""``tally node``: what a Cardano relay says of itself, read as other relays read it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import anyio
import typer

from marketplace.cli.commands import node_screen
from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.commands.node_files import Relays, write
from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import (
    DEFAULT_MARKET,
    ChainUrl,
    Home,
    Json,
    ProjectId,
    Where,
    Yes,
)
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import UsageError, guarded
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.wanted import WithCommand, command_of
from marketplace.domain.units import parse_duration_ms
from marketplace.domain.work.direct_port import DirectPorts, DirectPortsUnproven

if TYPE_CHECKING:
    from marketplace.chain.node.relay import Reading, Relay
    from marketplace.client.sdk.job import Job
    from marketplace.client.sdk.relay_standing import RelayStanding
    from marketplace.domain.ouroboros.reading import Network

app = typer.Typer(
    help="Cardano relays: job files for them, and how they stand.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
PORT: Final = 3001
HERE: Final = Path()
NOT_AT_TIP: Final = 1


@app.callback()
def node() -> None:
    """Cardano relays: job files for them, and how they stand."""


@app.command()
def probe(
    relays: Annotated[list[str], typer.Argument(help="HOST[:PORT] of each.", metavar="RELAY...")],
    network: Annotated[str, typer.Option(help="mainnet, preprod or preview.")] = "mainnet",
    lag: Annotated[str, typer.Option(help="How old a tip may be.", metavar="TIME")] = "5m",
    every: Annotated[str, typer.Option(help="Look again after so long.", metavar="TIME")] = "1s",
    count: Annotated[int, typer.Option(min=1, help="So many looks.")] = 1,
    within: Annotated[str, typer.Option(help="An answer takes no longer.", metavar="TIME")] = "5s",
    as_json: Json = False,
) -> None:
    """Shake hands by node-to-node, ask for the tip and whether it lives, and say where each stands;
    several are held against each other, too. Exit code 0: all are at the tip.
    """
    from marketplace.chain.node.relay import Relay, tcp
    from marketplace.chain.node.relays_apart import Together
    from marketplace.domain.ouroboros.reading import NETWORKS

    if network not in NETWORKS:
        raise UsageError(f"--network is one of {', '.join(NETWORKS)}")
    places = [_place(one) for one in relays]
    lag_ms, every_s = parse_duration_ms(lag), parse_duration_ms(every) / 1000
    within_s = parse_duration_ms(within) / 1000
    asked = [Relay(tcp(*one), NETWORKS[network], lag_ms, within_s) for one in places]

    async def run() -> bool:
        well, together = False, Together()
        try:
            for turn in range(count):
                if turn:
                    await anyio.sleep(every_s)
                looked = await _look(asked)
                found = await together.judge(list(zip(asked, looked, strict=True)))
                well = all(one.standing.name == "AT_TIP" for one in found)
                _show(relays, found, NETWORKS[network], as_json)
        finally:
            for one in asked:
                await one.__aexit__(None, None, None)
        return well

    if not anyio.run(run):
        raise typer.Exit(NOT_AT_TIP)


@app.command()
def status(
    home: Home,
    jobs: Annotated[list[str], typer.Argument(help="Jobs with `relay:`.", metavar="JOB...")],
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """How rented relays stand: as their providers say, as the market sees them, how old their tips
    were, and what they cost. Exit code 0: each runs, and serves as far as anybody says.
    """
    where = Where(market, chain_url, project_id, home)

    async def story() -> int:
        from marketplace.client.sdk.relay_standing import standing
        from marketplace.system import SystemClock

        async with reading(where) as opened:
            found: list[RelayStanding] = []
            for name in jobs:
                job = opened.job(name)
                view, terms = await job.refresh(), await job.terms()
                told = [one async for one in job.events(follow=False)]
                direct = await _direct(job)
                found.append(standing(view, terms, told, SystemClock().now_ms(), direct))
        node_screen.show(found, as_json)
        return 0 if all(one.serves for one in found) else NOT_AT_TIP

    run_story(story)


@app.command(cls=WithCommand)
def relay(
    ctx: typer.Context,
    image: Annotated[str, typer.Option(help="cardano-node's image, or another relay's.")],
    budget: Annotated[str, typer.Option(help="The most that a relay may cost for --for.")],
    volume_budget: Annotated[str, typer.Option(help="The most that its volume may cost.")],
    folder: Annotated[Path, typer.Argument(help="Where to write them.", metavar="[FOLDER]")] = HERE,
    network: Annotated[str, typer.Option(help="mainnet, preprod or preview.")] = "mainnet",
    count: Annotated[int, typer.Option(min=1, max=16, help="So many relays.")] = 1,
    regions: Annotated[
        str, typer.Option(help="Where, one relay in each, e.g. DE,US.", metavar="REGION,…")
    ] = "",
    same_region: Annotated[
        bool, typer.Option("--same-region", help="Two relays may be in one region.")
    ] = False,
    longest: Annotated[str, typer.Option("--for", help="How long, at first.")] = "30d",
    cores: Annotated[str, typer.Option(help="Cores of each.")] = "2",
    memory: Annotated[str, typer.Option(help="Else what the network needs.")] = "",
    disk: Annotated[str, typer.Option(help="Its volume; else what the network needs.")] = "",
    lag: Annotated[str, typer.Option(help="How old its tip may be.", metavar="TIME")] = "5m",
    port: Annotated[int, typer.Option(min=1024, max=65_535, help="Where it listens.")] = PORT,
    direct: Annotated[
        bool, typer.Option(help="Its port at an address of the provider's own, for its peers.")
    ] = True,
    topology: Annotated[
        Path | None, typer.Option(help="Your own topology file.", exists=True, dir_okay=False)
    ] = None,
    name: Annotated[str, typer.Option(help="What their names begin with.")] = "relay",
) -> None:
    """Write job files for relays: each with a volume for its chain, in a region of its own. What
    stands after -- is run in place of cardano-node.
    """
    wanted = Relays(
        name, network, image, count, tuple(one for one in regions.split(",") if one), budget,
        volume_budget, longest, cores, memory, disk, lag, port, topology, command_of(ctx),
        same_region, direct,
    )  # fmt: skip
    made = guarded(lambda: write(wanted, folder))
    for path in made:
        out.print(f"{path} is written", markup=False)
    out.print(f"begin with `tally job run {made[0]} --detach`", markup=False, style="dim")


@app.command()
def keep(
    home: Home,
    folder: Annotated[Path, typer.Argument(help="With the files that `relay` wrote.")] = HERE,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            help="What `tally volume export` wrote, or a folder of such: a new one begins with it."
        ),
    ] = None,
    hook: Annotated[
        str,
        typer.Option(
            help="Runs at each new address: $RELAY_NAME, $RELAY_PLACE, $RELAY_BEFORE.",
            metavar="COMMAND",
        ),
    ] = "",
    away: Annotated[
        str, typer.Option(help="A provider that is away for so long is lost.", metavar="TIME")
    ] = "15m",
    most: Annotated[int, typer.Option(min=0, help="So many replacements in 24 hours.")] = 3,
    every: Annotated[str, typer.Option(help="A look after so long.", metavar="TIME")] = "10s",
    yes: Yes = False,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
) -> None:
    """Rent the relays of FOLDER, pay for them, start them anew when they end, and begin elsewhere
    when their host is gone. Ctrl-C leaves them as they are.
    """
    where = Where(market, chain_url, project_id, home)

    async def story() -> int:
        from marketplace.cli.commands.node_keep import Wish
        from marketplace.cli.commands.node_keep import keep as keep_relays
        from marketplace.client.relays.core import Rules

        rules = Rules(parse_duration_ms(away), most)
        turn_s = parse_duration_ms(every) / 1000
        return await keep_relays(where, Wish(folder, snapshot, hook, rules, turn_s, yes))

    run_story(story)


async def _direct(job: Job) -> DirectPorts | None:
    """Where its peers reach it, unless nobody can rely on what is told of that."""
    try:
        return await job.direct_ports()
    except DirectPortsUnproven as error:
        err.print(f"{job.id}: {error.message}: {error.remedy}", markup=False)
        return None


async def _look(asked: Sequence[Relay]) -> list[Reading]:
    """Each once, at the same time."""
    from marketplace.system import SystemClock

    found: dict[int, Reading] = {}

    async def one(at: int, relay: Relay) -> None:
        found[at] = await relay.look(SystemClock().now_ms())

    async with anyio.create_task_group() as tasks:
        for at, relay in enumerate(asked):
            tasks.start_soon(one, at, relay)
    return [found[at] for at in range(len(asked))]


def _show(names: Sequence[str], found: Sequence[Reading], network: Network, as_json: bool) -> None:
    if as_json:
        for name, one in zip(names, found, strict=True):
            tip = one.tip
            print_json({
                "relay": name, "standing": one.standing.name, "why": one.why,
                "slot": tip.point.slot if tip else None, "block": tip.block if tip else None,
                "hash": tip.point.hash.hex() if tip else None,
                "tip_at_ms": network.clock.when(tip.point.slot) if tip else None,
                "rtt_ms": one.rtt_ms, "version": one.version,
            })  # fmt: skip
        return
    rows = [
        (
            name, one.standing.name.lower().replace("_", " "),
            one.tip.point.slot if one.tip else "", one.tip.block if one.tip else "",
            f"{one.rtt_ms} ms" if one.tip else "", one.why,
        )
        for name, one in zip(names, found, strict=True)
    ]  # fmt: skip
    print_table("relays", ("relay", "stands", "slot", "block", "answered in", "why"), rows)


def _place(text: str) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPv6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or (host and text.count(":") > 1 and not host.startswith("[")):
        return text.strip("[]"), PORT
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)
