"""A provider that never comes back: the payer closes, waits, and brings its money home by
itself.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.node.submit import in_flight
from marketplace.client.sdk.market import Market
from marketplace.domain.work.parts import Placement, Policy, Price
from tests.fakes import working
from tests.integration.support.client import ADA, Provider, World, spec, story, until


@pytest.mark.prove
def test_a_lost_providers_channel_is_closed_and_finished_by_its_payer(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider, purse = world.provider, world.purse()
        async with Market(
            world.url, wallet=purse, chain_url=world.served.url, keep="10m", close_after_s=0
        ) as market:
            await provider.keeps(market)
            job = await market.run(spec())
            lease = await provider.lease()
            await provider.start(lease)
            await provider.ticks(lease, 2)
            (held,) = market.payers.all
            assert held.book.signed > 0
            provider.adapter.socket.stopped = True
            live = provider.adapter.socket.live
            assert live is not None
            await live.close()
            with anyio.fail_after(120):
                await job.wait()
            assert job.reason == "PROVIDER_LOST" and held.end_sent  # though it was to be kept

            async def closing() -> bool:
                found = await provider.look(held.session_vk, held.facts.open_tx)
                return isinstance(found, ChannelView) and found.closing

            for _ in range(300):
                if await closing():
                    break
                await anyio.sleep(0.2)
            else:
                raise AssertionError("nobody closed it")
        # another process goes on: what was asked for, and when, lies in the book
        async with Market(
            world.url, wallet=purse, chain_url=world.served.url, close_after_s=0
        ) as again:
            await again.resume_all()
            (held,) = again.payers.all
            world.served.devnet.advance(3_600_000)
            await until(lambda: held.facts.state == "ENDED")
        found = await provider.look(held.session_vk, held.facts.open_tx)
        assert isinstance(found, ChannelEnded) and found.claimed + found.refunded == found.funded
        assert 97 * ADA < await world.home(purse) < 100 * ADA

    story(tmp_path, tell)


@pytest.mark.prove
def test_what_was_signed_is_paid_by_the_payers_own_finish(tmp_path: Path) -> None:
    """Provider and market sleep through the close period: the debt is paid all the same."""

    async def tell(world: World) -> None:
        purse = world.purse()
        dear = Provider.at(
            world.url, "dear", world.chain, core_rate=2 * ADA * ADA
        )  # 2 ADA a second
        job = spec(
            placement=Placement(providers=(dear.adapter.offer.provider,)),
            price=Price(budget=20 * ADA),
            policy=Policy(max_duration_ms=5_000),
        )
        async with working(dear.adapter):
            await until(lambda: len(world.running.market.directory.offers()) == 2)
            async with Market(
                world.url, wallet=purse, chain_url=world.served.url, close_after_s=0
            ) as market:
                await market.run(job)
                lease = await dear.lease()
                await dear.start(lease)
                await dear.ticks(lease, 2, 500)
                (held,) = market.payers.all
                signed = held.book.signed
                assert signed >= 15 * ADA // 10
                dear.adapter.socket.stopped = True
                live = dear.adapter.socket.live
                assert live is not None
                await live.close()
                await held.end()
                view = await dear.look(held.session_vk, held.facts.open_tx)
                assert isinstance(view, ChannelView) and view.claimed == 0
                till = market.runner.till
                await till.close_view(view)
                world.served.devnet.advance(3_600_000)
                closed = await dear.look(held.session_vk, held.facts.open_tx)
                assert isinstance(closed, ChannelView) and closed.closing
                await until(lambda: market.runner.watch.confirm(held))
                assert held.facts.state == "ENDED"
        found = await dear.look(held.session_vk, held.facts.open_tx)
        assert isinstance(found, ChannelEnded) and found.claimed == signed
        bounty = signed * closed.consts.fee_bps // 10_000  # whoever settles may keep it
        got = sum(u.lovelace for u in await world.chain.utxos(dear.payout))
        assert got == signed - bounty

    # The job is not given up meanwhile: its client would close the channel beside this test.
    story(tmp_path, tell, resume_window_ms=600_000)


def test_while_it_may_come_back_nothing_is_closed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider, purse = world.provider, world.purse()
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            await market.run(spec())
            lease = await provider.lease()
            await provider.start(lease)
            await provider.ticks(lease, 1)
            (held,) = market.payers.all
            await held.end()
            assert not await market.runner.watch.confirm(held)
            assert not await market.runner.watch.confirm(held)
            found = await provider.look(held.session_vk, held.facts.open_tx)
            assert isinstance(found, ChannelView) and not found.closing
            assert found.utxo.ref not in await in_flight(market.runner.till.log)

    story(tmp_path, tell)
