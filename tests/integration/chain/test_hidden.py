"""What hides a channel from its readers keeps no claim out.

A neighbour's address can be written in another length where its output is made: a pointer (CIP-19,
types 4 and 5) has many encodings of its numbers, which are one address to the ledger and to settle.
And should a channel be unreadable for a reason that nobody thought of, its voucher is good for
whatever output holds its constants.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.events import Settled, Sighted, Unread
from marketplace.chain.actions.session import CLOSE_WITHIN_MS, pay
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import assemble
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import plutus, txbytes
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.chain.settlement.next_step import UNREAD_LOOKS
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.domain.money.channel import Close, Closing, Open
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.market.base.ports import Claimable
from tests.integration.adapter.test_treasury import opened, signed
from tests.integration.chain.test_decoys import Forgetful
from tests.integration.support.chain import ADA, Live, World, run
from tests.integration.support.odd import rewritten

SHORT, LONG = b"\x01\x02\x03", b"\x80\x01\x02\x03"
"""One pointer twice: 1, 2 and 3, the first of them with a leading nought."""
_TOP_UP, _CLOSE = b"\xd8\x7c\x81\x1a\x00\x0f\x42\x40", b"\xd8\x7d\x80"


async def neighbour_of(world: World, live: Live, stub: bytes) -> Utxo:
    """A channel-like output of the consumer's own at a pointer of the stub."""
    at = b"\x50" + stub + SHORT
    body = stage_bytes(Open(replace(live.consts, session_vk=b"\x07" * 32), 0))
    made = await pay(world.desk("consumer"), [Out(at, 5 * ADA, datum=body)])
    return next(one for one in made.made if one.address == at)


async def close_beside(world: World, live: Live) -> None:
    """The consumer's Close, beside a top-up of the neighbour whose address is written anew."""
    desk, view = world.desk("consumer"), await world.view(live)
    other = await neighbour_of(world, live, view.utxo.address[1:29])
    snapshot, funds, _ = await desk.look()
    until = (await world.chain.tip()).time_ms + CLOSE_WITHIN_MS
    signers = (live.consts.consumer_vkh,)
    alone = Batch((Move(view.utxo, Close()),), signers=signers, until_ms=until)
    plan = plans.settle(snapshot, funds, alone).draft.plan
    [closed] = plan.outputs
    topped = Out(other.address, 6 * ADA, datum=other.datum)
    both = sorted((view.utxo, other), key=lambda one: one.ref)
    outputs = tuple(topped if one is other else closed for one in both)
    steps = b"\x82" + b"".join(_TOP_UP if one is other else _CLOSE for one in both)
    plan = replace(plan, outputs=outputs, channels=tuple(both), steps=steps)
    snapshot, funds, fresh = await desk.look()
    unsigned = await desk.finish(assemble(snapshot, plan, funds), fresh)
    unsigned = rewritten(unsigned, snapshot.params, unsigned.redeemers or b"")
    fields = dict(txbytes.map_items(unsigned.body))
    long = other.address[:29] + LONG
    short, anew = (plutus.head(2, len(one)) + one for one in (other.address, long))
    assert short in fields[1]
    fields[1] = fields[1].replace(short, anew)
    body = plutus.head(5, len(fields))
    body += b"".join(plutus.head(0, key) + raw for key, raw in fields.items())
    sent = replace(unsigned, body=body).sign(desk.wallet.signer)
    await send(world.chain, MemoryLog(), sent, "odd")


def test_a_neighbour_whose_pointer_is_written_anew_hides_no_close(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        desk.channel = signed(desk.channel, live.voucher(15 * ADA))
        await close_beside(world, live)
        assert isinstance((await world.view(live)).stage, Closing)
        await desk.treasury.look()
        seen = desk.last()
        assert isinstance(seen, Sighted) and seen.stage is ChannelStage.CLOSING
        desk.treasury.settle(desk.channel.session_vk)
        for _ in range(2):
            await desk.treasury.look()
            world.devnet.mint()
        done = desk.last()
        assert isinstance(done, Settled) and done.claimed == 15 * ADA
        assert await world.balance(provider.payout_address) == 15 * ADA

    run(story)


async def close(world: World, live: Live) -> None:
    """The consumer's Close, plainly."""
    desk, view = world.desk("consumer"), await world.view(live)
    until = (await world.chain.tip()).time_ms + CLOSE_WITHIN_MS
    batch = plans.closing_batch(view.utxo, live.consts.consumer_vkh, until)
    snapshot, funds, fresh = await desk.look()
    unsigned = await desk.finish(plans.settle(snapshot, funds, batch).draft, fresh)
    await send(world.chain, MemoryLog(), unsigned.sign(desk.wallet.signer), "close")


def test_an_adapter_claims_from_a_channel_that_it_cannot_read(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        desk.channel = signed(desk.channel, live.voucher(15 * ADA))
        await close(world, live)
        blind = desk.make(Forgetful(world.chain))  # pyright: ignore[reportArgumentType]  same methods
        blind.watch(desk.channel.session_vk)
        for _ in range(UNREAD_LOOKS + 2):
            await blind.look()
            assert isinstance(desk.last(), Unread)
        assert (
            await world.balance(provider.payout_address) == 15 * ADA
        )  # once, however often it looks

    run(story)


@pytest.mark.parametrize("shown", [True, False])
def test_a_market_claims_from_a_channel_that_it_cannot_read(shown: bool, tmp_path: Path) -> None:
    """*shown*: the control, through a door that shows all."""

    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await close(world, live)
        world.fund("settler", 50 * ADA)
        chain = world.chain if shown else Forgetful(world.chain)
        ledger = ChainLedger(chain, world.desk("settler"))  # pyright: ignore[reportArgumentType]  same methods
        claim = Claimable(
            desk.terms, live.ref.tx_id.hex(), live.voucher(15 * ADA),
            addresses.to_text(provider.payout_address), True, 15 * ADA,
        )  # fmt: skip
        for _ in range(UNREAD_LOOKS + 2):
            await ledger.claim([claim])
            world.devnet.mint()
        assert await world.balance(provider.payout_address) == 15 * ADA

    run(story)


def test_a_richer_copy_that_no_claim_can_spend_does_not_divert_the_rescue(tmp_path: Path) -> None:
    """It carries a reference script, which makes a claim dearer than it can be built here."""

    async def story(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        at, body = (await world.view(live)).utxo.address, stage_bytes(Open(live.consts, 0))
        copy = Out(at, 60 * ADA, datum=body, script=scripts_for().stub_cbor)
        world.fund("consumer", 100 * ADA)
        await pay(world.desk("consumer"), [copy])
        await close(world, live)
        blind = desk.make(Forgetful(world.chain))  # pyright: ignore[reportArgumentType]  same methods
        blind.watch(desk.channel.session_vk)
        desk.channel = signed(desk.channel, live.voucher(15 * ADA))
        found = await world.finder.claimable(live.session.verify_key, provider.payout)
        assert [view.amount for view in found] == [20 * ADA]
        for _ in range(UNREAD_LOOKS + 1):
            await blind.look()
        assert await world.balance(provider.payout_address) == 15 * ADA

    run(story)
