"""The SDK over real sockets and a real ledger: from a job to a reconciled invoice."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.chain.channels.finder import ChannelEnded
from marketplace.client.sdk.market import Market, QuoteDeclined
from tests.integration.support.client import ADA, World, spec, story


def test_a_job_from_file_to_reconciled_invoice(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        before = await world.home(purse)
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            job = await market.run(spec())
            provider = world.provider
            lease = await provider.lease()
            held = market.payers.all[0]
            assert held.facts.open_tx and held.facts.session_vk == held.session_vk
            await provider.start(lease)
            await provider.ticks(lease, 4)
            await provider.adapter.finish(lease)
            tx = await provider.settle(held.session_vk, held.facts.open_tx, lease)
            with anyio.fail_after(120):
                view = await job.wait()
            assert (view["state"], job.reason, job.exit_code) == ("ENDED", "COMPLETED", 0)
            assert await job.settled(200)
            bill = await job.invoice(verify=True)
            assert bill.reconciled and bill.owed == 800 * 5 // 1000 == job.spent
            assert [line.ticks for line in bill.lines] == [5] and bill.unsigned == 0
            ended = await provider.look(held.session_vk, held.facts.open_tx)
            assert isinstance(ended, ChannelEnded) and ended.finished_by == tx
            assert ended.claimed == bill.owed and ended.funded == held.facts.amount
            # all that the consumer lost is what it owes and the fee of one plain payment
            after = await world.home(purse)
            assert 0 < before - after - bill.owed < ADA // 2

    story(tmp_path, tell)


def test_a_quote_that_is_not_wanted_costs_nothing(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        before = await world.home(purse)
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:

            async def no(_offered: object) -> bool:
                return False

            with pytest.raises(QuoteDeclined):
                await market.run(spec(), confirm=no)
            (job,) = await market.jobs()
            assert (job["state"], job["reason"]) == ("ENDED", "CANCELLED")
            assert not market.payers.all and await world.home(purse) == before

    story(tmp_path, tell)
