"""``tally node keep``: relays are looked after, and begun elsewhere when their host is gone."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from marketplace.cli.shared.options import Where
from marketplace.cli.shared.paying import at_market
from marketplace.cli.shared.printing import confirm_spend
from marketplace.cli.shared.refusals import DONE, UsageError
from marketplace.cli.shared.screen import out
from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.relays.core import Rules
from marketplace.client.relays.folder import RelayFile
from marketplace.client.relays.keeper import RelayKeeper, Wanted
from marketplace.client.sdk.market import Market
from marketplace.domain.errors import Refusal
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import show_ada, show_duration

CHAIN: Final = "-chain.yaml"


class NoRelays(Refusal):
    """A folder without the two files of any relay."""

    code = "NO_RELAYS"
    remedy = "`tally node relay FOLDER` writes them: NAME.yaml and NAME-chain.yaml"


@dataclass(frozen=True)
class Wish:
    """What the command was asked: see :class:`Wanted`; *yes*: nobody is asked."""

    folder: Path
    snapshot: Path | None
    hook: str
    rules: Rules
    turn_s: float
    yes: bool


async def keep(where: Where, wish: Wish) -> int:
    """Until it is stopped; the exit code."""
    found = pairs(wish.folder)
    async with at_market(where, keep=KEEP) as opened:
        wanted = {name: await wanted_of(opened, wish, *files) for name, files in found.items()}
        await anyio.to_thread.run_sync(confirm_spend, cost(wanted, wish.rules), wish.yes)
        with ExitStack() as held:
            files = {name: RelayFile(where.home, name) for name in wanted}
            for file in files.values():
                held.enter_context(file.held())
            await opened.resume_all()
            async with anyio.create_task_group() as tasks:
                for name, one in wanted.items():
                    tasks.start_soon(RelayKeeper(opened, files[name], one, _told).run)
                await _asked_to_end()
                tasks.cancel_scope.cancel()
    _told("what runs is left as it is: `tally node keep` or `tally payer run` pays for it on")
    return DONE


def pairs(folder: Path) -> dict[str, tuple[Path, Path]]:
    """By name, the files of each relay and of its chain."""
    found = {
        chain.name.removesuffix(CHAIN): (
            chain,
            chain.with_name(chain.name.removesuffix(CHAIN) + ".yaml"),
        )
        for chain in sorted(folder.glob(f"*{CHAIN}"))
    }
    whole = {name: files for name, files in found.items() if files[1].is_file()}
    if not whole:
        raise NoRelays(f"no files of a relay are in {folder}")
    return whole


async def wanted_of(opened: Market, wish: Wish, chain: Path, relay: Path) -> Wanted:
    """With the image's digest, so that what is begun elsewhere is the same."""
    disk, job = jobfiles.load(chain), jobfiles.load(relay)
    mounted = [one.volume for one in job.spec.volumes]
    if not disk.spec.is_volume or disk.spec.name not in mounted or job.spec.relay is None:
        raise UsageError(
            f"{relay} is no relay (`relay:`) that mounts the volume of {chain}: `tally node relay`"
            " writes such files"
        )
    # Of the image alone: which lease the volume's name stands for is another after each loss.
    bare = await opened.pinned(replace(job, spec=replace(job.spec, volumes=())))
    job = replace(bare, spec=replace(bare.spec, volumes=job.spec.volumes))
    return Wanted(disk, job, wish.snapshot, wish.hook, wish.rules, wish.turn_s)


def cost(wanted: dict[str, Wanted], rules: Rules) -> str:
    """What it may come to, in words."""
    once = sum(_budget(one.chain) + _budget(one.relay) for one in wanted.values())
    return "\n".join(
        [
            f"relays     {', '.join(wanted)}",
            f"at most    {show_ada(once)} for what their files say, what runs already included",
            f"replaced   within {show_ada(once)} again each time, for all of them, at most"
            f" {rules.most} times in 24 hours, once their provider was away for"
            f" {show_duration(rules.away_ms)}",
        ]
    )  # fmt: skip


def _budget(job: LoadedJob) -> int:
    return job.spec.price.budget


async def _asked_to_end() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return


def _told(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)
