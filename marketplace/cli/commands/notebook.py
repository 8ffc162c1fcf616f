"""``tally notebook``: JupyterLab on a rented device, in one's own browser."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
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
from marketplace.cli.shared.prices import Exact, Source, prices
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.wanted import Change, Cores, Gpu, Image, Longest, Memory, Wanted
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import parse_duration_ms

if TYPE_CHECKING:
    from rich.console import Console

    from marketplace.client.jobs.sessions import Program
    from marketplace.client.sdk.job import Job
    from marketplace.client.sdk.market import Market

app = typer.Typer(help="JupyterLab on a rented device.", rich_markup_mode=None)
READY_S: Final = 120.0
SHORTEST_MS: Final = 60_000

Idle = Annotated[
    str,
    typer.Option(help="End it once nobody worked in it for so long; 1m or more.", metavar="TIME"),
]
Before = Annotated[
    str,
    typer.Option(
        "--from",
        help="Take up the files of this session, which has ended; or of the archive at this path.",
        metavar="ID|PATH",
    ),
]


class NothingKept(Refusal):
    """A job that left no files of a session."""

    code = "NO_SESSION_FILES"
    remedy = "name a session that has ended: `tally job outputs ID` shows what one left"


class NotReady(Refusal):
    """The workload runs, and its page does not answer."""

    code = "PAGE_NOT_READY"
    remedy = "`tally job logs ID` says why: the image may lack JupyterLab; Ctrl-C ends the job"


@app.command()
def notebook(
    home: Home,
    image: Image = None,
    gpu: Gpu = None,
    cores: Cores = None,
    memory: Memory = None,
    longest: Longest = None,
    idle: Idle = "30m",
    before: Before = "",
    outputs: Annotated[
        Path | None, typer.Option(help="Fetch its files into this folder when it has ended.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page, where there is a browser.")] = True,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
    exact: Exact = False,
    price_url: Source = "",
) -> None:
    """Quote, ask, pay, open the page; File > Shut Down, Ctrl-C or an idle while ends it, and all
    of /workspace is kept.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    wanted = Wanted(None, None, gpu, cores, memory, longest, change, ())

    async def story() -> int:
        from marketplace.client.jobs.sessions import NOTEBOOK

        idle_ms = parse_duration_ms(idle)
        if idle_ms < SHORTEST_MS:
            raise UsageError("--idle is 1m or more")
        used = image or NOTEBOOK.image_at(market)
        NOTEBOOK.job(used, idle_ms, wanted.settings())  # a wrong word is told at once
        await answers(market)
        with tempfile.TemporaryDirectory(prefix="tally-session-") as folder:
            archive = await _taken_up(before, where, Path(folder)) if before else None
            loaded = NOTEBOOK.job(used, idle_ms, wanted.settings(), archive)
            from marketplace.cli.shared.paying import Wish, run_job

            told = await prices(exact, price_url)
            opens = opening(NOTEBOOK, home, market, browser)
            wish = Wish(yes, as_json, KEEP, False, outputs, prices=told, running=opens)
            return await run_job(where, loaded, wish)

    run_story(story)


async def _taken_up(before: str, where: Where, folder: Path) -> Path:
    """The archive at that path, or the one that the session of that name left, as its provider
    signed it: the next session runs what is in it. NothingKept, OutputUnproven.
    """
    from marketplace.client.jobs.sessions import KEPT

    if (path := Path(before)).is_file():
        return path
    async with reading(where) as opened:
        job = opened.job(before)
        if all(item["path"] != KEPT for item in await job.outputs()):
            raise NothingKept(f"{before} left no files of a session")
        return next(path for path in await job.download(folder, signed=True) if path.is_file())


def opening(
    program: Program, home: Path, market: str, browser: bool
) -> Callable[[Market, Job, Console], Coroutine[Any, Any, None]]:
    """What is done once the job runs: its page, as soon as it answers."""

    async def running(opened: Market, job: Job, console: Console) -> None:
        from marketplace.cli.commands import job_open

        if (await job.running())["state"] != "RUNNING":
            return
        try:
            await ready(opened, job, program)
        except NotReady as not_ready:  # it costs money meanwhile: whoever asked decides
            console.print(not_ready.line(), style="yellow", markup=False)
            return
        one = job_open.chosen(market, await job.refresh(), program.port)
        console.print(f"{program.name} {one.url}", markup=False, soft_wrap=True)
        if browser and job_open.has_browser():
            if not await job_open.open_page(opened.http, home, one, job.id):
                console.print("no browser could be started", style="dim")
        else:
            console.print(f"open it with: tally job open {job.id}", markup=False, style="dim")

    return running


async def ready(opened: Market, job: Job, program: Program) -> None:
    """Until the page answers; NotReady leaves the job running."""
    path = f"/p/{job.id}/{program.port}/{program.ready}"
    with anyio.move_on_after(READY_S):
        while True:
            try:
                await opened.http.text(path)
            except TallyError:  # it does not listen yet
                await anyio.sleep(0.1)
            else:
                return
    raise NotReady(f"{job.id} runs, and its page did not answer for {READY_S:g} s")
