"""What the consumer's paying commands share: the market with the payer inside, and a running job's
screen.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from marketplace.cli.shared.addresses import addresses
from marketplace.cli.shared.consumer import load_purse
from marketplace.cli.shared.logs import configure_logs
from marketplace.cli.shared.options import Where
from marketplace.cli.shared.prices import Prices
from marketplace.cli.shared.printing import confirm_spend, print_json
from marketplace.cli.shared.refusals import DONE, JOB_FAILED
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.tables import (
    counted,
    fees_note,
    route_note,
    share_note,
    smallest_note,
    start_note,
    with_fees,
)
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.payer.standing_by import somebody_pays
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.patience import CLOSE_AFTER_S
from marketplace.domain.errors import TallyError
from marketplace.domain.metering.kinds import show_units
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import show_ada, show_duration
from marketplace.domain.work.lease import EndReason

SETTLE_S: Final = 90.0
PAY_ON: Final = "`tally payer run` pays for it from here on"
_LAST_WORDS_S: Final = 15.0


@asynccontextmanager
async def at_market(
    where: Where,
    *,
    keep: str = KEEP,
    close_after_s: float = CLOSE_AFTER_S,
    route: RouteMode = RouteMode.AUTO,
) -> AsyncGenerator[Market]:
    """The market of *where*, signed in to with the purse; the payer runs inside."""
    configure_logs()
    purse = await anyio.to_thread.run_sync(load_purse, where.home)
    async with Market(
        where.market,
        wallet=purse,
        chain_url=where.chain_url or None,
        project_id=where.project_id or None,
        submit_urls=where.submit_urls or None,
        keep=keep,
        close_after_s=close_after_s,
        route=route,
    ) as opened:
        yield opened


def offered_text(offered: CheckedQuote, prices: Prices = Prices()) -> str:
    """What is about to be agreed to, in a few lines."""
    terms, quote = offered.quote.terms, offered.quote
    simulated = "  SIMULATED device" if quote.simulated else ""
    lines = [
        f"provider   {terms.provider[:16]}…  {quote.device}{simulated}",
        f"price      {prices.price(terms.rate_micro, terms.resource)} x"
        f" {show_units(terms.units_milli, terms.resource)}",
        f"at most    {prices.amount(terms.ceiling)}"
        f" for up to {show_duration(terms.max_duration_ms)}",
    ]
    if note := share_note(terms.resource, terms.units_milli):
        lines.append(f"share      {note}")
    if quote.route is not None:
        lines.append(
            f"route      over your channel to the market's router: no transaction, and its fee of"
            f" {quote.route.route.route_bps / 100:g} % (at most {show_ada(quote.route.most_fee)})"
        )
        if quote.direct_open:
            direct = f"{show_ada(quote.direct_open)} to the network, for a channel to this provider"
            lines.append(f"or direct  {direct} (`--route direct`)")
    elif offered.fresh:
        lines.append(
            f"channel    a new one with {show_ada(offered.amount)}; what is not used, and the"
            f" {show_ada(offered.reserve)} it needs to exist, come back"
        )
        lines.append(f"start      {start_note(quote.allowance)}")
        if quote.routed is not None and quote.routed.carried:
            lines.append(f"or routed  {route_note(quote.routed, offered.fees, offered.has_hop)}")
    elif offered.amount:
        lines.append(f"channel    an open one, topped up by {show_ada(offered.amount)}")
    else:
        lines.append("channel    one that is open already: nothing to pay in")
    if offered.keep_ms:
        kept = show_duration(offered.keep_ms)
        lines.append(f"           it stays open for {kept} after its last job, for the next one")
    told = fees_note(offered.fees) or "nothing to the network: no transaction is made"
    lines.append(f"fees       {told}")
    if smallest := smallest_note(offered.fees, quote.minimum * offered.fresh):
        lines.append(f"smallest   {smallest}")
    if offered.spent:
        lines.append(
            f"before     {show_ada(offered.spent)} on another provider, within the same budget"
        )
    if note := prices.note():
        lines.append(f"worth      {note}")
    return "\n".join(lines)


def progress() -> Progress:
    """The bar of a running command, on stderr so that stdout stays the job's own."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[cost]}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )


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
                description=_stage(paid.code, detail),
                completed=int(done) if done is not None else 0,
                total=int(total) if total else None,
            )
        elif paid.kind in ("note", "refused", "renewed", "not_renewed"):
            line = f"{paid.code or paid.kind}: {paid.message}"
            if line not in self.notes:
                self.notes.append(line)
                self.bar.console.print(line, style="yellow", markup=False)

    def line(self, text: str) -> None:
        """A line of the job's own output."""
        stream = sys.stderr if self.as_json else sys.stdout
        stream.write(text + "\n")
        stream.flush()


def _stage(code: str, detail: Mapping[str, Any]) -> str:
    """``pulling``, ``at tip``, ``off tip: lagging``."""
    said, why = code.lower().replace("_", " "), detail.get("code")
    return f"{said}: {str(why).replace('_', ' ')}" if code == "OFF_TIP" and why else said


@dataclass(frozen=True)
class Wish:
    """How `tally job run` was asked to run. *running*: told of the job once it runs, in place of
    its addresses and its log; such a one is over when somebody stops it.
    """

    yes: bool
    as_json: bool
    keep: str
    detach: bool
    outputs: Path | None
    route: RouteMode = RouteMode.AUTO
    prices: Prices = field(default_factory=Prices)
    running: Callable[[Market, Job, Progress], Coroutine[Any, Any, None]] | None = None


async def run_job(where: Where, loaded: LoadedJob, wish: Wish) -> int:
    """Quote, ask, pay, follow; the exit code."""

    async def confirm(offered: CheckedQuote) -> bool:
        text = "" if wish.as_json else offered_text(offered, wish.prices)
        await anyio.to_thread.run_sync(confirm_spend, text, wish.yes)
        return True

    async def shown(offered: CheckedQuote) -> None:
        if not wish.as_json:
            out.print(offered_text(offered, wish.prices), markup=False)

    async with at_market(where, keep=wish.keep, route=wish.route) as opened:
        if wish.detach:
            somebody_pays(opened.runner.purse.channels, opened.url)
        silence = opened.listen(_waiting)
        job = await opened.run(loaded, confirm=None if wish.yes else confirm, shown=shown)
        silence()
        if wish.detach:
            summary = {"job": job.id, "state": "STARTING"}
            _say(wish.as_json, summary, f"{job.id} runs; {PAY_ON}")
            return DONE
        with progress() as bar:
            task = bar.add_task("starting", total=None, cost=show_ada(0))
            screen = _Screen(wish.as_json, bar, task)
            code = await _watch(opened, job, screen, wish)
            if wish.outputs is not None:
                bar.update(screen.task, description="fetching outputs")
                for path in await job.download(wish.outputs):
                    bar.console.print(f"output {path}", markup=False)
            bar.update(screen.task, description="settling")
            settled = await job.settled(SETTLE_S)
        fees = await _fees(job)
        summary = {**_summary(job, screen, settled), "network_fees": fees}
        _say(wish.as_json, summary, _last_line(job, screen, fees))
        return code


async def _waiting(paid: Paid) -> None:
    """Nothing is shown yet but what a command waits for."""
    if paid.kind == "wait":
        err.print(f"waiting {paid.message}", markup=False)


async def _watch(opened: Market, job: Job, screen: _Screen, wish: Wish) -> int:
    """Until the job ended: logs, ticks, and a first Ctrl-C that stops it properly."""
    silence = opened.listen(screen.paid)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, job, screen)
            if wish.running is None:
                tasks.start_soon(_logs, opened.url, job, screen)
            else:
                screen.printed.set()
                tasks.start_soon(wish.running, opened, job, screen.bar)
            await job.wait()
            with anyio.move_on_after(_LAST_WORDS_S):  # what it printed last is still on its way
                await screen.printed.wait()
            tasks.cancel_scope.cancel()
    finally:
        silence()
    stopped = wish.running is not None and job.reason == EndReason.CANCELLED
    return DONE if job.completed or stopped else JOB_FAILED


async def _stop_on_signal(job: Job, screen: _Screen) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise KeyboardInterrupt
            asked = True
            screen.bar.console.print(
                "stopping the job; once more stops waiting for it", markup=False
            )
            await job.stop()


async def _logs(market: str, job: Job, screen: _Screen) -> None:
    view = await job.running()
    if view["state"] == "RUNNING":
        for one in addresses(market, view):
            screen.bar.console.print(f"service {one.url}", markup=False, soft_wrap=True)
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
        "ceiling": view["ceiling"],
        "ticks": _ticks(job, screen),
        "settled": settled,
        "kept": job.kept,
        "simulated": bool(view["simulated"]),
        "device": view["device"],
        "notes": screen.notes,
    }


async def _fees(job: Job) -> int | None:
    """What the network took; None where the chain or the market does not say: the job is over."""
    try:
        return await job.network_fees()
    except TallyError as error:
        err.print(f"the network fees are not known: {error.message}", markup=False)
        return None


def _ticks(job: Job, screen: _Screen) -> int:
    """Answered here; or as the market says, where another command of the purse answered them."""
    return max(screen.ticks, job.view["ticks"])


def _last_line(job: Job, screen: _Screen, fees: int | None) -> str:
    view = job.view
    code = f" (exit code {job.exit_code})" if job.exit_code is not None else ""
    of = f", of at most {show_ada(view['ceiling'])}" if view["ceiling"] else ""
    ticks, bill = counted(_ticks(job, screen), "tick"), with_fees(job.spent, fees)
    return f"{job.reason}{code}, {ticks}: {bill}{of}{kept_text([job])}"


def kept_text(jobs: Sequence[Job]) -> str:
    """What is said at the end of *jobs* whose channels stay open; empty if none does."""
    kept = {str(one["channel"]): one for job in jobs for one in job.kept}
    if not kept:
        return ""
    longest = show_duration(max(int(one["keep_ms"]) for one in kept.values()))
    home = show_ada(sum(int(one["comes_home"]) for one in kept.values()))
    many = "channel stays" if len(kept) == 1 else f"{len(kept)} channels stay"
    return f"; {many} open for {longest}, {home} come home then"


def _say(as_json: bool, summary: dict[str, Any], line: str) -> None:
    if as_json:
        print_json(summary)
    else:
        out.print(line, markup=False)
