"""When the channels of a cluster are opened: once every member's provider has accepted, all of them
by one transaction, or none. Seen in the purse's own log of what it signed, and at its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.chain.errors import FundsShort
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.runner import JobOver
from marketplace.client.sdk.gang import Gang
from marketplace.client.sdk.market import Market
from marketplace.client.wallet import one_open
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Gang as Members
from marketplace.domain.work.parts import Price
from marketplace.market.base.records import Channel, Lease
from tests.fakes import Running, spec, until
from tests.integration.support.client import World, story

pytestmark = pytest.mark.prove
COUNT = 3


def crew() -> JobSpec:
    return spec(
        gang=Members(COUNT, spread=True), price=Price(budget=20_000_000),
        cluster=Cluster(COUNT, mesh=False),
    )  # fmt: skip


async def take_members(world: World, market: Market) -> None:
    """From now on each provider takes members of clusters."""
    for one in world.providers:
        one.adapter.offer = replace(one.adapter.offer, cluster_free_ms=180_000)
        await one.adapter.send(wire.OfferPosted(one.adapter.offer, False))

    async def listed() -> bool:
        return sum(bool(o.get("cluster_free_ms")) for o in await market.offers()) == COUNT

    await until(listed)


async def check_nothing_signed(world: World, market: Market, purse: Purse, before: int) -> None:
    """No channel's transaction, nor terms under which one would pay."""
    assert await market.runner.till.log.known() == []
    assert not any(held.terms for held in market.payers.all)
    assert await world.running.market.store.count(Channel) == 0
    assert not any(run.signed for p in world.providers for run in p.adapter.leases.values())
    assert await world.home(purse) == before


def test_no_channel_is_opened_before_all_have_accepted_and_then_all_by_one_transaction(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        purse, last = world.purse(), world.providers[-1].adapter
        asked: list[Running] = []
        fees: list[int] = []

        def waits(run: Running) -> str:
            asked.append(run)
            return "silent"

        async def agree(offers: Sequence[CheckedQuote]) -> bool:
            fees.extend(one.fees.consumer for one in offers if one.fees is not None)
            return True

        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            await take_members(world, market)
            before, last.answer = await world.home(purse), waits
            made: list[Gang] = []

            async def run() -> None:
                made.append(await market.run_gang(crew(), confirm=agree))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await until(lambda: asked and all(p.adapter.leases for p in world.providers[:-1]))
                await anyio.sleep(1.0)  # long enough to sign for two, if anybody would
                await check_nothing_signed(world, market, purse, before)
                (waiting,) = asked
                body, lease = waiting.terms.encode(), waiting.terms.lease
                last.leases[lease] = waiting
                signed = SignedTerms(body, last.signer.sign(body))
                await last.send(wire.LeaseAccepted(lease, signed))
            leases = [await provider.lease() for provider in world.providers]
            (opened,) = await market.runner.till.log.known()
            runs = [run for p in world.providers for run in p.adapter.leases.values()]
            keys = {run.terms.session_vk for run in runs}
            assert len(keys) == COUNT and all(one_open.opens(opened, key) for key in keys)

            # The others start, and wait for the last one in vain.
            for provider, lease in zip(world.providers[:-1], leases, strict=False):
                await provider.start(lease)
            await world.provider.adapter.finish(leases[0], "GROUP_STALLED")
            for provider, lease in zip(world.providers[1:], leases[1:], strict=True):
                await until(lambda p=provider, x=lease: x in p.adapter.stops)
                await provider.adapter.finish(lease, "STOPPED", 143)
            for provider, lease in zip(world.providers, leases, strict=True):
                record = await world.running.market.store.get(Lease, lease)
                await provider.settle(record.session_vk, record.channel_tx, lease)
            (gang,) = made
            await gang.wait()
            for job in gang.members:
                assert await job.settled(200)
            assert gang.spent == 0 and "GROUP_STALLED" in {job.reason for job in gang.members}
            assert 0 < before - await world.home(purse) < sum(fees), "one transaction's fee"

    story(tmp_path, tell, providers=COUNT)


def test_where_one_declines_or_falls_away_or_too_little_is_there_none_is_opened(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        purse, last = world.purse(), world.providers[-1].adapter
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            await take_members(world, market)
            before, honest = await world.home(purse), last.answer
            last.answer = lambda _: "BUSY"
            with pytest.raises(JobOver):
                await market.run_gang(crew())
            await check_nothing_signed(world, market, purse, before)
            last.answer = honest

            async def falls_away(offers: Sequence[CheckedQuote]) -> bool:
                await market.http.post(f"/v1/leases/{offers[-1].quote.terms.lease}/decline", {})
                return True

            with pytest.raises(JobOver):
                await market.run_gang(crew(), confirm=falls_away)
            await check_nothing_signed(world, market, purse, before)
        poor = world.purse("poor", ada=5)
        async with Market(world.url, wallet=poor, chain_url=world.served.url) as market:
            before = await world.home(poor)
            held: list[int] = []

            async def agree(offers: Sequence[CheckedQuote]) -> bool:
                held.extend(one.amount for one in offers)
                return True

            with pytest.raises(FundsShort):
                await market.run_gang(crew(), confirm=agree)
            assert held[0] + 1_500_000 < before < sum(held), "one would have been opened alone"
            assert await market.runner.till.log.known() == []
            assert await world.running.market.store.count(Channel) == 0
            assert await world.home(poor) == before

    story(tmp_path, tell, providers=COUNT)
