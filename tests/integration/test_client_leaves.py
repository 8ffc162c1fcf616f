"""A provider that never comes back: the payer closes, waits, and brings its money home by itself."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.chain.channels import ChannelEnded, ChannelView
from marketplace.client.market import Market
from tests.integration.support_client import ADA, World, spec, story, until


@pytest.mark.prove
def test_a_lost_providers_channel_is_closed_and_finished_by_its_payer(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider, purse = world.provider, world.purse()
        async with Market(
            world.url, wallet=purse, chain_url=world.served.url, keep=True, close_after_s=0
        ) as market:
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
            with anyio.fail_after(60):
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
            assert not await market.runner.confirm(held)
            assert not await market.runner.confirm(held)
            found = await provider.look(held.session_vk, held.facts.open_tx)
            assert isinstance(found, ChannelView) and not found.closing
            assert not await market.runner.till.on_its_way(found)

    story(tmp_path, tell)
