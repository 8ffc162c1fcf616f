"""The stable-token instance, end to end: a minted token is opened, claimed, topped up, closed,
finished.
"""

from __future__ import annotations

import pytest

from marketplace.chain.actions.mint import mint_token
from marketplace.chain.actions.session import (
    claim,
    close_channel,
    deploy,
    finish_channels,
    open_channels,
    pay,
    top_up,
)
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels.finder import channel_capacity
from marketplace.chain.settlement.next_step import Policy, Why
from marketplace.chain.settlement.settler import Settler
from marketplace.chain.settlement.wanted import Wanted
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Closing, Consts
from tests.integration.support.chain import ADA, DAY_MS, Live, Provider, World, key, run

USD = 1_000_000


def test_a_token_channel_lives_through_every_step() -> None:
    async def story(base: World) -> None:
        provider = Provider("p")
        base.fund("consumer", 300 * ADA)
        base.fund("settler", 200 * ADA)
        unit = await mint_token(
            base.desk("consumer"), b"tUSD", 10_000 * USD, base.wallet("consumer").address
        )
        world = World(base.served, base.chain, unit.hex())
        assert await deploy(world.desk("settler")) is not None
        [live] = await _open(world, provider, [100 * USD])
        view = await world.view(live)
        assert (view.amount, view.claimed) == (100 * USD, 0)
        snapshot = await world.chain.snapshot(world.desk("x").scripts)
        assert (
            channel_capacity(snapshot, view).most == 100 * USD
        )  # the reserve is lovelace of its own
        kept = view.utxo.lovelace

        payouts = {provider.payout: provider.payout_address}
        one = await claim(world.desk("settler"), [(view, live.voucher(30 * USD))], payouts)
        assert await _tokens(world, provider.payout_address) == 30 * USD
        assert one.subsidy == await world.balance(
            provider.payout_address
        )  # an output's least lovelace
        view = await world.view(live)
        assert (view.amount, view.claimed, view.utxo.lovelace) == (70 * USD, 30 * USD, kept)

        await top_up(world.desk("consumer"), view, 5 * USD)
        await close_channel(world.desk("consumer"), await world.view(live))
        view = await world.view(live)
        assert isinstance(view.stage, Closing) and view.amount == 75 * USD
        held = await _tokens(world, world.wallet("consumer").address)
        done = await finish_channels(
            world.desk("settler"), [(view, live.voucher(50 * USD))], payouts, provider.adapter
        )
        assert done.claimed == 20 * USD
        assert await _tokens(world, provider.payout_address) == 50 * USD
        assert await _tokens(world, world.wallet("consumer").address) == held + 55 * USD
        ended = await world.ended(live)
        assert (ended.claimed, ended.refunded) == (50 * USD, 55 * USD)

    run(story)


def test_a_stranger_does_not_fund_token_payouts_but_the_adapters_own_settler_does() -> None:
    async def story(base: World) -> None:
        provider = Provider("p")
        base.fund("consumer", 300 * ADA)
        base.fund("settler", 200 * ADA)
        unit = await mint_token(
            base.desk("consumer"), b"tUSD", 10_000 * USD, base.wallet("consumer").address
        )
        world = World(base.served, base.chain, unit.hex())
        await deploy(world.desk("settler"))
        [live] = await _open(world, provider, [100 * USD])
        vk = live.session.verify_key
        want = [Wanted(vk, live.ref, live.voucher(90 * USD), provider.payout_address, drain=True)]
        stranger = await Settler(world.desk("settler")).round(want)
        assert not stranger.sent and stranger.waiting[vk] is Why.BELOW_LEAST
        own = Policy(own_payouts=frozenset((provider.payout,)))
        mine = await Settler(world.desk("settler"), own).round(want)
        assert [s.claimed for s in mine.sent] == [90 * USD]
        assert await _tokens(world, provider.payout_address) == 90 * USD

    run(story)


@pytest.mark.parametrize("name", [b"", b"x" * 32])
def test_any_length_of_name_has_its_own_instance(name: bytes) -> None:
    async def story(base: World) -> None:
        base.fund("consumer", 200 * ADA)
        unit = await mint_token(base.desk("consumer"), name, 500, base.wallet("consumer").address)
        world = World(base.served, base.chain, unit.hex())
        await deploy(world.desk("deployer"))
        await pay(base.desk("consumer"), [Out(base.wallet("settler").address, 50 * ADA)])
        provider = Provider("p")
        [live] = await _open(world, provider, [400])
        view = await world.view(live)
        payouts = {provider.payout: provider.payout_address}
        await finish_channels(
            world.desk("settler"), [(view, live.voucher(400))], payouts, provider.adapter
        )
        assert await _tokens(world, provider.payout_address) == 400

    run(story)


async def _open(world: World, provider: Provider, amounts: list[int]) -> list[Live]:
    wallet = world.wallet("consumer")
    sessions = [key(f"token session {i}") for i in range(len(amounts))]
    consts = [
        Consts(
            s.verify_key,
            provider.adapter.key_hash,
            provider.payout,
            wallet.signer.key_hash,
            DAY_MS,
            0,
        )
        for s in sessions
    ]
    done = await open_channels(
        world.desk("consumer"),
        [
            Opening(n, lambda _r, _i, c=c: c, Credential(wallet.stake or b""))
            for n, c in zip(amounts, consts, strict=True)
        ],
    )
    return [
        Live(s, c, ref, n)
        for s, c, ref, n in zip(sessions, consts, done.refs, amounts, strict=True)
    ]


async def _tokens(world: World, address: bytes) -> int:
    unit = bytes.fromhex(world.asset)
    return sum(u.quantity(unit) for u in await world.chain.utxos(address))
