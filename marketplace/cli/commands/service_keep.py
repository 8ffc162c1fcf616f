"""``tally service up`` and ``down``: the keeper as a command, and what hands it something new."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.paying import at_market
from marketplace.cli.shared.printing import confirm_spend
from marketplace.cli.shared.refusals import DONE
from marketplace.cli.shared.screen import out
from marketplace.client.jobs import jobfiles
from marketplace.client.net.answers import JobQuoteAnswer
from marketplace.client.sdk.market import Market
from marketplace.client.services.folder import KeptElsewhere, ServiceFolder, Wanted
from marketplace.client.services.forecast import load_library
from marketplace.client.services.keeper import Keeper
from marketplace.client.services.stage import Stage
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import show_ada
from marketplace.domain.work.service import Scale, ServiceSpec

SLACK: Final = 2
"""Where the file names no cap: so many times what the dearest scale costs as it is quoted now."""
_LOOK_S: Final = 0.5


class OtherMarket(Refusal):
    """A service of that name is kept here, at another market."""

    code = "SERVICE_ELSEWHERE"
    remedy = "end it there first: `tally service down NAME`, or give this one another name"


async def up(where: Where, file: Path, changes: Sequence[str], yes: bool) -> int:
    """Keep the service of *file*, or hand it to whoever keeps it; the exit code."""
    loaded, service = jobfiles.load_service(file, [jobfiles.setting(one) for one in changes])
    if service.scale.predict:
        await anyio.to_thread.run_sync(load_library)
    folder = ServiceFolder(where.home, service.name)
    if folder.is_there:
        known = folder.wanted()
        if known.market != where.market:
            raise OtherMarket(f"{service.name} is kept at {known.market}")
    async with at_market(where, keep=KEEP) as opened:
        wanted = await _agreed(opened, where, loaded, service, yes)
        folder.want(wanted)
        try:
            with folder.kept():
                await _keep(opened, folder)
            return DONE
        except KeptElsewhere:
            pass
    out.print(f"{service.name} is kept by another command: it replaces the replicas", markup=False)
    await _rolled(folder, wanted.revision)
    return DONE


async def down(where: Where, name: str) -> int:
    """End it, through whoever keeps it or here; the exit code."""
    folder = ServiceFolder(where.home, name)
    folder.end()
    if not folder.is_kept:
        async with at_market(where, keep=KEEP) as opened:
            with folder.kept():
                await _keep(opened, folder)
    while folder.is_there:  # noqa: ASYNC110  another process has it
        await anyio.sleep(_LOOK_S)
    out.print(f"{name} has ended", markup=False)
    return DONE


async def _agreed(
    opened: Market, where: Where, loaded: jobfiles.LoadedJob, service: ServiceSpec, yes: bool
) -> Wanted:
    """What is wanted, once whoever pays has seen what it costs; with its image's digest, so that
    every replica of this revision runs the same.
    """
    pinned = await opened.pinned(loaded)
    quote = await opened.quote(pinned)
    if "members" in quote:
        raise Malformed("a gang is no service")
    each = _per_hour(quote)
    cap = service.most_per_hour or SLACK * each * (service.scale.most + service.surge)
    service = replace(service, most_per_hour=cap)
    text = "\n".join(
        [
            f"service    {service.name}, {_count(service.scale)} of {quote['device']}",
            f"price      {show_ada(each)} an hour each, as it is quoted now",
            f"at most    {show_ada(cap)} an hour for all of them together, whoever runs them",
            f"replaced   each within {show_ada(pinned.spec.price.budget)}, its own budget",
        ]
    )
    await anyio.to_thread.run_sync(confirm_spend, text, yes)
    await opened.runner.upload(pinned)
    return Wanted(where.market, pinned, service)


def _per_hour(quote: JobQuoteAnswer) -> int:
    return -(-quote["rate_micro"] * quote["units_milli"] * 3600 // 1_000_000_000)


def _count(scale: Scale) -> str:
    if scale.least == scale.most:
        return "1 replica" if scale.most == 1 else f"{scale.most} replicas"
    return f"{scale.least} to {scale.most} replicas"


async def _keep(opened: Market, folder: ServiceFolder) -> None:
    def told(line: str) -> None:
        out.print(line, markup=False, highlight=False, soft_wrap=True)

    keeper = Keeper(opened, folder, told)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_on_signal, folder, tasks.cancel_scope)
        await keeper.run()
        tasks.cancel_scope.cancel()


async def _on_signal(folder: ServiceFolder, scope: anyio.CancelScope) -> None:
    """Ctrl-C ends the service, and once more leaves it; SIGTERM leaves it at once."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for one in signals:
            if asked or one is signal.SIGTERM:
                out.print(
                    f"{folder.name} is left as it is: `tally service up` goes on with it, and until"
                    " then nobody pays",
                    markup=False,
                )
                scope.cancel()
                return
            asked = True
            out.print(f"ending {folder.name}; once more leaves it as it is", markup=False)
            folder.end()


async def _rolled(folder: ServiceFolder, revision: str) -> None:
    """Until only replicas of *revision* serve, as its keeper says; or it says why not."""
    said = ""
    while folder.is_kept:
        standing = folder.standing()
        serving = [one for one in standing.replicas if one.stage is Stage.SERVING]
        if standing.revision == revision:
            if serving and all(one.revision == revision for one in standing.replicas):
                out.print(f"{len(serving)} of revision {revision} serve", markup=False)
                return
            if standing.said and standing.said != said:
                said = standing.said
                out.print(said, markup=False, style="yellow")
        await anyio.sleep(_LOOK_S)
