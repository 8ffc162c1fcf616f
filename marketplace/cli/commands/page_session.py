"""What ``tally notebook``, ``tally app`` and ``tally shell`` share: quote, ask, pay, open the page
or sit down, say what the session says; and keep its files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from marketplace.cli.commands import job_shell
from marketplace.cli.shared.consumer import answers, reading
from marketplace.cli.shared.options import Where
from marketplace.cli.shared.prices import prices
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.wanted import Wanted
from marketplace.domain.errors import Fault, Refusal, TallyError
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import parse_duration_ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from marketplace.client.jobs.sessions import Program
    from marketplace.client.sdk.job import Job
    from marketplace.client.sdk.market import Market

READY_S: Final = 120.0
INSTALLS_S: Final = 600.0
GONE_S: Final = 2.0
SHORTEST_MS: Final = 60_000

Idle = Annotated[
    str,
    typer.Option(help="End it once nobody worked in it for so long; 1m or more.", metavar="TIME"),
]
Outputs = Annotated[
    Path | None, typer.Option(help="Fetch its files into this folder when it has ended.")
]
Browser = Annotated[bool, typer.Option(help="Open the page, where there is a browser.")]
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
    remedy = "`tally job logs ID` says why: the image may lack the program; Ctrl-C ends the job"


@dataclass(frozen=True)
class Session:
    """As it was asked for: *image* None for the program's own; *idle* ends it; *before*: whose
    files it takes up; *files* go into its workspace.
    """

    where: Where
    wanted: Wanted
    image: str | None
    idle: str
    before: str
    outputs: Path | None
    browser: bool
    yes: bool
    as_json: bool
    exact: bool
    price_url: str
    files: tuple[Path, ...] = ()

    async def run(self, program: Program) -> int:
        """From the quote to the last file; the exit code."""
        idle_ms, where = parse_duration_ms(self.idle), self.where
        if idle_ms < SHORTEST_MS:
            raise UsageError("--idle is 1m or more")
        used, changes = self.image or program.image_at(where.market), self.wanted.settings()
        program.job(used, idle_ms, changes, None, self.files)  # a wrong word is told at once
        await answers(where.market)
        with tempfile.TemporaryDirectory(prefix="tally-session-") as folder:
            archive = await _taken_up(self.before, where, Path(folder)) if self.before else None
            loaded = program.job(used, idle_ms, changes, archive, self.files)
            from marketplace.cli.shared.paying import Wish, run_job

            told = await prices(self.exact, self.price_url)
            opens = opening(program, where, self.browser)
            wish = Wish(
                self.yes, self.as_json, KEEP, False, self.outputs, prices=told, running=opens
            )
            return await run_job(where, loaded, wish)


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
    program: Program, where: Where, browser: bool
) -> Callable[[Market, Job, Progress], Coroutine[Any, Any, None]]:
    """What is done once the job runs: its page, as soon as it answers; and what the session says
    of itself, until it ends.
    """

    within_s = INSTALLS_S if program.installs else READY_S

    async def running(opened: Market, job: Job, bar: Progress) -> None:
        console = bar.console
        if (await job.running())["state"] != "RUNNING":
            return
        if not program.port:
            await sit(job, bar)
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(said, job, partial(console.print, markup=False, style="yellow"))
            try:
                await ready(opened, job, program, within_s)
            except NotReady as not_ready:  # it costs money meanwhile: whoever asked decides
                console.print(not_ready.line(), style="yellow", markup=False)
                return
            await page(opened, job, console)

    async def page(opened: Market, job: Job, console: Console) -> None:
        from marketplace.cli.commands import job_open

        one = job_open.chosen(where.market, await job.refresh(), program.port)
        console.print(f"{program.name} {one.url}", markup=False, soft_wrap=True)
        if browser and job_open.has_browser():
            if not await job_open.open_page(opened.http, where.home, one, job.id):
                console.print("no browser could be started", style="dim")
        else:
            console.print(f"open it with: tally job open {job.id}", markup=False, style="dim")

    return running


async def sit(job: Job, bar: Progress) -> None:
    """At a terminal of its own, until one leaves it: that ends the session, and so does a refusal.
    Where the line breaks, it goes on.
    """
    from marketplace.client.jobs.sessions import SEAT

    def between(line: str) -> None:
        job_shell.show(f"\r\n{line}\r\n".encode())

    lost: TallyError | None = None
    bar.stop()  # the screen is the terminal's now
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(said, job, between)
            try:
                await job_shell.shell(job, SEAT)
            except TallyError as error:
                lost = error
            tasks.cancel_scope.cancel()
    finally:
        bar.start()
    if isinstance(lost, Fault):
        bar.console.print(lost.line(), style="yellow", markup=False)
        bar.console.print(f"back to it: tally job shell {job.id}", markup=False, style="dim")
        return
    with anyio.move_on_after(GONE_S):  # the workload itself may be what ended
        while (await job.refresh())["state"] == "RUNNING":  # noqa: ASYNC110  asked, untold
            await anyio.sleep(0.2)
        return
    await job.stop()
    if lost is not None:
        raise lost


async def said(job: Job, show: Callable[[str], None]) -> None:
    """What the session says of itself, among the lines of its program."""
    from marketplace.client.jobs.in_session import SAYS

    async for line in job.logs():
        if line.startswith(SAYS):
            shown = "".join(c if c.isprintable() else " " for c in line)
            show(shown)


async def ready(opened: Market, job: Job, program: Program, within_s: float = READY_S) -> None:
    """Until the page answers; NotReady leaves the job running."""
    path = f"/p/{job.id}/{program.port}/{program.ready}"
    with anyio.move_on_after(within_s):
        while True:
            try:
                await opened.http.text(path)
            except TallyError:  # it does not listen yet
                await anyio.sleep(0.1)
            else:
                return
    raise NotReady(f"{job.id} runs, and its page did not answer for {within_s:g} s")
