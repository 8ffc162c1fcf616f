"""A channel that will never be leaves no entry that says it is on its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import FundsShort
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet import second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.errors import NotFound
from marketplace.domain.keys import Signer
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.channel_stage import ChannelStage
from tests.integration.client.test_one_open import Consumer, ended
from tests.integration.support.chain import ADA, BY_HAND, World, run
from tests.unit.support.routed import OFFER, ROUTER


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


class Router:
    """A market whose router makes its offer, and says nothing of hops."""

    async def get(self, path: str) -> dict[str, Any]:
        if path != "/v1/router":
            raise NotFound(path)
        return {"offer": OFFER.encode().hex(), "signature": ROUTER.sign(OFFER.encode()).hex()}

    async def post(self, *_: object, **__: object) -> dict[str, Any]:
        return {}


class Swept(Till):
    """The purse's channels are looked over at each of its steps, as the loop beside it may."""

    payers: Payers
    looks = 0

    async def look_over(self) -> None:
        Swept.looks += 1
        await second_output.look(Till(self.purse, self.chain), self.payers, self.purse.channels)

    async def open(self, terms: Agreed, amount: int) -> OutRef:
        await self.look_over()
        return await super().open(terms, amount)

    async def reserve(self, terms: Agreed, pays: int) -> int:
        await self.look_over()
        return await super().reserve(terms, pays)


def looked_over_at_each_step(world: World, folder: Path) -> tuple[Consumer, Swept, Runner]:
    me = Consumer.of(world, folder)
    till = Swept(me.purse, world.chain)
    life = me.life(till)
    till.payers = life.payers
    return me, till, life


def test_a_channel_that_is_just_being_agreed_to_is_not_taken_for_one_that_never_was(
    tmp_path: Path,
) -> None:
    """Its book is written before its terms are signed, and before its transaction is built."""

    async def story(world: World) -> None:
        me, till, life = looked_over_at_each_step(world, tmp_path)
        create = life.payers.create

        async def looked_over(facts: ChannelFacts, session: Signer) -> ChannelPayer:
            made = await create(facts, session)
            await till.look_over()
            return made

        life.payers.create = looked_over
        before = Swept.looks
        held = await life.agreements.accept(me.offered)
        assert Swept.looks == before + 2
        assert held.facts.state is ChannelStage.OPENING and held.facts.open_tx
        world.devnet.mint()
        assert len(await me.outputs()) == 1
        ended(life)

    run(story, block_ms=BY_HAND)


def test_a_hop_that_is_just_being_opened_is_not_taken_for_one_that_never_was(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        _, _, life = looked_over_at_each_step(world, tmp_path)
        router: Any = Router()
        life.hops.http = router
        with pytest.raises(NotFound):  # once it is open, the router says that it knows of none
            await life.hops.ready(ADA)
        [held] = life.payers.all
        assert held.facts.state is ChannelStage.OPENING and held.facts.open_tx
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
