"""A consumer whose transactions of the channel always wait in the mempool, one after the other, while it
is open (top-ups) and while it closes (claims of a lovelace): the provider's own get in all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from adapter.events import Settled
from marketplace.chain.channels import ChannelEnded
from tests.integration.support_chain import ADA, BY_HAND, Live, World, run
from tests.integration.support_spam import mint, starving
from tests.integration.test_adapter_treasury import signed

SIGNED = 150 * ADA  # above the 100 ADA from which an adapter claims while the channel goes on


def story(body: Callable[[World], Awaitable[None]]) -> None:
    run(body, block_ms=BY_HAND)


def test_top_ups_that_always_wait_keep_no_claim_out(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, spam, live, provider = await starving(world, tmp_path)
        desk.channel = signed(desk.channel, live.voucher(SIGNED))
        await spam.top_up()
        blocks = 0
        while (await world.view(live)).claimed < SIGNED and blocks < 10:
            await spam.top_up()
            await desk.treasury.look()
            mint(world)
            blocks += 1
        print(
            f"open: claimed after {blocks} blocks, spam sent {spam.sent} for {spam.paid} lovelace"
        )
        assert blocks <= 3
        assert await world.balance(provider.payout_address) == SIGNED

    story(body)


def test_claims_that_always_wait_keep_no_finish_out(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, spam, live, provider = await starving(world, tmp_path, 100 * ADA, 200_000)
        desk.channel = signed(desk.channel, live.voucher(90 * ADA))
        await spam.close()
        await spam.claim()
        blocks = 0
        while not isinstance(await _found(world, live), ChannelEnded) and blocks < 10:
            await spam.claim()
            desk.treasury.settle(desk.channel.session_vk)
            await desk.treasury.look()
            mint(world)
            blocks += 1
        print(f"closing: finished after {blocks} blocks, spam sent {spam.sent}, paid {spam.paid}")
        assert blocks <= 3
        assert (await world.ended(live)).claimed == 90 * ADA
        assert await world.balance(provider.payout_address) >= 90 * ADA  # and the spam's own gifts
        await desk.treasury.look()
        assert isinstance(desk.last(), Settled)

    story(body)


async def _found(world: World, live: Live) -> object:
    return await world.finder.find(live.session.verify_key, live.ref)
