"""What a payer believes of its chain's door: that something was claimed, only with an own signature
beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from marketplace.chain.actions.session import claim
from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.money.channel import Open
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from tests.integration.client.test_one_open import Consumer, ended
from tests.integration.support.chain import ADA, BY_HAND, World, run
from tests.integration.support.door import Answer, Door, door
from tests.unit.support.payer import Paper

FALSE_TX = "ab" * 32


@dataclass
class Life:
    """A process of the payer that was started anew: its one channel, and what it said."""

    runner: Runner
    held: ChannelPayer
    sent: list[wire.Message] = field(default_factory=list)
    heard: list[Paid] = field(default_factory=list)

    @property
    def vouchers(self) -> list[Voucher]:
        return [one.voucher for one in self.sent if isinstance(one, wire.VoucherSent)]


@asynccontextmanager
async def restarted(me: Consumer, chain: ChainReader) -> AsyncGenerator[Life]:
    """The daemon's start on the books that are there."""
    runner = me.life(Till(me.purse, chain))
    [held] = await runner.payers.take_all(me.purse.session)
    life = Life(runner, held)

    async def send(message: wire.Message) -> None:
        life.sent.append(message)

    async def hear(paid: Paid) -> None:
        life.heard.append(paid)

    held._link.send = send  # pyright: ignore -- what would leave for the market
    runner.payers.listen(hear)
    await runner.watch.resume(held)
    try:
        yield life
    finally:
        ended(runner)


async def running(world: World, folder: Path) -> tuple[Consumer, Paper, str]:
    """A channel in a block, over which one honest second was paid, and its open transaction."""
    me, paper = Consumer.of(world, folder), Paper()
    life = me.life(Till(me.purse, world.chain))
    held = await life.agreements.accept(me.offered)
    world.devnet.mint()
    await life.watch.confirm(held)
    await held.receipt(paper.tick(me.terms, 1000))
    ended(life)
    return me, paper, held.facts.open_tx


def lie(door_: Door, me: Consumer, opened: ChannelView, claimed: int) -> None:
    """From now on the door shows a claim of *claimed* that never was, in a transaction of its own
    making.
    """
    out, tx = opened.utxo, opened.utxo.ref.tx_id.hex()

    def asked(path: str) -> Any:
        return json.loads(door_.forward("GET", path, b"", "")[1])

    def keeper(_method: str, path: str, forward: Any) -> Answer:
        if path.endswith(f"/txs/{tx}/utxos"):
            row = asked(path)
            row["outputs"][out.ref.index]["consumed_by_tx"] = FALSE_TX
            return 200, json.dumps(row).encode(), "application/json"
        if path.endswith(f"/txs/{FALSE_TX}/utxos"):
            spent = asked(path.replace(FALSE_TX, tx))["outputs"][out.ref.index]
            onward = stage_bytes(Open(me.terms.consts(), claimed)).hex()
            rest = out.lovelace - claimed
            made = [_out(0, addresses.to_text(out.address), rest, onward)]
            made.append(_out(1, addresses.to_text(me.provider.payout_address), claimed, None))
            of = {"tx_hash": tx, "collateral": False, "reference": False}
            told = {"hash": FALSE_TX, "inputs": [{**spent, **of}], "outputs": made}
            return 200, json.dumps(told).encode(), "application/json"
        if FALSE_TX in path:  # its block, its bytes: those of the open transaction
            return door_.forward("GET", path.replace(FALSE_TX, tx), b"", "")
        answer: Answer = forward()
        return answer

    door_.keeper = keeper


def _out(index: int, at: str, lovelace: int, datum: str | None) -> dict[str, Any]:
    return {
        "output_index": index, "address": at, "data_hash": None, "inline_datum": datum,
        "amount": [{"unit": "lovelace", "quantity": str(lovelace)}],
        "reference_script_hash": None, "collateral": False, "consumed_by_tx": None,
    }  # fmt: skip


async def view_of(me: Consumer, chain: ChainReader, open_tx: str) -> ChannelView:
    [out] = [u for u in await me.outputs() if u.ref.tx_id.hex() == open_tx]
    found = await Till(me.purse, chain).look(me.session.verify_key, out.ref)
    assert not isinstance(found, ChannelEnded)
    return found


def test_a_claim_that_only_the_door_speaks_of_is_signed_by_nobody(tmp_path: Path) -> None:
    """The door is the market's own where none is named: market and provider together are enough for
    it.
    """

    async def story(world: World) -> None:
        me, paper, open_tx = await running(world, tmp_path)
        opened = await view_of(me, world.chain, open_tx)
        with door(world.served.url) as between:
            lie(between, me, opened, opened.amount - 3 * ADA)
            async with restarted(me, await connect(between.url)) as life:
                assert life.held.book.signed == 20
                assert life.held.book.stopped == "CLAIM_UNSIGNED" and life.held.end_sent
                await life.held.receipt(paper.tick(me.terms, 1000))
                assert life.vouchers == []
                [said] = [one for one in life.heard if one.code == "CLAIM_UNSIGNED"]
                assert "chain of your own" in said.message
        async with restarted(me, world.chain) as again:  # it stays so, with a true door too
            assert again.held.book.signed == 20 and again.held.book.stopped == "CLAIM_UNSIGNED"

    run(story, block_ms=BY_HAND)


def test_an_old_copy_of_the_book_learns_from_the_claims_own_voucher_and_no_more(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        me, _, open_tx = await running(world, tmp_path)
        books = me.purse.channels
        shutil.copytree(books, tmp_path / "backup")
        world.fund("settler", 50 * ADA)
        world.devnet.mint()
        payouts = {me.provider.payout: me.provider.payout_address}
        voucher = Voucher.sign(me.session, 2 * ADA)  # the copy that went on had come so far
        view = await view_of(me, world.chain, open_tx)
        await claim(world.desk("settler"), [(view, voucher)], payouts)
        world.devnet.mint()
        shutil.rmtree(books)
        shutil.copytree(tmp_path / "backup", books)
        async with restarted(me, world.chain) as old:
            book = old.held.book
            assert (book.signed, book.spent, book.stopped) == (2 * ADA, 20, "")
        # What that claim shows is no leave for a door that speaks of more.
        with door(world.served.url) as between:
            lie(between, me, view, view.amount - 3 * ADA)
            async with restarted(me, await connect(between.url)) as old:
                assert old.held.book.signed == 2 * ADA
                assert old.held.book.stopped == "CLAIM_UNSIGNED"

    run(story, block_ms=BY_HAND)


def test_a_door_that_cannot_be_asked_or_lags_behind_stops_nobody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me, paper, _ = await running(world, tmp_path)
        with door(world.served.url) as between:
            chain = await connect(between.url)
            ways: list[Any] = [
                lambda *_: (500, b"{}", "application/json"),  # away
                lambda _m, path, forward: (  # before the channel, or of another network
                    (404, b"{}", "application/json") if "/txs/" in path else forward()
                ),
            ]
            for way in ways:
                between.keeper = way
                async with restarted(me, chain) as life:
                    assert life.held.book.signed == 20 and not life.held.book.stopped
        async with restarted(me, world.chain) as life:
            await anyio.sleep(0.06)  # beside one tick the own clock allows a lovelace each 50 ms
            await life.held.receipt(paper.tick(me.terms, 1000))
            [voucher] = life.vouchers
            assert 20 < voucher.cumulative <= 40  # by how long this took

    run(story, block_ms=BY_HAND)
