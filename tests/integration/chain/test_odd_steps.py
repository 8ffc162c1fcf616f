"""A consumer who writes its steps in a way that the scripts take and nobody else does cannot hide
them.

The scripts look at a step's constructor and at the arguments that they need, and at no more of a
channel than its step uses. Whoever follows a channel must read as much, or a Close that it cannot
read costs the provider everything that was not claimed yet.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.chain.actions.session import CLOSE_WITHIN_MS, claim, pay
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Plan, assemble
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelFinder, ChannelView
from marketplace.chain.encoding import cursor
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.submit import MemoryLog, Sent, send
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.money.channel import Close, Closing, Open
from tests.integration.chain.test_channels import _terms  # pyright: ignore[reportPrivateUsage] (the same facts)
from tests.integration.support.chain import ADA, Live, Provider, World, run

DEEP = b"\x81" * 300 + b"\x00"  # a list in a list in a list ...
CLOSES = {
    "an argument too many": b"\x81\xd8\x7d\x81\x00",
    "a map as argument": b"\x81\xd8\x7d\x81\xa1\x00\x00",
    "deeply nested": b"\x81\xd8\x7d\x81" + DEEP,
    "the general form of a constructor": b"\x81\xd8\x66\x82\x04\x80",
    "lists without a length": b"\x9f\xd8\x7d\x9f\xff\xff",
}


async def _send(world: World, plan: Plan) -> Sent:
    """*plan*, signed by the consumer and taken by the ledger."""
    desk = world.desk("consumer")
    snapshot, funds, fresh = await desk.look()
    unsigned = await desk.finish(assemble(snapshot, plan, funds), fresh)
    return await send(world.chain, MemoryLog(), unsigned.sign(desk.wallet.signer), "odd")


async def _closing(world: World, live: Live) -> Plan:
    view = await world.view(live)
    until = (await world.chain.tip()).time_ms + CLOSE_WITHIN_MS
    signer = world.wallet("consumer").signer.key_hash
    batch = Batch((Move(view.utxo, Close()),), signers=(signer,), until_ms=until)
    snapshot, funds, _ = await world.desk("consumer").look()
    return plans.settle(snapshot, funds, batch).draft.plan


async def _seen(world: World, live: Live) -> ChannelView:
    """As somebody sees it who followed it, and as somebody who comes fresh."""
    views: list[ChannelView] = []
    for finder in (world.finder, ChannelFinder(world.chain, world.desk("x").scripts)):
        view = await finder.find(live.session.verify_key, live.ref)
        assert isinstance(view, ChannelView)
        views.append(view)
    assert views[0] == views[1]
    return views[0]


@pytest.mark.parametrize("how", CLOSES)
def test_an_oddly_written_close_is_seen_and_claimed_from(how: str) -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        await _send(world, replace(await _closing(world, live), steps=CLOSES[how]))
        view = await _seen(world, live)
        assert isinstance(view.stage, Closing)
        payouts = {provider.payout: provider.payout_address}
        await claim(world.desk("settler"), [(view, live.voucher(9 * ADA))], payouts)
        assert (await world.view(live)).claimed == 9 * ADA

    run(story)


def test_an_oddly_written_datum_is_seen_and_claimed_from() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("settler", 50 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        plan = await _closing(world, live)
        [out] = plan.outputs
        assert out.datum is not None and out.datum[:3] == b"\xd8\x7a\x83"
        general = b"\xd8\x66\x82\x01\x9f" + out.datum[3:] + b"\xff"
        await _send(world, replace(plan, outputs=(replace(out, datum=general),)))
        view = await _seen(world, live)
        assert isinstance(view.stage, Closing) and view.utxo.datum == general
        payouts = {provider.payout: provider.payout_address}
        await claim(world.desk("settler"), [(view, live.voucher(9 * ADA))], payouts)
        assert (await world.view(live)).claimed == 9 * ADA

    run(story)


def test_a_strange_neighbour_does_not_hide_a_channel() -> None:
    """Topped up beside something at the channels' address that no reader of ours takes for one."""

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 300 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        view = await world.view(live)
        odd = replace(live.consts, adapter_vkh=b"\x07" * 27)
        strange = await pay(
            world.desk("consumer"),
            [Out(view.utxo.address, 20 * ADA, datum=stage_bytes(Open(odd, 0)))],
        )
        both = sorted((view.utxo, strange.made[0]), key=lambda u: u.ref)
        top_up = b"\xd8\x7c\x82\x1a\x00\x0f\x42\x40\xa0"  # 1 ADA, and a map that nobody reads
        plan = Plan(
            outputs=tuple(Out(u.address, u.lovelace + ADA, datum=u.datum) for u in both),
            channels=tuple(both),
            steps=b"\x82" + top_up * 2,
            signers=(live.consts.consumer_vkh,),
        )
        assert len(cursor.items(plan.steps or b"")) == 2
        await _send(world, plan)
        seen = await _seen(world, live)
        assert seen.amount == 31 * ADA and [f.amount for f in seen.fundings] == [30 * ADA, ADA]

    run(story)


def test_a_copy_of_the_datum_beside_the_open_hides_it_from_no_market() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        own = world.fund("consumer", 300 * ADA)
        [live] = await world.open("consumer", provider, [30 * ADA])
        view = await world.view(live)
        consts = replace(live.consts, session_vk=b"\x31" * 32)
        body = stage_bytes(Open(consts, 0))
        outs = [Out(own, 5 * ADA, datum=body), Out(view.utxo.address, 20 * ADA, datum=body)]
        opened = await pay(world.desk("consumer"), outs)
        terms = _terms(replace(live, consts=consts), provider)
        seen = await ChainLedger(world.chain, None).channel(terms, opened.tx_id.hex())
        assert seen is not None and (seen.state, seen.value) == ("OPEN", 20 * ADA)

    run(story)
