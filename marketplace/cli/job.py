"""``tally job``: quote, run, list, show, logs, exec, stop, outputs.

Over 400 lines: one command group, one file.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, cast

import anyio
import typer
from rich.progress import Progress, TaskID

from marketplace.cli.common import (
    DEFAULT_MARKET,
    DONE,
    JOB_FAILED,
    ChainUrl,
    Home,
    Json,
    ProjectId,
    Where,
    Yes,
    confirm_spend,
    guarded,
    out,
    print_json,
    print_table,
)
from marketplace.cli.common import Market as MarketOption
from marketplace.cli.consumer import at_market, job_row, offered_text, progress
from marketplace.client import jobfiles
from marketplace.client.handle import Job
from marketplace.client.market import Market
from marketplace.client.payers import Paid
from marketplace.client.runner import Offered
from marketplace.domain.units import show_ada, show_rate

app = typer.Typer(
    help="Quote, run, watch and stop jobs.", no_args_is_help=True, rich_markup_mode=None
)

File = Annotated[
    Path, typer.Argument(help="A job file (YAML or JSON); see docs/jobs.md.", metavar="FILE")
]
Name = Annotated[str, typer.Argument(help="The job's id.", metavar="ID")]
_SETTLE_S: Final = 90.0
_LAST_WORDS_S: Final = 15.0


def _main(story: Callable[[], Coroutine[Any, Any, int | None]]) -> None:
    """Run *story*; its number is the exit code."""
    code = guarded(lambda: anyio.run(story))
    raise typer.Exit(code or DONE)


@app.command()
def quote(
    home: Home,
    file: File,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """Price, ceiling and alternatives for FILE; nothing is reserved or paid."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with at_market(where) as opened:
            answer = await opened.quote(jobfiles.load(file))
        if as_json:
            print_json(answer)
            return
        resource = "core" if answer.get("resource") == "core" else "gpu"
        simulated = "  SIMULATED" if answer.get("simulated") else ""
        out.print(
            f"{answer.get('device')}{simulated}, provider {str(answer.get('provider'))[:16]}…",
            markup=False,
        )
        out.print(f"price    {show_rate(int(answer['rate_micro']), resource)}", markup=False)
        out.print(f"at most  {show_ada(int(answer['ceiling']))}", markup=False)
        rows = [
            (
                str(other.get("provider", ""))[:16],
                other.get("device", ""),
                other.get("why", other.get("rate_micro", "")),
            )
            for other in cast("list[dict[str, Any]]", answer.get("alternatives") or [])
        ]
        print_table("alternatives", ("provider", "device", "why not"), rows)

    _main(story)


@dataclass
class _Screen:
    """Where a running job's output goes: logs to stdout, everything else to stderr."""

    as_json: bool
    bar: Progress
    task: TaskID
    notes: list[str] = field(default_factory=list[str])
    ticks: int = 0
    printed: anyio.Event = field(default_factory=anyio.Event)

    async def paid(self, paid: Paid) -> None:
        """A tick, a note or a stage."""
        if paid.kind == "tick":
            self.ticks += 1
            self.bar.update(self.task, cost=show_ada(paid.spent))
        elif paid.kind == "stage":
            detail = paid.detail or {}
            done, total = detail.get("done"), detail.get("total")
            self.bar.update(
                self.task,
                description=paid.code.lower(),
                completed=int(done) if done is not None else 0,
                total=int(total) if total else None,
            )
        elif paid.kind in ("note", "refused"):
            line = f"{paid.code}: {paid.message}"
            if line not in self.notes:
                self.notes.append(line)
                self.bar.console.print(line, style="yellow", markup=False)

    def line(self, text: str) -> None:
        """A line of the job's own output."""
        stream = sys.stderr if self.as_json else sys.stdout
        stream.write(text + "\n")
        stream.flush()


@app.command()
def run(
    home: Home,
    file: File,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    yes: Yes = False,
    as_json: Json = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the channel open for further jobs.")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help="Return once it is paid for; `tally payer run` must go on."
        ),
    ] = False,
    outputs: Annotated[
        Path | None, typer.Option(help="Fetch the job's outputs into this folder.")
    ] = None,
) -> None:
    """Run FILE: quote, ask, pay, follow its logs; the last line is what it cost."""
    where = Where(market, chain_url, project_id, home)
    loaded = guarded(lambda: jobfiles.load(file))

    async def confirm(offered: Offered) -> bool:
        if not as_json:
            await anyio.to_thread.run_sync(confirm_spend, offered_text(offered), yes)
        elif not yes:
            await anyio.to_thread.run_sync(confirm_spend, "", yes)
        return True

    async def story() -> int:
        async with at_market(where, keep=keep) as opened:
            job = await opened.run(loaded, confirm=confirm)
            if detach:
                _say(
                    job,
                    as_json,
                    {"job": job.id, "state": "STARTING"},
                    f"{job.id} runs; `tally payer run` pays for it",
                )
                return DONE
            with progress() as bar:
                screen = _Screen(
                    as_json, bar, bar.add_task("starting", total=None, cost=show_ada(0))
                )
                code = await _watch(opened, job, screen)
                if outputs is not None:
                    bar.update(screen.task, description="fetching outputs")
                    for path in await job.download(outputs):
                        bar.console.print(f"output {path}", markup=False)
                bar.update(screen.task, description="settling")
                settled = await job.settled(_SETTLE_S) if not keep else False
            _say(job, as_json, _summary(job, screen, settled), _last_line(job, screen))
            return code

    _main(story)


async def _watch(opened: Market, job: Job, screen: _Screen) -> int:
    """Until the job ended: logs, ticks, and a first Ctrl-C that stops it properly."""
    silence = opened.listen(screen.paid)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, job, screen)
            tasks.start_soon(_logs, job, screen)
            await job.wait()
            with anyio.move_on_after(_LAST_WORDS_S):  # what it printed last is still on its way
                await screen.printed.wait()
            tasks.cancel_scope.cancel()
    finally:
        silence()
    return DONE if job.completed else JOB_FAILED


async def _stop_on_signal(job: Job, screen: _Screen) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise KeyboardInterrupt
            asked = True
            screen.bar.console.print("stopping the job; once more leaves it running", markup=False)
            await job.stop()


async def _logs(job: Job, screen: _Screen) -> None:
    await job.running()
    async for line in job.logs():
        screen.line(line)
    screen.printed.set()


def _summary(job: Job, screen: _Screen, settled: bool) -> dict[str, Any]:
    view = job.view
    return {
        "job": job.id,
        "state": job.state,
        "reason": job.reason,
        "exit_code": job.exit_code,
        "spent": job.spent,
        "ceiling": view.get("ceiling"),
        "ticks": screen.ticks,
        "settled": settled,
        "simulated": bool(view.get("simulated")),
        "device": view.get("device"),
        "notes": screen.notes,
    }


def _last_line(job: Job, screen: _Screen) -> str:
    view = job.view
    code = f" (exit code {job.exit_code})" if job.exit_code is not None else ""
    of = f" of at most {show_ada(int(view['ceiling']))}" if view.get("ceiling") else ""
    return f"{job.reason}{code}, {screen.ticks} ticks: {show_ada(job.spent)}{of}"


def _say(job: Job, as_json: bool, summary: dict[str, Any], line: str) -> None:
    del job
    if as_json:
        print_json(summary)
    else:
        out.print(line, markup=False)


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
        async with at_market(where) as opened:
            jobs = await opened.jobs(state=state or None, limit=limit)
        if as_json:
            print_json(jobs)
        else:
            columns = ("job", "name", "state", "spent", "at most", "device")
            print_table("jobs", columns, [job_row(job) for job in jobs])

    _main(story)


@app.command()
def show(
    home: Home,
    name: Name,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """One job: where it stands, what it cost, why it ended."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with at_market(where) as opened:
            view = await opened.job(name).refresh()
        if as_json:
            print_json(view)
            return
        facts = [
            (key, value)
            for key, value in view.items()
            if key not in ("spec", "quote") and value not in (None, "", [])
        ]
        print_table(name, ("", ""), facts)
        out.print(
            f"{view.get('state')} {view.get('reason') or ''}: {show_ada(int(view.get('spent') or 0))}",
            markup=False,
        )

    _main(story)


@app.command()
def logs(
    home: Home,
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until the job ends.")
    ] = False,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
) -> None:
    """What the job printed; kept after its end."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with at_market(where) as opened:
            async for line in opened.job(name).logs(follow=follow):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    _main(story)


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
        async with at_market(where) as opened:
            code, printed = await opened.job(name).execute(command)
        sys.stdout.write(printed)
        sys.stdout.flush()
        return code

    _main(story)


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
        async with at_market(where) as opened:
            job = opened.job(name)
            await job.stop()
            await opened.resume_all()  # nobody else may be paying for it: answer its last receipt
            with anyio.move_on_after(_SETTLE_S):
                await job.wait()
            await job.refresh()
        if as_json:
            print_json(job.view)
        else:
            out.print(f"{job.state} {job.reason}: {show_ada(job.spent)}", markup=False)

    _main(story)


@app.command()
def outputs(
    home: Home,
    name: Name,
    folder: Annotated[
        Path | None, typer.Argument(help="Where to put them; without it they are listed.")
    ] = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    as_json: Json = False,
) -> None:
    """What the job gave back, each file checked against its hash."""
    where = Where(market, chain_url, project_id, home)

    async def story() -> None:
        async with at_market(where) as opened:
            job = opened.job(name)
            if folder is not None:
                for path in await job.download(folder):
                    out.print(str(path), markup=False)
                return
            found = await job.outputs()
        if as_json:
            print_json(found)
        else:
            rows = [(item["path"], item["size"], item["sha256"]) for item in found]
            print_table("outputs", ("path", "bytes", "sha256"), rows)

    _main(story)
