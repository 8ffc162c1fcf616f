"""Claims against a consumer who keeps the mempool one transaction ahead: built behind what waits,
they land; what waits is followed by its outputs, and a claim behind one that is gone is made anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marketplace.chain.actions.session import settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.mempool import Mempool
from marketplace.chain.node.submit import MemoryLog
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Round, Wanted
from marketplace.chain.settlement.watchtower import Watchtower
from marketplace.domain.money.channel import TopUp
from tests.integration.adapter.test_treasury import signed
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.integration.support.spam import HiddenMempool, held, mint, starving

SIGNED = 150 * ADA  # above the 100 ADA from which an adapter claims while the channel goes on


def story(body: Callable[[World], Awaitable[None]]) -> None:
    run(body, block_ms=BY_HAND)


def wanted(live: Live, provider: Provider, cumulative: int) -> Wanted:
    voucher = live.voucher(cumulative)
    return Wanted(live.session.verify_key, live.ref, voucher, provider.payout_address, drain=True)


@pytest.mark.prove
def test_one_starved_channel_holds_up_no_other_and_is_settled_behind(tmp_path: Path) -> None:
    """The market's settler: honest channels go together, the spammer's by itself, in one round."""

    async def body(world: World) -> None:
        _desk, spam, live, provider = await starving(world, tmp_path)
        world.fund("rival", 100 * ADA)
        world.fund("market", 50 * ADA)
        mint(world)
        others = await world.open("rival", provider, [20 * ADA] * 3)
        mint(world)
        settler = Settler(world.desk("market", MemoryLog()))
        all_of = [wanted(live, provider, 50 * ADA), *(wanted(o, provider, 5 * ADA) for o in others)]
        await spam.top_up()
        await spam.top_up()
        done = await settler.round(all_of)
        assert [len(s.moves) for s in done.sent] == [3, 1] and not done.refused
        again = await settler.round(all_of)  # all is on its way: nothing is sent twice
        assert not again.sent and len(again.in_flight) == 4
        mint(world)
        assert (await world.view(live)).claimed == 50 * ADA
        assert [(await world.view(o)).claimed for o in others] == [5 * ADA] * 3

    story(body)


@pytest.mark.prove
def test_the_watchtower_rescues_behind_what_waits(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        _desk, spam, live, provider = await starving(world, tmp_path, 100 * ADA)
        world.fund("tower", 50 * ADA)
        await spam.close()
        mint(world)
        tower = Watchtower(world.desk("tower", MemoryLog()))
        for _ in range(3):
            await spam.claim()
            rounds, _ = await tower.look({"": [wanted(live, provider, 80 * ADA)]})
            assert isinstance(rounds[0], Round)
            mint(world)
        assert (await world.view(live)).claimed == 80 * ADA

    story(body)


@pytest.mark.prove
def test_a_claim_behind_one_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    """The waiting top-up expires before a block takes it; the claim behind it goes with it."""

    async def body(world: World) -> None:
        desk, spam, live, provider = await starving(world, tmp_path)
        desk.channel = signed(desk.channel, live.voucher(SIGNED))
        snapshot, funds, fresh = await spam.desk.look()
        soon = (await world.chain.tip()).time_ms + 18_000  # the next block comes 2 s later
        move = Move(spam.tip, TopUp(1))
        batch = Batch((move,), signers=(live.consts.consumer_vkh,), until_ms=soon)
        await settle_planned(spam.desk, plans.settle(snapshot, funds, batch), fresh, "short-lived")
        await desk.treasury.look()
        view = await world.view(live)
        ahead = await Mempool(world.chain).ahead(view, held)
        assert len(ahead.spenders) == 2 and ahead.view.claimed == SIGNED  # theirs, ours behind it
        assert view.claimed == 0
        mint(world)
        assert (await world.view(live)).claimed == 0  # both are gone
        await desk.treasury.look()
        mint(world)
        assert (await world.view(live)).claimed == SIGNED
        assert await world.balance(provider.payout_address) == SIGNED

    story(body)


def test_what_waits_is_read_from_its_outputs(tmp_path: Path) -> None:
    """A copy of the datum beside the channel's own output, or at another address, is not
    followed.
    """

    async def body(world: World) -> None:
        _desk, spam, live, _provider = await starving(world, tmp_path)
        view = await world.view(live)
        snapshot, funds, fresh = await spam.desk.look()
        batch = Batch((Move(view.utxo, TopUp(7)),), signers=(live.consts.consumer_vkh,))
        planned = plans.settle(snapshot, funds, batch)
        done = await settle_planned(spam.desk, planned, fresh, "top up")
        made = done.sent.made[0]
        ahead = await Mempool(world.chain).ahead(view, held)
        assert ahead.view.utxo == made and ahead.view.amount == view.amount + 7
        assert ahead.waiting == (made,) and not ahead.over
        read = await world.chain.waiting(done.sent.tx_id)
        assert read is not None
        decoys = tuple(
            replace(made, ref=replace(made.ref, index=9 + n), lovelace=n + 1) for n in range(2)
        )
        elsewhere = replace(made, ref=replace(made.ref, index=8), address=live_address(world))

        class Lying:
            """The same mempool, with more outputs."""

            async def waiting_at(self, _address: bytes) -> list[bytes]:
                return [done.sent.tx_id]

            async def waiting(self, _tx_id: bytes) -> object:
                return replace(read, outputs=(elsewhere, *read.outputs, *decoys))

        ahead = await Mempool(Lying()).ahead(view, held)  # pyright: ignore[reportArgumentType]  same port
        assert ahead.view.utxo == made

    story(body)


def live_address(world: World) -> bytes:
    return world.wallet("consumer").address


@pytest.mark.prove
def test_a_door_without_a_mempool_claims_from_what_blocks_show(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, spam, live, _provider = await starving(world, tmp_path)
        desk.channel = signed(desk.channel, live.voucher(SIGNED))
        blind = desk.make(HiddenMempool(world.chain))  # pyright: ignore[reportArgumentType]
        blind.watch(desk.channel.session_vk)
        await spam.top_up()
        await blind.look()
        mint(world)
        assert (await world.view(live)).claimed == 0  # kept out
        await blind.look()  # nothing waits now
        mint(world)
        assert (await world.view(live)).claimed == SIGNED

    story(body)
