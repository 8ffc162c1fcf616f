"""A channel that will never be leaves no entry that says it is on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.chain.errors import FundsShort
from marketplace.client.wallet import second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.money.channel_stage import ChannelStage
from tests.integration.client.test_one_open import Consumer, ended
from tests.integration.support.chain import ADA, BY_HAND, World, run


def test_an_open_that_was_refused_for_good_is_over_once_its_lease_is(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        till = Till(me.purse, world.chain)
        await till.pay(world.wallet("elsewhere").address, 230 * ADA)  # 240 less what it needs
        life = me.life(till)
        with pytest.raises(FundsShort):
            await life.agreements.accept(me.offered)
        [held] = life.payers.all
        await second_output.look(till, life.payers, me.purse.channels)
        assert held.facts.state is ChannelStage.OPENING  # the quote stands: it may be accepted yet
        await held.lease_over(me.terms.lease)
        await second_output.look(till, life.payers, me.purse.channels)
        assert held.facts.state is ChannelStage.ENDED
        ended(life)

    run(story, block_ms=BY_HAND)


def test_an_open_whose_time_passed_is_over_when_no_rollback_can_bring_it_back(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        till = Till(me.purse, world.chain)
        life = me.life(till)
        held = await life.agreements.accept(me.offered)
        await held.lease_over(me.terms.lease, lost=True)
        [record] = await till.log.pending()  # the open alone: the faucet's are not in it
        assert record.until is not None
        world.devnet.mint()
        world.devnet.rollback(1, drop=True)  # every mempool has forgotten it
        left = record.until - (await world.chain.tip()).slot
        world.devnet.advance(1000 * (left + 60))
        await till.follow()
        await second_output.look(till, life.payers, me.purse.channels)
        assert held.facts.state is ChannelStage.OPENING  # a rollback is not over yet
        world.devnet.advance(1000 * 600)
        await second_output.look(till, life.payers, me.purse.channels)
        assert held.facts.state is ChannelStage.ENDED and not await me.outputs()
        ended(life)

    run(story, block_ms=BY_HAND)


def test_an_open_that_waits_for_a_block_or_has_one_is_left(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        till = Till(me.purse, world.chain)
        life = me.life(till)
        held = await life.agreements.accept(me.offered)
        await held.lease_over(me.terms.lease, lost=True)
        for _ in range(2):
            await second_output.look(till, life.payers, me.purse.channels)
            assert held.facts.state is ChannelStage.OPENING
            world.devnet.mint()
        ended(life)

    run(story, block_ms=BY_HAND)
