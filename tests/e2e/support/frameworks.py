"""Frameworks for work on several hosts, on clusters of real adapters: what examples/clusters shows
runs as it is there, over the members' own network.

Members are plain processes, that find the framework in a folder which their providers show them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.errors import Refusal
from marketplace.domain.isolation import Isolation
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.parts import Placement, Range, Resources
from tests.e2e.support.clusters import Processes, Watched
from tests.e2e.support.embedded import PURSE, embedded, until_true
from tests.requires import need_bubblewrap, need_devnet, need_mesh

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "clusters"
SOON_S: Final = 180
"""Every wait's own bound, on two cores that run all members."""


class Shown(Processes):
    """Adapters whose processes see the folder *stack*, and that bear vouchers which come late: all
    members, their providers and who pays them share two cores.
    """

    stack: Path

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        path.write_text(f'readable = ["{self.stack}"]\ntick = "5s"\n{path.read_text()}')
        return path


def example(
    name: str, stack: Path, cpu: int = 500, *, memory: int = 2048, changes: Sequence[str] = (),
    **env: str,
) -> LoadedJob:  # fmt: skip
    """It as it is but for *changes* (``key=value``, as typed behind ``--set``), and that it runs in
    plain processes of *memory* MiB, by what is in *stack*.
    """
    loaded = jobfiles.load(EXAMPLES / f"{name}.yaml", [*map(jobfiles.setting, changes)])
    more = {"PATH": os.pathsep.join((str(stack / "bin"), "/usr/bin", "/bin")), **env}
    small = Resources(cpu=Range(cpu), memory=Range(memory))
    spec = replace(
        loaded.spec, image="", env={**loaded.spec.env, **more}, resources=(small,),
        placement=Placement(isolation=Isolation.PROCESS),
    )  # fmt: skip
    return replace(loaded, spec=spec)


def story(
    folder: Path, stack: Path, adapters: int, tell: Callable[[Shown, Market], Awaitable[None]],
    within_s: float = 540,
) -> None:  # fmt: skip
    need_bubblewrap()
    need_devnet()
    need_mesh()
    Shown.stack = stack

    async def main() -> None:
        with anyio.fail_after(within_s):
            async with embedded(folder, Shown, resume_window="2m") as made:
                assert isinstance(made, Shown)
                async with anyio.create_task_group() as starts:
                    for at in range(2, adapters + 1):
                        starts.start_soon(made.start_adapter, f"adapter{at}")
                purse = await made.consumer(PURSE)
                async with Market(
                    made.market_url, wallet=purse, chain_url=made.chain_url, keep=AT_ONCE
                ) as market:
                    await tell(made, market)

    anyio.run(main)


async def said(job: Job) -> str:
    """All that it printed, those of its lost leases too."""
    return "\n".join([line async for line in job.logs(follow=False)])


async def until_printed(job: Job, what: str) -> re.Match[str]:
    """Until *what* is found in what it printed."""
    found = ""

    async def there() -> re.Match[str] | None:
        nonlocal found
        ended = (await job.refresh())["state"] == "ENDED"
        found = await said(job)
        seen = re.search(what, found)
        assert seen or not ended, job.view
        return seen

    try:
        return await until_true(there, f"{what!r}", SOON_S)
    except AssertionError:
        raise AssertionError(f"{what!r} is not in {found[-4000:]}") from None


@contextlib.asynccontextmanager
async def running(made: Shown, market: Market, job: LoadedJob) -> AsyncGenerator[Watched]:
    """A cluster that runs, and of which no process is left however the test ends: a provider that
    was lost comes back for that, and ends what it still ran.
    """
    one = Watched(await market.run_gang(job))
    try:
        await one.until_said("running")
        yield one
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(40):
            with contextlib.suppress(Refusal):  # it has ended
                await one.gang.stop()
            for name, part in list(made.parts.items()):
                if part.process is None or part.process.returncode is not None:
                    await made.start_adapter(name)
            await one.gang.wait()


async def until_complete(one: Watched, within_s: float = 2 * SOON_S) -> None:
    with anyio.fail_after(within_s):
        await one.gang.wait()
    assert one.gang.completed, [(job.view, await said(job)) for job in one.gang.members]
    await one.until_said("ended")
