"""One channel, several processes of one purse: who agrees has it, and pays for all its leases."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from marketplace.client.jobs import agreements
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.payer import journal as books
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.domain.work.parts import Policy
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.client.test_kept import command, opened, ran
from tests.integration.support.client import World, spec, story, until

LONG = Policy(max_duration_ms=600_000)


async def began(world: World, number: int) -> str:
    """The *number*-th lease, started."""
    lease = await world.provider.lease(number)
    await world.provider.start(lease)
    return lease


def test_two_processes_pay_over_one_channel_each_while_it_has_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        async with command(world, purse) as one:
            await provider.keeps(one)
            first = await one.run(spec(name="first", policy=LONG))
            leases = [await began(world, 1)]
            await provider.ticks(leases[0], 2)
            async with command(world, purse) as two:
                second = await two.run(spec(name="second"))
                leases.append(await began(world, 2))
                (held,) = two.payers.all  # handed on, with what the first had signed
                assert one.payers.all == () and held.book.signed == 2
                for lease in leases * 2:
                    await provider.ticks(lease, 1)
                assert one.runner.channels.told(first.id) == 4  # read from the book
                await provider.adapter.finish(leases[1])
                await second.wait()
                assert second.completed and second.spent >= 2
            await until(lambda: one.payers.all)  # the second is gone: taken up again
            await provider.ticks(leases[0], 2)
            await provider.adapter.finish(leases[0])
            await first.wait()
            assert first.completed and first.spent >= 6
            assert [row["comes_home"] > 0 for row in first.kept] == [True]
        (channel,) = opened(purse)
        book = books.peek(purse.channels, channel)
        assert set(leases) == set(book.terms) == book.final and not book.end_sent
        assert book.book.signed == first.spent + second.spent

    story(tmp_path, tell)


def test_who_pays_for_all_looks_after_a_job_that_another_left_to_it(tmp_path: Path) -> None:
    """On a channel that it had already: its retries, its renewals and its end are this one's."""

    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        async with command(world, purse) as payer:
            await provider.keeps(payer)
            first = await payer.run(spec(name="first", policy=LONG))
            lease = await began(world, 1)
            await provider.ticks(lease, 1)
            async with command(world, purse) as other:
                left = await other.run(spec(name="left", policy=LONG))
                later = await began(world, 2)
                await provider.ticks(later, 1)
            await until(lambda: payer.payers.all)
            assert not payer.runner.follows(left.id)
            assert await payer.resume_all() == [left.id]
            await until(lambda: payer.runner.follows(left.id))
            assert await payer.resume_all() == []
            for one in (lease, later):
                await provider.ticks(one, 1)
                await provider.adapter.finish(one)
            await first.wait()
            await until(lambda: not payer.runner.follows(left.id))

    story(tmp_path, tell)


async def done(world: World, job: Job) -> None:
    """*job* served, and paid to its end."""
    with anyio.fail_after(180):
        lease = (await job.refresh())["lease"]
        await world.provider.start(lease)
        await world.provider.ticks(lease, 1)
        await world.provider.adapter.finish(lease)
        await job.wait()
    assert job.completed


@pytest.mark.parametrize("kept", [False, True], ids=["a new channel", "a kept one"])
def test_who_is_at_a_prompt_keeps_nobody_from_posting(tmp_path: Path, kept: bool) -> None:
    """Neither the turn to post nor a channel is held meanwhile; what is agreed to is what was
    shown.
    """

    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        asked, answer, waits = anyio.Event(), anyio.Event(), list[str]()

        async def person(_offered: CheckedQuote) -> bool:
            asked.set()
            await answer.wait()
            return True

        async def heard(paid: Paid) -> None:
            if "agrees to a job" in paid.message:
                waits.append(paid.message)

        async def at_a_prompt(market: Market) -> None:
            await done(world, await market.run(spec(name="asked"), confirm=person))

        async with command(world, purse) as one, command(world, purse) as two:
            await provider.keeps(one)
            if kept:
                await ran(world, two, 1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(at_a_prompt, one)
                await asked.wait()
                two.listen(heard)
                await done(world, await two.run(spec(name="other")))
                assert not waits
                answer.set()
        assert len(opened(purse)) == 2 - kept

    story(tmp_path, tell)


def test_who_was_asked_is_asked_again_if_more_has_to_be_paid_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the channel had for it went to a job that was agreed to meanwhile."""
    monkeypatch.setattr(agreements, "ROOM", 0)

    async def tell(world: World) -> None:
        purse, provider, shown = world.purse(), world.provider, list[int]()
        async with command(world, purse) as one, command(world, purse) as two:
            await provider.keeps(one)
            await ran(world, two, 1)

            async def person(offered: CheckedQuote) -> bool:
                shown.append(offered.amount)
                if len(shown) == 1:
                    await two.run(spec(name="second", policy=LONG))
                return True

            await one.run(spec(name="first", policy=LONG), confirm=person)
        assert len(shown) == 2 and shown[0] < shown[1], shown

    story(tmp_path, tell)


@asynccontextmanager
async def running(shell: Shell, file: Path) -> AsyncGenerator[anyio.abc.Process]:
    words = [sys.executable, "-m", "marketplace.cli.main", "job", "run", str(file), "--yes"]
    async with await anyio.open_process(words, env=shell.env, stdin=-3) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.prove
def test_a_killed_process_leaves_its_channel_to_the_next_which_pays_on(tmp_path: Path) -> None:
    """kill -9 while it signs for the other's lease as well: neither is unpaid, nothing is signed
    twice, no lock stays.
    """

    async def tell(world: World) -> None:
        purse, provider, shell = world.purse(), world.provider, Shell(world)
        file = tmp_path / "job.yaml"
        file.write_text(JOB.replace("cpu: 1", "cpu: 0.5"))
        async with command(world, purse) as one:
            await provider.keeps(one)
            first = await one.run(spec(name="first", policy=LONG))
            leases = [await began(world, 1)]
            await provider.ticks(leases[0], 2)
            async with running(shell, file) as killed:
                leases.append(await began(world, 2))
                assert one.payers.all == ()
                for lease in leases:
                    await provider.ticks(lease, 1)
                (channel,) = opened(purse)
                assert books.holder(purse.channels, channel) == killed.pid
                killed.send_signal(signal.SIGKILL)
                await killed.wait()
            await until(lambda: one.payers.all)
            (held,) = one.payers.all
            signed = held.book.signed
            assert signed >= 3 and set(held.terms) == set(leases)
            for lease in leases:  # the killed one's goes on: whoever holds the channel pays
                await provider.ticks(lease, 1)
            for lease in leases:
                await provider.adapter.finish(lease)
            await first.wait()
            await until(lambda: held.final == set(leases))
            assert first.completed and signed < held.book.signed
        assert opened(purse) == [channel]
        journal, _ = books.Journal.hold(purse.channels, channel)  # nobody holds it
        journal.close()

    story(tmp_path, tell)
