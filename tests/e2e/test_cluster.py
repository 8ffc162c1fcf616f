"""Clusters of real adapters: nobody is billed before all run, a lost member is replaced while the
others are held or run on, and a cluster that never assembles costs nothing.

Members are plain processes, and no network is between them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

import anyio
import anyio.to_thread
import pytest
from anyio.from_thread import start_blocking_portal

from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.sdk.market import Market
from marketplace.domain.metering.reading import Cause
from tests.e2e.support.clusters import (
    SOON_S,
    Processes,
    Story,
    Tell,
    Watched,
    approved,
    bill,
    lost_ms,
    spec,
    ticked,
    world,
)
from tests.e2e.support.embedded import until_true
from tests.requires import need_bubblewrap, need_devnet

pytestmark = [pytest.mark.prove, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Tells what is given of one market for all tests here: to start its parts takes the longest."""
    need_bubblewrap()
    need_devnet()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(world(tmp_path_factory.mktemp("clusters"))) as there,
    ):

        async def bounded(tell: Tell) -> None:
            with anyio.fail_after(90):
                await tell(*there)

        yield lambda tell: portal.call(bounded, tell)


def test_one_of_which_half_never_starts_ends_and_costs_nothing(story: Story) -> None:
    async def tell(made: Processes, market: Market) -> None:
        stopped = ""

        async def agree(offers: Sequence[CheckedQuote]) -> bool:
            nonlocal stopped
            stopped = await made.named(offers[1].quote.terms.provider)
            made.signal(stopped, signal.SIGSTOP)  # it has quoted, and never hears of its lease
            return True

        try:
            gang = await market.run_gang(spec("half", 2, least=2, assemble_ms=3000), confirm=agree)
            one = Watched(gang)
            await one.until_said("assembling 1 of 2")
            await one.until_said("ended")
        finally:
            if stopped:
                made.signal(stopped, signal.SIGCONT)
        with anyio.fail_after(SOON_S):
            await gang.wait()
        reasons = {job.reason for job in gang.members}
        assert "GROUP_STALLED" in reasons and "COMPLETED" not in reasons, reasons
        assert gang.spent == 0 and "running" not in one.said
        for job in gang.members:
            assert (await bill(job)).owed == 0

    story(tell)


def test_a_lost_member_is_replaced_while_the_others_are_held_or_run_on(story: Story) -> None:
    async def tell(made: Processes, market: Market) -> None:
        held = Watched(await market.run_gang(spec("all-or-none", 3, least=3)))
        shrinks = Watched(await market.run_gang(spec("two-will-do", 3, least=2)))
        both = (held, shrinks)
        for one in both:
            await one.until_said("running")
        await ticked(market, [job for one in both for job in one.gang.members], 2)
        where = [{await made.host(job): job for job in one.gang.members} for one in both]
        dies = next(name for name in where[0] if name in where[1])
        lost = [by[dies] for by in where]
        leases = [str((await job.refresh())["lease"]) for job in lost]
        made.signal(dies, signal.SIGKILL)

        await held.until_said("held: 1 of 3 is missing, unbilled")
        await shrinks.until_said("running with 2 of 3")
        paid = [approved(market, lease) for lease in leases]

        async def elsewhere() -> bool:
            views = [await job.refresh() for job in lost]
            return not {view["lease"] for view in views} & {"", *leases}

        await until_true(elsewhere, "other places", SOON_S)
        assert dies not in {await made.host(job) for job in lost}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.start_adapter, dies)  # it comes back, and bills on what it ran
            for one in both:

                async def again(one: Watched = one) -> bool:
                    return one.said.count("running") == 2

                await until_true(again, f"all of it again: {one.said}", SOON_S)
        await ticked(market, lost, 1)
        async with anyio.create_task_group() as tasks:
            for one in both:
                tasks.start_soon(one.finish)
        assert [approved(market, lease) for lease in leases] == paid, "nothing after it was lost"
        await check_bills(held, shrinks, leases)

    story(tell)


async def check_bills(held: Watched, shrinks: Watched, lost: Sequence[str]) -> None:
    """Each member's, once the ledger agrees: what it waited is there, and is not charged."""
    for one, stalls in ((held, True), (shrinks, False)):
        waited = 0
        for job in one.gang.members:
            made = await bill(job)
            waited += sum(lost_ms(made, Cause.ASSEMBLING))
            (went_on,) = [line for line in made.lines if line.lease not in lost]
            assert went_on.final and went_on.owed > 0
            held_ms = sum(lost_ms(made, Cause.GROUP_STALLED))
            assert (held_ms > 0) == (stalls and len(made.lines) == 1), made.lines
            for line in made.lines:
                billed = line.unit_ms * 1000 // line.units_milli
                assert billed + sum(x.ms for x in line.lost) <= line.lease_ms + 1000, line
            assert job.spent == sum(total.signed for total in made.channels)
            assert job.spent == sum(total.claimed or 0 for total in made.channels)
        assert waited, "who is there first waits unbilled"
