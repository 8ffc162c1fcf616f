"""``tally job``: quote, run, list, show, logs, exec, stop, outputs; ``job_ports`` has more.

What pays is imported when it is called: reading a job takes none of the libraries that build
transactions.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.cli.commands import job_ports
from marketplace.cli.commands.job_ports import Name, run_story
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
from marketplace.cli.shared.prices import Exact, Prices, Source, prices
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import out
from marketplace.cli.shared.tables import JOB_COLUMNS, JOB_DROP, job_row, show_job, show_quote
from marketplace.cli.shared.wanted import (
    Change,
    Cores,
    File,
    Gpu,
    Image,
    Longest,
    Memory,
    Wanted,
    WithCommand,
    command_of,
)
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import parse_duration_ms, parse_money, show_ada

app = typer.Typer(
    help="Quote, run, watch and stop jobs.", no_args_is_help=True, rich_markup_mode=None
)

app.add_typer(job_ports.app)  # unnamed: its commands are among these


@app.command(cls=WithCommand)
def quote(
    ctx: typer.Context,
    home: Home,
    file: File = None,
    image: Image = None,
    gpu: Gpu = None,
    cores: Cores = None,
    memory: Memory = None,
    longest: Longest = None,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    exact: Exact = False,
    price_url: Source = "",
    as_json: Json = False,
) -> None:
    """Price, ceiling and alternatives for FILE, or for IMAGE and COMMAND; nothing is reserved or
    paid.
    """
    where = Where(market, chain_url, project_id, home)
    wanted = Wanted(file, image, gpu, cores, memory, longest, change, command_of(ctx))

    async def story() -> None:
        loaded = wanted.load()
        from marketplace.client.payer.hop_books import has_hop

        async with reading(where) as opened:
            answer = await opened.quote(loaded)
            hop = opened.purse is not None and has_hop(opened.purse.channels, market)
        told = Prices() if as_json else await prices(exact, price_url)
        if as_json:
            print_json(answer)
        else:
            for own, member in zip(loaded.spec.members(), answer.get("members", ()), strict=False):
                out.print(f"member {own.member} {own.role}".strip(), markup=False)
                show_quote(member, told)
            if "members" in answer:
                most = told.amount(int(answer["ceiling"]))
                out.print(f"together at most {most}", markup=False)
            else:
                show_quote(answer, told, hop)
            told.tell()

    run_story(story)


@app.command(cls=WithCommand)
def run(
    ctx: typer.Context,
    home: Home,
    file: File = None,
    image: Image = None,
    gpu: Gpu = None,
    cores: Cores = None,
    memory: Memory = None,
    longest: Longest = None,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
    keep: Annotated[
        str,
        typer.Option(
            help=(
                "How long its channel stays open for your next jobs once it is idle; 0 ends it"
                " with the job."
            )
        ),
    ] = KEEP,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Return once it is agreed to; a `tally payer run` that runs already pays for it.",
        ),
    ] = False,
    outputs: Annotated[
        Path | None, typer.Option(help="Fetch the job's outputs into this folder.")
    ] = None,
    route: Annotated[
        RouteMode,
        typer.Option(
            help=(
                "Who pays the provider: the market's router over your channel to it (routed), a"
                " channel of your own (direct), or the router where you have such a channel (auto)."
            )
        ),
    ] = RouteMode.AUTO,
    exact: Exact = False,
    price_url: Source = "",
) -> None:
    """Run FILE, or IMAGE and COMMAND: quote, ask, pay, follow its logs; the last line is what it
    cost.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    wanted = Wanted(file, image, gpu, cores, memory, longest, change, command_of(ctx))

    async def story() -> int:
        loaded = wanted.load()  # before what pays is imported: a wrong word is told at once
        await answers(where.market)
        from marketplace.cli.shared.paying import Wish, run_job

        told = await prices(exact, price_url)
        wish = Wish(yes, as_json, keep, detach, outputs, route, told)
        if loaded.spec.gang is not None:
            from marketplace.cli.commands.job_gang import run_gang

            return await run_gang(where, loaded, wish)
        return await run_job(where, loaded, wish)

    run_story(story)


@app.command()
def renew(
    name: Name,
    home: Home,
    more: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="So much more, e.g. 7d.")
    ] = "",
    budget: Annotated[
        str, typer.Option(help="The most to add, e.g. '5 ADA'; without it what that time costs.")
    ] = "",
    when_left: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Do it by itself, each time that less than this is left, e.g. 2d.",
        ),
    ] = "",
    day_budget: Annotated[
        str, typer.Option(help="With --when-left: the most that a day may cost, e.g. '2 ADA'.")
    ] = "",
    no_more: Annotated[
        bool, typer.Option("--no-more", help="It is not renewed by itself any more.")
    ] = False,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a running job go on beyond its agreed end, at its price, if its provider agrees."""
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    if no_more == bool(more) or (no_more and when_left):
        raise UsageError("say for how much longer (--for 7d), or --no-more")
    if budget and when_left:
        raise UsageError("with --when-left say --day-budget")
    if day_budget and not when_left:
        raise UsageError("--day-budget is for --when-left")
    longer_ms, left_ms = (parse_duration_ms(said) if said else 0 for said in (more, when_left))
    most, day = (parse_money(said) if said else 0 for said in (budget, day_budget))

    async def story() -> None:
        await answers(where.market)
        from marketplace.cli.commands import job_renew

        if no_more or left_ms:
            rule = None if no_more else job_renew.RenewalRule(longer_ms, left_ms, day)
            await job_renew.by_rule(where, name, rule, yes, as_json)
        else:
            await job_renew.renew(where, name, longer_ms, most, yes, as_json)

    run_story(story)


@app.command("list")
def list_jobs(
    home: Home,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    state: Annotated[str, typer.Option(help="Only jobs in this state.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: Json = False,
) -> None:
    """This purse's jobs, newest first."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with reading(where) as opened:
            jobs = await opened.jobs(state=state or None, limit=limit)
        if as_json:
            print_json(jobs)
        else:
            rows = [job_row(job) for job in jobs]
            print_table("jobs", JOB_COLUMNS, rows, whole=("job",), drop=JOB_DROP)

    run_story(story)


@app.command()
def show(
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    exact: Exact = False,
    price_url: Source = "",
    as_json: Json = False,
) -> None:
    """One job: where it stands, what it cost, why it ended."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        from marketplace.cli.commands.direct_at import direct_at

        async with reading(where) as opened:
            view = await (job := opened.job(name)).refresh()
            direct = [] if as_json else await direct_at(job)
        if as_json:
            print_json(view)
        else:
            from marketplace.cli.commands.own_rule import renews

            show_job(view, market, await prices(exact, price_url), renews(home, view), direct)

    run_story(story)


@app.command()
def logs(
    home: Home,
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until the job ends.")
    ] = False,
    since: Annotated[str, typer.Option(help="Only what came in so lately, e.g. 10m.")] = "",
    grep: Annotated[str, typer.Option(help="Only lines with this text.")] = "",
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
) -> None:
    """What the job printed; kept after its end."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        lately = int(time.time() * 1000) - parse_duration_ms(since) if since else 0
        async with reading(where) as opened:
            async for line in opened.job(name).logs(follow=follow, since_ms=max(lately, 0)):
                if grep in line:
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()

    run_story(story)


@app.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    home: Home,
    name: Name,
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
) -> None:
    """Run COMMAND inside the job's workload; ends with its exit code."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> int:
        async with reading(where) as opened:
            code, printed = await opened.job(name).execute(command)
        sys.stdout.write(printed)
        sys.stdout.flush()
        return code

    run_story(story)


@app.command()
def stop(
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """End a job; what was delivered until then is owed, the rest goes home."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        await answers(where.market)
        from marketplace.cli.shared.paying import SETTLE_S, at_market

        async with at_market(where) as opened:
            job = opened.job(name)
            await job.stop()
            await opened.resume_all()  # nobody else may be paying for it: answer its last receipt
            with anyio.move_on_after(SETTLE_S):
                await job.wait()
            await job.refresh()
        if as_json:
            print_json(job.view)
        else:
            out.print(f"{job.state} {job.reason}: {show_ada(job.spent)}", markup=False)

    run_story(story)


@app.command()
def outputs(
    home: Home,
    name: Name,
    folder: Annotated[
        Path | None, typer.Argument(help="Where to put them; without it they are listed.")
    ] = None,
    signed: Annotated[
        bool, typer.Option("--signed", help="Refuse what its provider did not sign for this purse.")
    ] = False,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """What the job gave back, each file checked against its hash."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with reading(where) as opened:
            job = opened.job(name)
            if folder is not None:
                for path in await job.download(folder, signed=signed):
                    out.print(str(path), markup=False)
                return
            found = await job.outputs(signed=signed)
        if as_json:
            print_json(found)
        else:
            rows = [(item["path"], item["size"], item["sha256"]) for item in found]
            columns = ("path", "bytes", "sha256")
            print_table("outputs", columns, rows, whole=("sha256",), drop=("bytes",))

    run_story(story)
