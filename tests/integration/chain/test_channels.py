"""Which output a channel is, and whether it may be served: against copies, rollbacks and bad
terms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from marketplace.chain.actions.session import (
    Desk,
    claim,
    close_channel,
    finish_channels,
    pay,
    settle,
    top_up,
)
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Plan, assemble
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    channel_capacity,
    check_channel,
)
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.chain.node.answers import Moves
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.domain.money.channel import Open
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.terms import Terms
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run


def _terms(live: Live, provider: Provider, **changes: object) -> Terms:
    c = live.consts
    terms = Terms(
        magic=42, lease="l", job="j", offer="o", provider="p",
        adapter_vk=provider.adapter.verify_key, adapter_vkh=c.adapter_vkh, payout=c.payout,
        session_vk=c.session_vk, consumer_vkh=c.consumer_vkh, resource="gpu", rate_micro=1,
        units_milli=1000, tick_ms=1000, grace_ms=0, pause_limit_ms=0,
        close_period_ms=c.close_period_ms, fee_bps=c.fee_bps, ceiling=ADA, max_duration_ms=1,
        asset="", work=bytes(32), devices=bytes(32), expires_at_ms=1,
    )  # fmt: skip
    return replace(terms, **changes)


def test_a_copy_of_the_datum_is_not_the_channel() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("mallory", 200 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        view = await world.view(live)
        for _ in range(2):  # richer copies at the very address, before and after a step
            copy = Out(view.utxo.address, 90 * ADA, datum=view.utxo.datum)
            await pay(world.desk("mallory"), [copy])
            assert (await world.view(live)).amount <= 30 * ADA
            await claim(
                world.desk("mallory"),
                [
                    (
                        await world.view(live),
                        live.voucher((await world.view(live)).claimed + 2 * ADA),
                    )
                ],
                {provider.payout: provider.payout_address},
            )
        assert ((await world.view(live)).amount, (await world.view(live)).claimed) == (
            26 * ADA,
            4 * ADA,
        )
        assert len(await world.finder.at_address(view.utxo.address)) == 3

    run(story)


def test_a_decoy_beside_the_finish_does_not_bring_a_channel_back() -> None:
    """The adapter finishes and, in the same transaction, makes a copy: later outputs are free."""

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("mallory", 200 * ADA)
        lives = await world.open("consumer", provider, [30 * ADA] * 2)
        views = [await world.view(x) for x in lives]
        desk = world.desk("mallory")
        snapshot, funds, fresh = await desk.look()
        batch = Batch(
            (
                Move(views[0].utxo, plans.finish_step(None, 0)),
                Move(views[1].utxo, plans.claim_step(lives[1].voucher(2 * ADA))),
            ),
            {provider.payout: provider.payout_address},
            (provider.adapter.key_hash,),
        )
        plan: Plan = plans.settle(snapshot, funds, batch).draft.plan
        decoys = tuple(Out(v.utxo.address, 25 * ADA, datum=v.utxo.datum) for v in views)
        draft = assemble(snapshot, replace(plan, outputs=(*plan.outputs, *decoys)), funds)
        signed = (await desk.finish(draft, fresh)).sign(desk.wallet.signer, provider.adapter)
        await send(world.chain, MemoryLog(), signed, "decoy")
        for finder in (world.finder, ChannelFinder(world.chain, desk.scripts)):
            ended = await finder.find(lives[0].session.verify_key, lives[0].ref)
            assert isinstance(ended, ChannelEnded) and ended.refunded == 30 * ADA
            alive = await finder.find(lives[1].session.verify_key, lives[1].ref)
            assert isinstance(alive, ChannelView)
            assert (alive.claimed, alive.amount) == (2 * ADA, 28 * ADA)

    run(story)


def test_two_channels_of_one_session_key_are_told_apart_by_their_steps() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 300 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        view = await world.view(live)
        twin_at = await pay(
            world.desk("consumer"), [Out(view.utxo.address, 50 * ADA, datum=view.utxo.datum)]
        )
        twin_live = replace(live, ref=twin_at.made[0].ref)
        both = ChannelFinder(world.chain, world.desk("x").scripts)
        twin_view = await both.find(live.session.verify_key, twin_live.ref)
        assert isinstance(twin_view, ChannelView)
        batch = Batch(
            (
                Move(view.utxo, plans.claim_step(live.voucher(3 * ADA))),
                Move(twin_view.utxo, plans.finish_step(live.voucher(3 * ADA), 0)),
            ),
            {provider.payout: provider.payout_address},
            (provider.adapter.key_hash,),
        )
        await settle(world.desk("settler"), batch, "both", provider.adapter)
        assert (await world.view(live)).amount == 27 * ADA
        end = await ChannelFinder(world.chain, world.desk("x").scripts).find(
            live.session.verify_key, twin_live.ref
        )
        assert isinstance(end, ChannelEnded) and end.refunded == 47 * ADA

    run(story)


def test_a_rollback_takes_a_channel_back_to_where_it_was() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("settler", 50 * ADA)
        world.devnet.mint()
        [live] = await world.open("consumer", provider, [30 * ADA])
        with pytest.raises(ChannelUnknown):
            await world.view(live)
        world.devnet.mint(3)
        desk = world.desk("settler", MemoryLog())
        payouts = {provider.payout: provider.payout_address}
        await claim(desk, [(await world.view(live), live.voucher(2 * ADA))], payouts)
        world.devnet.mint()
        assert (await world.view(live)).claimed == 2 * ADA
        topped = await top_up(world.desk("consumer"), await world.view(live), 10 * ADA)
        world.devnet.mint()
        view = await world.view(live)
        assert [(f.amount, f.depth) for f in view.fundings] == [(30 * ADA, 5), (10 * ADA, 1)]
        world.devnet.rollback(1, drop=True)
        view = await world.view(live)
        assert (view.amount, view.claimed, len(view.fundings)) == (28 * ADA, 2 * ADA, 1)
        world.devnet.rollback(1, drop=True)
        assert (await world.view(live)).claimed == 0
        world.devnet.rollback(3, drop=True)
        with pytest.raises(ChannelUnknown):
            await world.view(live)
        assert await world.chain.transaction(topped.sent.tx_id) is None

    run(story, block_ms=BY_HAND)


def test_an_unmoved_channel_costs_two_requests_a_look() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        world.devnet.mint(20)
        await world.view(live)
        before = world.chain.requests
        await world.view(live)
        assert world.chain.requests - before == 2  # the tip, and the last known output
        height = (await world.chain.tip()).height
        before = world.chain.requests
        await world.finder.find(live.session.verify_key, live.ref, height)
        assert world.chain.requests - before == 1

    run(story)


class Forgetful:
    """A chain's door whose index loses the outputs of a transaction that it knows."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain
        self.forgets = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    async def moves(self, tx_id: bytes) -> Moves | None:
        found = await self._chain.moves(tx_id)
        return replace(found, outputs=()) if found is not None and self.forgets else found


def test_an_index_that_contradicts_itself_is_a_fault_of_the_chain_and_passes() -> None:
    async def story(world: World) -> None:
        world.fund("consumer", 200 * ADA)
        [live] = await world.open("consumer", Provider("p"), [30 * ADA])
        door = Forgetful(world.chain)
        finder = ChannelFinder(cast(ChainReader, door), scripts_for())
        before = await finder.find(live.consts.session_vk, live.ref)
        door.forgets = True
        with pytest.raises(ChainFault):
            await finder.find(live.consts.session_vk, live.ref)
        door.forgets = False
        assert await finder.find(live.consts.session_vk, live.ref) == before

    run(story)


def test_a_channel_is_served_only_if_every_fact_is_that_of_the_terms() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 300 * ADA)
        [live] = await world.open("consumer", provider, [100 * ADA])
        snapshot = await world.chain.snapshot(world.desk("x").scripts)
        view = await world.view(live)
        good = _terms(live, provider)
        limits = check_channel(good, view, snapshot)
        assert limits.most == 100 * ADA - limits.reserve
        assert limits.now == 3 * ADA - limits.reserve  # one block deep
        world.devnet.mint(4)
        assert (
            check_channel(good, await world.view(live), snapshot).now == 60 * ADA - limits.reserve
        )
        world.devnet.mint(10)
        deep = await world.view(live)
        assert check_channel(good, deep, snapshot).now == limits.most

        wrong: dict[str, object] = {
            "magic": 1, "session_vk": b"\x01" * 32, "adapter_vkh": b"\x01" * 28,
            "payout": b"\x01" * 28, "consumer_vkh": b"\x01" * 28, "close_period_ms": 1,
            "fee_bps": 1, "asset": "ab" * 28,
        }  # fmt: skip
        for name, value in wrong.items():
            with pytest.raises(ChannelUnfit):
                check_channel(_terms(live, provider, **{name: value}), deep, snapshot)
        dusty = replace(deep, utxo=replace(deep.utxo, assets=((b"\x09" * 28, 1),)))
        scripted = replace(deep, utxo=replace(deep.utxo, script_hash=b"\x09" * 28))
        for unfit in (dusty, scripted):
            with pytest.raises(ChannelUnfit):
                check_channel(good, unfit, snapshot)
        await close_channel(world.desk("consumer"), deep)
        with pytest.raises(ChannelUnfit):
            check_channel(good, await world.view(live), snapshot)

    run(story)


def test_a_channel_opened_as_if_half_claimed_is_refused() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 300 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        at = (await world.view(live)).utxo.address
        sent = await pay(
            world.desk("consumer"),
            [Out(at, 30 * ADA, datum=stage_bytes(Open(live.consts, 5 * ADA)))],
        )
        odd = replace(live, ref=sent.made[0].ref)
        view = await ChannelFinder(world.chain, world.desk("x").scripts).find(
            live.session.verify_key, odd.ref
        )
        assert isinstance(view, ChannelView)
        snapshot = await world.chain.snapshot(world.desk("x").scripts)
        with pytest.raises(ChannelUnfit):
            check_channel(_terms(live, provider), view, snapshot)

    run(story)


def test_the_most_that_a_channel_pays_leaves_close_and_refund_possible() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        consumer = world.fund("consumer", 300 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [20 * ADA])
        snapshot = await world.chain.snapshot(world.desk("x").scripts)
        most = channel_capacity(snapshot, await world.view(live)).most
        payouts = {provider.payout: provider.payout_address}
        await claim(world.desk("settler"), [(await world.view(live), live.voucher(most))], payouts)
        await close_channel(world.desk("consumer"), await world.view(live))
        before = await world.balance(consumer)
        adapter: Desk = world.desk("settler")
        await finish_channels(adapter, [(await world.view(live), None)], payouts, provider.adapter)
        assert await world.balance(consumer) == before + 20 * ADA - most

    run(story)


def test_many_unmoved_channels_are_seen_by_one_question() -> None:
    """A settler's round costs the same for six channels as for five, and still sees the one that
    moved.
    """

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 400 * ADA)
        world.fund("settler", 50 * ADA)
        lives = await world.open("consumer", provider, [10 * ADA] * 6)
        world.devnet.mint(20)
        settler = Settler(world.desk("settler", MemoryLog()))
        wanted = [
            Wanted(live.session.verify_key, live.ref, live.voucher(1), provider.payout_address)
            for live in lives
        ]
        await settler.round(wanted)  # learns where each was opened
        costs: list[int] = []
        for part in (wanted[:5], wanted):
            before = world.chain.requests
            done = await settler.round(part)
            costs.append(world.chain.requests - before)
            assert len(done.views) == len(part) and not done.refused
        assert costs[0] == costs[1]

        moved = lives[2]
        closed = await close_channel(world.desk("consumer"), await world.view(moved))
        world.devnet.mint(1)
        before = world.chain.requests
        done = await settler.round(wanted)
        assert done.views[moved.session.verify_key].closing
        assert done.views[moved.session.verify_key].utxo.ref.tx_id == closed.sent.tx_id
        assert sum(view.closing for view in done.views.values()) == 1
        assert world.chain.requests - before > costs[1]  # only that one was asked for

    run(story)
