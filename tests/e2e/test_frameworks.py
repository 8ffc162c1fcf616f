"""Frameworks for work on several hosts, on clusters of real adapters: what examples/clusters shows
runs as it is there, over the members' own network, and goes on when a member is lost.

Members are plain processes, that find the framework in a folder which their providers show them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from marketplace.client.jobs import jobfiles
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.errors import Refusal
from marketplace.domain.isolation import Isolation
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.parts import Placement, Range, Resources
from tests.e2e.support.clusters import Processes, Watched
from tests.e2e.support.embedded import PURSE, embedded, until_true
from tests.requires import need_bubblewrap, need_devnet, need_mesh, need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "clusters"
SOON_S: Final = 180
"""Every wait's own bound, on two cores that run all members."""


class Shown(Processes):
    """Adapters whose processes see the folder *stack*."""

    stack: Path

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        path.write_text(f'readable = ["{self.stack}"]\n{path.read_text()}')
        return path


def example(name: str, stack: Path, cpu: int = 500, **env: str) -> LoadedJob:
    """It as it is, but that it runs in plain processes, by what is in *stack*."""
    loaded = jobfiles.load(EXAMPLES / f"{name}.yaml")
    more = {"PATH": os.pathsep.join((str(stack / "bin"), "/usr/bin", "/bin")), **env}
    small = Resources(cpu=Range(cpu), memory=Range(2048))
    spec = replace(
        loaded.spec, image="", env={**loaded.spec.env, **more}, resources=(small,),
        placement=Placement(isolation=Isolation.PROCESS),
    )  # fmt: skip
    return replace(loaded, spec=spec)


def story(
    folder: Path, stack: Path, adapters: int, tell: Callable[[Shown, Market], Awaitable[None]]
) -> None:
    need_bubblewrap()
    need_devnet()
    need_mesh()
    Shown.stack = stack

    async def main() -> None:
        with anyio.fail_after(540):
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


async def until_complete(one: Watched) -> None:
    with anyio.fail_after(2 * SOON_S):
        await one.gang.wait()
    assert one.gang.completed, [(job.view, await said(job)) for job in one.gang.members]
    await one.until_said("ended")


def test_torchrun_trains_over_the_mesh_and_goes_on_where_it_was_when_a_member_is_lost(
    tmp_path: Path,
) -> None:
    stack = need_stack("torch")

    async def tell(made: Shown, market: Market) -> None:
        async with running(made, market, example("torchrun", stack, STEPS="400")) as one:
            first, lost, _ = one.gang.members
            await until_printed(first, r"step [2-9]0 of 400: world 3")
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            joined = await until_printed(lost, r"member 1 is rank \d of 3, from step ([1-9]\d+)")
            kept = re.findall(r"step (\d+) of 400: world 3", await said(first))
            assert joined[1] in kept, "it had no checkpoint: the others' newest is where all go on"
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)
            for job in one.gang.members:
                assert "trained: loss 0.0000" in await said(job)

    story(tmp_path, stack, 4, tell)


def test_ray_works_on_all_members_and_runs_again_what_a_lost_one_had(tmp_path: Path) -> None:
    stack = need_stack("ray")

    async def tell(made: Shown, market: Market) -> None:
        paced = example("ray", stack, cpu=2000, ROUNDS="60", PACE_S="0.2")
        async with running(made, market, paced) as one:
            head, lost, _ = one.gang.members
            nodes = (await until_printed(head, r"of 60: loss \S+ on 3 (.+)"))[1]
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            await until_printed(head, rf"of 60: loss \S+ on 3 (?!{re.escape(nodes)})")
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)
            assert "trained: loss 0.0000" in await said(head)

    story(tmp_path, stack, 4, tell)


def test_hivemind_averages_over_the_mesh_and_takes_in_who_replaces_a_lost_member(
    tmp_path: Path,
) -> None:
    stack = need_stack("hivemind")

    async def tell(made: Shown, market: Market) -> None:
        async with running(made, market, example("hivemind", stack, EPOCHS="30")) as one:
            lost, second, _ = one.gang.members
            await until_printed(second, r"epoch [2-9] of 30: 3 peers")
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            await until_printed(lost, r"member 0 begins at epoch [1-9]")
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)

    story(tmp_path, stack, 4, tell)
