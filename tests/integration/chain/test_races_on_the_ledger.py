"""What an attacker or a rival can do to a settler's money on a real ledger: nothing."""

from __future__ import annotations

import pytest

from marketplace.chain.actions.session import claim, top_up
from marketplace.chain.channels.finder import ChannelFinder
from marketplace.chain.errors import ChannelUnknown
from marketplace.domain.errors import TallyError
from marketplace.domain.money.voucher import Voucher
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, run


def test_a_refused_claim_costs_neither_fee_nor_collateral() -> None:
    """A claim that is beaten by another, or forged, is found out before anything is pledged."""

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        first, second = world.fund("first", 50 * ADA), world.fund("second", 50 * ADA)
        [live] = await world.open("consumer", provider, [20 * ADA])
        stale = await world.view(live)
        payouts = {provider.payout: provider.payout_address}
        await claim(world.desk("first"), [(stale, live.voucher(3 * ADA))], payouts)
        before = await world.balance(first), await world.balance(second)

        with pytest.raises(TallyError):
            await claim(world.desk("second"), [(stale, live.voucher(4 * ADA))], payouts)
        fresh = await world.view(live)
        forged = Voucher(live.session.verify_key, 9 * ADA, live.voucher(8 * ADA).signature)
        with pytest.raises(TallyError):
            await claim(world.desk("second"), [(fresh, forged)], payouts)
        assert (await world.balance(first), await world.balance(second)) == before

        # The beaten settler tries again from the present state, and is paid for by nobody else.
        await claim(world.desk("second"), [(fresh, live.voucher(4 * ADA))], payouts)
        assert await world.balance(provider.payout_address) == 4 * ADA
        assert (await world.view(live)).claimed == 4 * ADA

    run(story)


def test_rollback_of_a_top_up_and_of_the_open_itself() -> None:
    """After each, the chain is what it was: the voucher works on what is left, and on nothing
    where nothing is left."""

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 100 * ADA)
        world.fund("settler", 50 * ADA)
        world.devnet.mint(2)
        [live] = await world.open("consumer", provider, [20 * ADA])
        world.devnet.mint()
        await top_up(world.desk("consumer"), await world.view(live), 7 * ADA)
        world.devnet.mint()
        payouts = {provider.payout: provider.payout_address}
        await claim(
            world.desk("settler"), [(await world.view(live), live.voucher(22 * ADA))], payouts
        )
        world.devnet.mint()
        assert (await world.view(live)).amount == 5 * ADA

        world.devnet.rollback(2, drop=True)  # the claim and the top-up are gone
        world.finder = _fresh_finder(world)
        left = await world.view(live)
        assert (left.amount, left.claimed, [f.amount for f in left.fundings]) == (
            20 * ADA,
            0,
            [20 * ADA],
        )
        await claim(world.desk("settler"), [(left, live.voucher(18 * ADA))], payouts)
        world.devnet.mint()
        assert await world.balance(provider.payout_address) == 18 * ADA

        world.devnet.rollback(2, drop=True)  # the second claim and the open
        world.finder = _fresh_finder(world)
        with pytest.raises(ChannelUnknown):
            await world.finder.find(live.session.verify_key, live.ref)
        assert await world.balance(provider.payout_address) == 0
        sums = world.devnet.status()["lovelace"]
        assert sums["genesis"] == sums["unspent"] + sums["fees"] + sums["deposits"]

    run(story, block_ms=BY_HAND)


def _fresh_finder(world: World) -> ChannelFinder:
    """An observer who remembers nothing of before."""
    return ChannelFinder(world.chain, world.desk("nobody").scripts)
