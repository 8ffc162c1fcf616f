"""A consumer whose transactions of the channel always wait in the mempool, one after the other,
while it is open (top-ups) and while it closes (claims of a lovelace): the provider's own get in all
the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adapter.core.events import Settled
from marketplace.chain.actions.session import settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelEnded
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel import Open, TopUp
from tests.ground import pay_before
from tests.integration.adapter.test_treasury import signed
from tests.integration.support.chain import ADA, BY_HAND, Live, World, run
from tests.integration.support.spam import Spammer, mint, starving

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


def test_a_copy_of_the_channel_that_comes_first_keeps_no_claim_out(tmp_path: Path) -> None:
    """Each top-up also moves a copy of which all was claimed, and whose output stands before the
    channel's.
    """

    async def body(world: World) -> None:
        desk, spam, live, provider = await starving(world, tmp_path)
        desk.channel = signed(desk.channel, live.voucher(SIGNED))
        both = Both(spam, spam.tip, await _copy_before(world, spam))
        await both.top_up()
        blocks = 0
        while (await world.view(live)).claimed < SIGNED and blocks < 8:
            await both.top_up()
            await desk.treasury.look()
            mint(world)
            blocks += 1
        print(f"beside a copy: claimed after {blocks} blocks")
        assert blocks <= 3
        assert await world.balance(provider.payout_address) == SIGNED

    story(body)


@dataclass
class Both:
    """The spammer's channel and a copy of it, spent together for as long as nobody else spends
    them.
    """

    spam: Spammer
    channel: Utxo
    copy: Utxo

    async def top_up(self) -> None:
        desk = self.spam.desk
        snapshot, funds, fresh = await desk.look()
        known = {**fresh, self.channel.ref: self.channel, self.copy.ref: self.copy}
        moves = (Move(self.channel, TopUp(1)), Move(self.copy, TopUp(1)))
        batch = Batch(moves, signers=(self.spam.live.consts.consumer_vkh,))
        with suppress(
            Refusal
        ):  # the provider's claim came in between: nothing to keep out any more
            done = await settle_planned(desk, plans.settle(snapshot, funds, batch), known, "spam")
            by_ref = dict(zip(sorted(known.keys() - fresh.keys()), done.sent.made, strict=False))
            self.channel, self.copy = by_ref[self.channel.ref], by_ref[self.copy.ref]


async def _copy_before(world: World, spam: Spammer) -> Utxo:
    """A copy that claims to be claimed and whose reference sorts before the channel's."""
    body = stage_bytes(Open(spam.live.consts, SIGNED))
    copy = await pay_before(spam.desk, Out(spam.tip.address, 4 * ADA, datum=body), spam.tip.ref)
    mint(world)
    return copy


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
