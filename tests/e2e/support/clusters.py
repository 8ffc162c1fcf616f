"""Clusters of real adapters whose members are plain processes: a market that has enough of them, and
what is told of one that runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from adapter.host.keys import load_keys
from marketplace.cli.embedded.product import PROCESS_ONLY, Embedded
from marketplace.client.clusters.keeper import Change
from marketplace.client.net.http import MarketRefused
from marketplace.client.sdk.gang import Gang
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.metering.reading import Cause
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Gang as Members
from marketplace.domain.work.parts import Isolation, Placement, Policy, Price, Range, Resources
from tests.e2e.support.embedded import PURSE, embedded, until_true

SOON_S: Final = 40
"""Every wait's own bound: nothing here takes half of it."""
ADAPTERS: Final = 4
"""One more than a cluster has members, each on a provider of its own."""
WORK: Final = """
import os, time
print("member", os.environ["TALLY_MEMBER"], "works", flush=True)
while not os.path.exists("done"):
    time.sleep(0.1)
"""


Tell = Callable[["Processes", Market], Awaitable[None]]
Story = Callable[[Tell], None]
World = tuple["Processes", Market]


class Processes(Embedded):
    """Adapters without containers."""

    def find_image(self) -> str:
        return PROCESS_ONLY

    async def host(self, job: Job) -> str:
        """The name of the part that runs *job* now."""
        return await self.named((await job.refresh())["provider"])

    async def named(self, provider: str) -> str:
        """The name of the part that is *provider*."""
        for folder in sorted(self.home.glob("adapter*/keys")):
            keys = await anyio.to_thread.run_sync(load_keys, folder)
            if keys.provider == provider:
                return folder.parent.name
        raise AssertionError(f"{provider} is none of ours")

    def signal(self, name: str, what: signal.Signals) -> None:
        """To the adapter *name* itself, and what of it runs in processes of its own."""
        process = self.parts[name].process
        assert process is not None
        os.kill(process.pid, what)


def spec(name: str, members: int, least: int, assemble_ms: int = 60_000) -> JobSpec:
    return JobSpec(
        name=name,
        image="",
        command=("python3", "-c", WORK),
        resources=(Resources(cpu=Range(250), memory=Range(128)),),
        price=Price(budget=5_000_000),
        placement=Placement(isolation=Isolation.PROCESS),
        policy=Policy(max_duration_ms=600_000, retry_on=("provider_lost",), retry_max=2),
        gang=Members(members, spread=True),
        cluster=Cluster(least, mesh=False, assemble_ms=assemble_ms),
    )


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    async with embedded(folder, Processes, resume_window="2m") as made:
        assert isinstance(made, Processes)
        async with anyio.create_task_group() as starts:
            for at in range(2, ADAPTERS + 1):
                starts.start_soon(made.start_adapter, f"adapter{at}")
        async with Market(
            made.market_url, wallet=await made.consumer(PURSE), chain_url=made.chain_url,
            keep=AT_ONCE,
        ) as market:  # fmt: skip
            yield made, market


class Watched:
    """A cluster that runs, and what was told of it."""

    def __init__(self, gang: Gang) -> None:
        assert gang.keeper is not None
        self.gang, self.said = gang, list[str]()
        gang.keeper.listen(self._told)

    def _told(self, change: Change) -> None:
        self.said.append(change.words)

    async def until_said(self, words: str) -> None:
        async def heard() -> bool:
            return words in self.said

        await until_true(heard, f"{words!r} among {self.said}", SOON_S)

    async def finish(self) -> None:
        """Its members are told to complete, and do."""
        for job in self.gang.members:

            async def told(job: Job = job) -> bool:
                with contextlib.suppress(MarketRefused):  # it comes out of its hold just now
                    return (await job.execute(["touch", "done"]))[0] == 0
                return False

            await until_true(told, f"{job.id} to hear that it is done", SOON_S)
        with anyio.fail_after(SOON_S):
            await self.gang.wait()
        assert self.gang.completed, [job.view for job in self.gang.members]
        await self.until_said("ended")


async def shown(job: Job, name: str) -> str:
    """A file of the member's workspace; empty while it has none, or comes out of its hold just now."""
    with contextlib.suppress(MarketRefused):
        code, said = await job.execute(["cat", name])
        if code == 0:
            return said
    return ""


async def ticked(market: Market, jobs: Sequence[Job], count: int) -> None:
    """Until each was billed for *count* ticks or more of its lease of now."""

    async def enough() -> bool:
        views = [await job.refresh() for job in jobs]
        return all(
            view["ticks"] >= count and job.spent for view, job in zip(views, jobs, strict=True)
        )

    await until_true(enough, f"{count} ticks of {[job.id for job in jobs]}", SOON_S)


async def bill(job: Job, seconds: float = SOON_S) -> Invoice:
    """The job's, once the ledger agrees with it to the lovelace."""
    assert await job.settled(seconds)

    async def agrees() -> Invoice | None:
        made = await job.invoice(verify=True)
        return made if made.reconciled else None

    return await until_true(agrees, f"the settlement of {job.id}", seconds)


def lost_ms(made: Invoice, cause: Cause) -> list[int]:
    """By lease, in order."""
    return [sum(x.ms for x in line.lost if x.cause == cause) for line in made.lines]


def approved(market: Market, lease: str) -> int:
    """What was signed for of *lease*, in lovelace."""
    (held,) = [one for one in market.payers.all if lease in one.terms]
    return held.book.leases[lease].approved
