"""A redeemer that the ledger does not run tells no reader anything: money is read from outputs.

A ledger takes several redeemers of one pointer and runs the script with the last. Whoever believed
the first could be shown an end that was none, a top-up that never came, or nothing at all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.core.events import Settled, Sighted, Unread
from marketplace.chain.actions.explain import explain
from marketplace.chain.actions.session import CLOSE_WITHIN_MS, finish_channels
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelFinder, ChannelView
from marketplace.chain.encoding import lenient
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.answers import Moves
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.domain.money.channel import Claim, Close, Closing, Finish, Step, TopUp
from marketplace.domain.money.channel_stage import ChannelStage
from tests.integration.adapter.test_treasury import opened, signed
from tests.integration.support.chain import ADA, DAY_MS, Live, World, run
from tests.integration.support.odd import decoy, with_decoys

DECOYS: dict[str, list[Step]] = {
    "an end": [Finish()],
    "nothing": [],
    "a claim of everything": [Claim(20 * ADA, 20 * ADA, bytes(64))],
    "two ends": [Finish(), Finish()],
}


async def _step(world: World, live: Live, step: Step, lie: list[Step]) -> ChannelView:
    """The consumer takes *step*, and writes *lie* before it; the channel as it then stands."""
    desk, view = world.desk("consumer"), await world.view(live)
    until = (await world.chain.tip()).time_ms + CLOSE_WITHIN_MS
    signer = live.consts.consumer_vkh
    batch = Batch((Move(view.utxo, step),), signers=(signer,), until_ms=until)
    snapshot, funds, _ = await desk.look()
    draft = plans.settle(snapshot, funds, batch).draft
    honest = draft.finish(await world.chain.evaluate(draft.bytes))
    odd = with_decoys(honest, snapshot.params, decoy(lie)).sign(desk.wallet.signer)
    with pytest.raises(TxRefused, match="decoy"):
        await explain(world.chain, odd.bytes, [desk.wallet.address])
    await send(world.chain, MemoryLog(), odd, "odd")
    views: list[ChannelView] = []
    for finder in (world.finder, ChannelFinder(world.chain, desk.scripts)):
        seen = await finder.find(live.session.verify_key, live.ref)
        assert isinstance(seen, ChannelView)
        views.append(seen)
    assert views[0] == views[1]
    return views[0]


@pytest.mark.parametrize("name", DECOYS)
def test_a_close_behind_a_decoy_is_seen_and_every_signed_lovelace_is_claimed(
    name: str, tmp_path: Path
) -> None:
    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        desk.channel = signed(desk.channel, live.voucher(15 * ADA))
        closing = await _step(world, live, Close(), DECOYS[name])
        assert isinstance(closing.stage, Closing)
        await desk.treasury.look()
        seen = desk.last()
        assert isinstance(seen, Sighted) and seen.stage is ChannelStage.CLOSING
        desk.treasury.settle(desk.channel.session_vk)  # what ``decide`` answers to it
        await desk.treasury.look()
        await desk.treasury.look()
        done = desk.last()
        assert isinstance(done, Settled) and done.claimed == 15 * ADA
        assert await world.balance(provider.payout_address) == 15 * ADA

    run(story)


def test_the_consumer_gains_nothing_by_waiting_the_close_period_out(tmp_path: Path) -> None:
    """As above, by an adapter that was away until shortly before the end of the close period."""

    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        desk.channel = signed(desk.channel, live.voucher(15 * ADA))
        await _step(world, live, Close(), [Finish()])
        world.devnet.advance(DAY_MS - 60_000)
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.advance(CLOSE_WITHIN_MS + 120_000)
        with pytest.raises((TxRefused, AssertionError)):
            view = await world.view(live)
            await finish_channels(world.desk("consumer"), [(view, None)], {})
        assert await world.balance(provider.payout_address) == 15 * ADA

    run(story)


def test_a_top_up_behind_a_decoy_counts_what_came(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        desk, live, _ = await opened(world, tmp_path)
        for _ in range(20):
            world.devnet.mint()
        await desk.treasury.look()
        before = desk.last()
        assert isinstance(before, Sighted)
        view = await _step(world, live, TopUp(1), [TopUp(1_000_000 * ADA)])
        assert [f.amount for f in view.fundings] == [20 * ADA, 1]
        for _ in range(20):
            world.devnet.mint()
        await desk.treasury.look()
        after = desk.last()
        assert isinstance(after, Sighted)
        assert (after.capacity, after.limit) == (before.capacity + 1, before.limit + 1)

    run(story)


def test_a_claim_behind_a_decoy_end_leaves_the_channel_open(tmp_path: Path) -> None:
    """Anybody who holds a voucher may send a Claim: it cannot make a channel look over."""

    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        view = await world.view(live)
        voucher = live.voucher(5 * ADA)
        step = Claim(5 * ADA, 5 * ADA, voucher.signature)
        snapshot, funds, _ = await world.desk("consumer").look()
        batch = Batch((Move(view.utxo, step),), payouts={provider.payout: provider.payout_address})
        draft = plans.settle(snapshot, funds, batch).draft
        honest = draft.finish(await world.chain.evaluate(draft.bytes))
        odd = with_decoys(honest, snapshot.params, decoy([Finish()]))
        await send(world.chain, MemoryLog(), odd.sign(world.desk("consumer").wallet.signer), "odd")
        seen = await world.view(live)
        assert (seen.claimed, seen.amount) == (5 * ADA, 15 * ADA)
        await desk.treasury.look()
        last = desk.last()
        assert isinstance(last, Sighted) and last.claimed == 5 * ADA

    run(story)


class Forgetful:
    """A door that answers everything but how a channel moved on."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain

    def __getattr__(self, name: str) -> object:
        return self._moves if name == "moves" else getattr(self._chain, name)

    async def _moves(self, tx_id: bytes) -> Moves | None:
        moves = await self._chain.moves(tx_id)
        spent = moves is not None and any(lenient.is_locked(u.address) for u in moves.inputs)
        return None if spent else moves


def test_a_channel_that_cannot_be_read_is_told_to_the_adapter(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        desk, live, _ = await opened(world, tmp_path)
        await _step(world, live, Close(), [])
        blind = desk.make(Forgetful(world.chain))  # pyright: ignore[reportArgumentType]  same methods
        blind.watch(desk.channel.session_vk)
        await blind.look()
        assert isinstance(desk.last(), Unread)
        await desk.treasury.look()
        seen = desk.last()
        assert isinstance(seen, Sighted) and seen.stage is ChannelStage.CLOSING

    run(story)
