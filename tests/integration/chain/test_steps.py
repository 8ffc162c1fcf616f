"""Every step of a channel, by URL and key, on the devnet's ledger; money accounted to the
lovelace.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.chain.actions.session import (
    claim,
    close_channel,
    deploy,
    finish_channels,
    settle,
    top_up,
)
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding.address import stake_account, to_text
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChannelUnknown, NotDeployed, ScriptRefused
from marketplace.chain.node.submit import MemoryLog
from marketplace.domain.money.channel import Claim, Closing, Finish, TopUp
from marketplace.domain.money.channel_refusals import MayNotFinish
from marketplace.domain.money.voucher import Voucher
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, key, run


def test_a_channel_lives_through_every_step_and_no_lovelace_is_lost() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        consumer = world.fund("consumer", 200 * ADA)
        world.fund("settler", 100 * ADA)
        [live] = await world.open("consumer", provider, [50 * ADA])
        opened = await world.view(live)
        assert (opened.amount, opened.claimed, opened.depth) == (50 * ADA, 0, 1)
        after_open = await world.balance(consumer)

        one = await claim(
            world.desk("settler"),
            [(opened, live.voucher(3 * ADA))],
            {provider.payout: provider.payout_address},
        )
        assert (one.claimed, one.subsidy) == (3 * ADA, 0)
        assert await world.balance(provider.payout_address) == 3 * ADA
        more = await top_up(world.desk("consumer"), await world.view(live), 7 * ADA)
        view = await world.view(live)
        assert (view.amount, view.claimed) == (54 * ADA, 3 * ADA)
        assert [f.amount for f in view.fundings] == [50 * ADA, 7 * ADA]

        closed = await close_channel(world.desk("consumer"), view)
        view = await world.view(live)
        assert isinstance(view.stage, Closing)
        done = await finish_channels(
            world.desk("settler"),
            [(view, live.voucher(5 * ADA))],
            {provider.payout: provider.payout_address},
            provider.adapter,
        )
        ended = await world.ended(live)
        assert (ended.claimed, ended.refunded) == (5 * ADA, 52 * ADA)
        assert ended.finished_by == done.sent.tx_id
        assert await world.balance(provider.payout_address) == 5 * ADA
        fees = more.sent.fee + closed.sent.fee
        assert await world.balance(consumer) == after_open - 7 * ADA - fees + 52 * ADA
        sums = world.devnet.status()["lovelace"]
        assert sums["genesis"] == sums["unspent"] + sums["fees"] + sums["deposits"]

    run(story)


def test_a_mixed_batch_of_several_parties_takes_one_transaction() -> None:
    async def story(world: World) -> None:
        one, two = Provider("one"), Provider("two")
        world.fund("alice", 300 * ADA)
        world.fund("settler", 100 * ADA)
        a = await world.open("alice", one, [20 * ADA, 20 * ADA, 20 * ADA], fee_bps=50)
        b = await world.open("alice", two, [30 * ADA, 30 * ADA])
        views = [await world.view(x) for x in (*a, *b)]
        steps = [
            plans.claim_step(a[0].voucher(4 * ADA)),
            plans.finish_step(a[1].voucher(2 * ADA), 0),
            TopUp(5 * ADA),
            plans.claim_step(b[0].voucher(9 * ADA), take_to=6 * ADA),
            plans.claim_step(b[1].voucher(3 * ADA)),
        ]
        alice = world.wallet("alice").signer
        batch = Batch(
            tuple(Move(v.utxo, s) for v, s in zip(views, steps, strict=True)),
            {p.payout: p.payout_address for p in (one, two)},
            (alice.key_hash, one.adapter.key_hash),
        )
        done = await settle(world.desk("settler"), batch, "mixed", alice, one.adapter)
        assert done.claimed == 15 * ADA
        bounty = 6 * ADA * 50 // 10_000
        assert sum(w.bounty for w in done.wills) == bounty
        assert await world.balance(one.payout_address) == 6 * ADA - bounty
        assert await world.balance(two.payout_address) == 9 * ADA
        now = [await world.finder.find(x.session.verify_key, x.ref) for x in (*a, *b)]
        assert [v.claimed for v in now] == [4 * ADA, 2 * ADA, 0, 6 * ADA, 3 * ADA]
        assert [v.amount for v in now if isinstance(v, ChannelView)] == [
            16 * ADA, 25 * ADA, 24 * ADA, 27 * ADA,
        ]  # fmt: skip

    run(story)


def test_after_expiry_anybody_sends_the_rest_home_and_before_it_nobody_does() -> None:
    async def story(world: World) -> None:
        provider = Provider("gone")
        consumer = world.fund("consumer", 100 * ADA)
        world.fund("stranger", 50 * ADA)
        live, open_one = await world.open(
            "consumer", provider, [20 * ADA, 20 * ADA], close_period_ms=600_000
        )
        await close_channel(world.desk("consumer"), await world.view(live))
        before = await world.balance(consumer)
        view = await world.view(live)
        assert isinstance(view.stage, Closing)
        early = Batch((Move(view.utxo, Finish()),), since_ms=view.stage.expire_at_ms - 1000)
        with pytest.raises(MayNotFinish):
            await settle(world.desk("stranger"), early, "finish")
        with pytest.raises(MayNotFinish):
            await finish_channels(world.desk("stranger"), [(view, None)], {})
        with pytest.raises(MayNotFinish):
            await finish_channels(world.desk("stranger"), [(await world.view(open_one), None)], {})
        world.devnet.advance(1_000_000)
        await finish_channels(world.desk("stranger"), [(view, None)], {})
        assert await world.balance(consumer) == before + 20 * ADA

    run(story)


def test_a_forged_voucher_is_refused_by_the_script_even_when_the_twin_is_not_asked() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [20 * ADA])
        view = await world.view(live)
        snapshot, funds, _ = await world.desk("settler").look()
        good = live.voucher(2 * ADA)
        batch = Batch(
            (Move(view.utxo, plans.claim_step(good)),), {provider.payout: provider.payout_address}
        )
        draft = plans.settle(snapshot, funds, batch).draft
        assert await world.chain.evaluate(draft.bytes)
        forged = draft.bytes.replace(good.signature, bytes(64))
        with pytest.raises(ScriptRefused):
            await world.chain.evaluate(forged)

    run(story)


def test_a_reward_on_settles_account_is_withdrawn_to_the_lovelace() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        settler = world.fund("settler", 50 * ADA)
        scripts = world.desk("settler").scripts
        world.devnet.reward(to_text(stake_account(scripts.settle_hash, False)), 1234567)
        [live] = await world.open("consumer", provider, [20 * ADA])
        before = await world.balance(settler)
        done = await claim(
            world.desk("settler"),
            [(await world.view(live), live.voucher(2 * ADA))],
            {provider.payout: provider.payout_address},
        )
        assert await world.balance(settler) == before + 1234567 - done.sent.fee
        assert await world.chain.rewards(scripts.settle_hash) == 0

    run(story)


def test_change_is_chained_through_the_mempool() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("settler", 50 * ADA)
        world.devnet.mint()
        lives = await world.open("consumer", provider, [20 * ADA] * 3)
        world.devnet.mint()
        log = MemoryLog()
        desk = world.desk("settler", log)
        views = [await world.view(live) for live in lives]
        # Neither the change nor the collateral that the first claim sets apart is in a block yet.
        first = await claim(desk, [(views[0], lives[0].voucher(2 * ADA))], _payouts(provider))
        second = await claim(desk, [(views[1], lives[1].voucher(2 * ADA))], _payouts(provider))
        third = await claim(desk, [(views[2], lives[2].voucher(2 * ADA))], _payouts(provider))
        assert second.sent.tx_id in {ref.tx_id for ref in third.sent.inputs}
        assert first.sent.tx_id in {ref.tx_id for ref in second.sent.inputs}
        assert await world.chain.transaction(third.sent.tx_id) is None
        world.devnet.mint()
        for sent in (first, second, third):
            assert await world.chain.transaction(sent.sent.tx_id) is not None

    run(story, block_ms=BY_HAND)


def test_nothing_settles_before_the_contract_is_deployed_and_deploying_twice_is_nothing() -> None:
    async def story(world: World) -> None:
        assert await deploy(world.desk("deployer")) is None
        other = replace(world.desk("deployer"), asset="ab" * 28 + "01")
        snapshot, funds, _ = await other.look()
        with pytest.raises(NotDeployed):
            _ = snapshot.deployed
        assert funds.lovelace

    run(story)


def test_an_unknown_open_transaction_is_said_to_be_unknown() -> None:
    async def story(world: World) -> None:
        with pytest.raises(ChannelUnknown):
            await world.finder.find(bytes(32), OutRef(bytes(32), 0))
        world.fund("consumer", 100 * ADA)
        [live] = await world.open("consumer", Provider("p"), [20 * ADA])
        with pytest.raises(ChannelUnknown):  # another session key's
            await world.finder.find(bytes(32), live.ref)

    run(story)


def test_a_lower_voucher_takes_nothing_at_finish() -> None:
    assert plans.finish_step(None, 5) == Finish()
    voucher = Voucher.sign(key("session"), 5)
    assert plans.finish_step(voucher, 5) == Finish()
    assert plans.finish_step(voucher, 4) == Finish(Claim(5, 5, voucher.signature))


def _payouts(*providers: Provider) -> dict[bytes, bytes]:
    return {p.payout: p.payout_address for p in providers}
