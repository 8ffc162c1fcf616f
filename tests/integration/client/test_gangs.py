"""A gang from its job file to channels that have ended on chain, and one that is refused half
way.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.sdk.gang import Gang as SdkGang
from marketplace.client.sdk.market import Market, QuoteDeclined
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.parts import Gang, Price
from marketplace.market.base.records import Channel, Job, Lease, OfferRecord
from tests.fakes import spec, until
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.client import ADA, World, story

QUEUED = JOB.replace("max_duration: 1m", "max_duration: 1m, queue: true")


def pair() -> JobSpec:
    return spec(gang=Gang(2, spread=True), price=Price(budget=20_000_000))


async def served(world: World, leases: list[str]) -> None:
    """Both members start, say who they are, tick twice and complete."""
    for at, (provider, lease) in enumerate(zip(world.providers, leases, strict=True)):
        await provider.start(lease)
        await provider.log(lease, f"member {at} here\n".encode())
        await provider.ticks(lease, 2)
    for provider, lease in zip(world.providers, leases, strict=True):
        await provider.adapter.finish(lease)


async def settled(world: World, leases: list[str]) -> None:
    for provider, lease in zip(world.providers, leases, strict=True):
        record = await world.running.market.store.get(Lease, lease)
        await provider.settle(record.session_vk, record.channel_tx, lease)


def test_a_gang_runs_on_two_providers_and_pays_each_its_own(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        seen: list[int] = []

        async def confirm(offers) -> bool:
            seen.extend(offered.quote.terms.ceiling for offered in offers)
            assert await world.running.market.store.count(Channel) == 0, "signed before all quoted"
            return True

        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            gang = await market.run_gang(pair(), confirm=confirm)
            leases = [await provider.lease() for provider in world.providers]
            await served(world, leases)
            await settled(world, leases)
            await gang.wait()
            assert gang.completed and len(seen) == 2
            owed = [p.adapter.leases[x].last for p, x in zip(world.providers, leases, strict=True)]
            assert gang.spent == sum(receipt.lease_owed for receipt in owed if receipt) > 0
            for job in gang.members:
                assert await job.settled(200)
                assert (await job.invoice(verify=True)).reconciled

    story(tmp_path, tell, providers=2)


@pytest.mark.prove
def test_a_member_that_is_quoted_wrongly_ends_all_before_anybody_is_paid(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            before = await world.home(purse)

            async def no(offers) -> bool:
                return False

            with pytest.raises(QuoteDeclined):
                await market.run_gang(pair(), confirm=no)
            runner = market.runner
            known = runner.agreements.know

            # As if the market had quoted the second member for another job than was posted.
            def other(job: str, asked: JobSpec) -> None:
                wrong = asked.env["TALLY_MEMBER"] == "1"
                known(job, replace(asked, image="sha256:" + "cd" * 32) if wrong else asked)

            object.__setattr__(runner.agreements, "know", other)
            with pytest.raises(QuoteRefused):
                await market.run_gang(pair())
            store = world.running.market.store
            await until(
                lambda: (
                    not any(r.signed for p in world.providers for r in p.adapter.leases.values())
                )
            )
            assert await store.count(Channel) == 0

            async def over() -> bool:
                return {lease.state.name for lease in await store.find(Lease)} == {"ENDED"}

            await until(over)
            assert await world.home(purse) == before

    story(tmp_path, tell, providers=2)


async def away(world: World, draining: bool) -> None:
    """The second provider takes no jobs, or takes them again."""
    adapter = world.providers[1].adapter
    await adapter.send(wire.OfferPosted(adapter.offer, draining))

    async def said() -> bool:
        [record] = await world.running.market.store.find(OfferRecord, id=adapter.offer.id)
        return (record.state is OfferState.DRAINING) is draining

    await until(said)


def test_a_gang_that_waits_moves_no_money_until_all_have_quotes(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, why = world.purse(), list[str]()
        store = world.running.market.store
        queued = replace(pair(), policy=replace(pair().policy, queue=True))
        waiting, asked = anyio.Event(), list[int]()

        async def waits(text: str) -> None:
            why.append(text)
            waiting.set()

        async def confirm(offers) -> bool:
            asked.append(len(offers))
            return True

        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            before = await world.home(purse)
            await away(world, True)
            # Given up meanwhile: nothing of it is left at the market.
            async with anyio.create_task_group() as tasks:

                async def give_up() -> None:
                    await waiting.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(give_up)
                await market.run_gang(queued, confirm=confirm, waits=waits)
            assert {job.reason for job in await store.find(Job)} == {"CANCELLED"}

            made: list[SdkGang] = []
            waiting = anyio.Event()

            async def run() -> None:
                made.append(await market.run_gang(queued, confirm=confirm, waits=waits))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await waiting.wait()
                await anyio.sleep(1.5)  # it looks again, and says no more
                assert [line.split(",")[0] for line in why] == ["1 of 2 members fit"] * 2
                assert not asked and await store.count(Lease) == await store.count(Channel) == 0
                assert await world.home(purse) == before
                await away(world, False)
                leases = [await provider.lease() for provider in world.providers]
                await served(world, leases)
                await settled(world, leases)
            assert asked == [2]
            [gang] = made
            await gang.wait()
            assert gang.completed

    story(tmp_path, tell, providers=2)


@pytest.mark.prove
def test_the_command_says_that_it_waits_and_runs_when_there_are_places(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, job = Shell(world), tmp_path / "pair.yaml"
        job.write_text(QUEUED + "gang: {members: 2, spread: true}\n")
        made = await shell.json("wallet", "new")
        world.served.devnet.faucet(made["address"], 200 * ADA)
        await shell.json("purse", "fund", "60 ADA", "--yes")
        await away(world, True)

        async def provide() -> None:
            store = world.running.market.store
            await until_queued(store)
            await away(world, False)
            leases = [await provider.lease() for provider in world.providers]
            await served(world, leases)
            await settled(world, leases)

        async def until_queued(store) -> None:
            async def both() -> bool:
                return await store.count(Job, state=JobState.QUEUED) == 2

            await until(both)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provide)
            done = await shell.tally("job", "run", str(job), "--yes")
            assert done.returncode == 0, done.stderr
            told = [line for line in done.stderr.splitlines() if "waits for places" in line]
            assert len(told) == 1 and "1 of 2 members fit" in told[0]

    story(tmp_path, tell, providers=2)


@pytest.mark.prove
def test_a_gang_by_commands_alone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, job = Shell(world), tmp_path / "pair.yaml"
        job.write_text(JOB + "gang: {members: 2, spread: true}\n")
        made = await shell.json("wallet", "new")
        world.served.devnet.faucet(made["address"], 200 * ADA)
        await shell.json("purse", "fund", "60 ADA", "--yes")
        quote = await shell.json("job", "quote", str(job))
        # The second provider is dearer: 5 and 6 lovelace a core-second, for a minute at most.
        assert [m["rate_micro"] for m in quote["members"]] == [5_000_000, 6_000_000]
        assert quote["ceiling"] == 301 + 361
        shown = await shell.tally("job", "quote", str(job))
        assert "together at most 0.000662 ADA" in shown.stdout
        asked = await shell.tally("job", "run", str(job))  # nobody there to say yes
        assert asked.returncode == 3 and "NOT_CONFIRMED" in asked.stderr

        async def provide() -> None:
            leases = [await provider.lease() for provider in world.providers]
            await served(world, leases)
            await settled(world, leases)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provide)
            done = await shell.tally("job", "run", str(job), "--yes")
            assert done.returncode == 0, done.stderr
            assert "[0] member 0 here" in done.stdout and "[1] member 1 here" in done.stdout
            assert done.stdout.splitlines()[-1].startswith("gang_")
        found = [j for j in await shell.json("job", "list") if j["reason"] == "COMPLETED"]
        assert len({j["gang"] for j in found}) == 1 and len(found) == 2
        for view in found:
            assert (await shell.json("invoice", view["id"], "--verify"))["reconciled"]

    story(tmp_path, tell, providers=2)
