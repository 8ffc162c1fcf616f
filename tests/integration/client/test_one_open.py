"""One open: whatever kills the payer or keeps the chain's answer from it, one channel is on the
chain.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.chain.actions.session import claim, open_channels, pay, settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.transaction.outputs import Out
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet import one_open, second_output
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import Attempt, ChannelTwice, KeyUsed, OpenUnsure
from marketplace.client.wallet.purse import Purse
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.agreed import Agreed
from marketplace.domain.money.channel import Open
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.keystore import Keystore
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, run
from tests.integration.support.door import Answer, door
from tests.unit.support.adapter import ADAPTER, core_job, offer, terms_for

PASSPHRASE = "a passphrase of the tests"
DEADLINE_S = 8.0  # of the payer, for one answer: an honest one comes sooner, on a busy machine too
ONE, TWO = OutRef(b"\x01" * 32, 0), OutRef(b"\x02" * 32, 0)


def test_what_is_taken_up_and_what_is_refused() -> None:
    sure, hurt, over = (
        Attempt(ONE, True),
        Attempt(ONE, True, hurt=True),
        Attempt(ONE, True, over=True),
    )
    assert one_open.decide([], []) is None
    assert one_open.decide([over], []) is None
    assert one_open.decide([sure], []) == ONE
    assert one_open.decide([sure], [(ONE, True)]) == ONE
    assert one_open.decide([hurt], [(TWO, True)]) == TWO
    with pytest.raises(OpenUnsure):
        one_open.decide([hurt], [])
    with pytest.raises(KeyUsed):
        one_open.decide([Attempt(ONE, False)], [])
    with pytest.raises(KeyUsed):
        one_open.decide([], [(ONE, False)])
    for attempts, ours in (
        ([], [(ONE, True), (TWO, True)]),
        ([sure], [(TWO, True)]),
        ([sure, Attempt(TWO, True)], []),
    ):
        with pytest.raises(ChannelTwice):
            one_open.decide(attempts, ours)


class Killed(BaseException):
    """kill -9, as far as a process can play it to itself."""


class Mortal(Till):
    """Dies once its open transaction has left, before anybody notes its id."""

    async def open(self, terms: Agreed, amount: int) -> OutRef:
        await super().open(terms, amount)
        raise Killed


class NoHttp:
    """A market that takes everything and knows nothing."""

    async def post(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    get = post


@dataclass
class Consumer:
    """A purse with money, and a quote that it is about to accept."""

    world: World
    purse: Purse
    session: Signer
    provider: Provider
    terms: Terms
    offered: CheckedQuote

    @staticmethod
    def of(world: World, folder: Path, close_period_ms: int = 86_400_000) -> Consumer:
        provider = Provider("p")
        Keystore(folder / "keys").make(PASSPHRASE, drawn=True)  # no test is about it
        purse = Purse.create(folder, passphrase=PASSPHRASE)
        for _ in range(4):
            world.devnet.faucet(purse.address(mainnet=False), 60 * ADA)
            world.devnet.mint()
        session = purse.new_session()
        supply = offer(
            adapter_vkh=provider.adapter.key_hash, payout=provider.payout,
            close_period_ms=close_period_ms, fee_bps=0,
        )  # fmt: skip
        terms = terms_for(supply, core_job(), session=session, consumer_vkh=purse.signer.key_hash)
        body = terms.encode()
        quote = Quote(SignedTerms(body, ADAPTER.sign(body)), terms, True, "", False, {}, "")
        amount = max(terms.ceiling, 20 * ADA) + 3 * ADA
        return Consumer(
            world, purse, session, provider, terms, CheckedQuote("job_1", quote, amount, 0, 0)
        )

    def life(self, till: Till) -> Runner:
        """A process of this purse, with its locks."""
        payers = Payers(self.purse.channels, "http://market", 42, None)  # pyright: ignore[reportArgumentType]
        http: Any = NoHttp()
        made = Runner(http, self.purse, till, payers)
        made.agreements.know(self.offered.job, core_job())
        return made

    async def outputs(self) -> list[Utxo]:
        """Every unspent output of its session key, as the chain has them in blocks."""
        found = await self.world.chain.utxos(self.address)
        finder = ChannelFinder(self.world.chain, self.world.desk("x").scripts)
        views = [await finder.find(self.session.verify_key, utxo.ref) for utxo in found]
        return [view.utxo for view in views if isinstance(view, ChannelView)]

    @property
    def address(self) -> bytes:
        wallet = self.purse.wallet(mainnet=False)
        assert wallet.stake is not None
        stub = self.world.desk("x").scripts.stub_hash
        return addresses.channel_address(stub, Credential(wallet.stake), False)


def ended(runner: Runner) -> None:
    """The process is gone, and its locks with it."""
    for held in runner.payers.all:
        held._journal.close()  # pyright: ignore[reportPrivateUsage] -- as the kernel does


def test_a_payer_that_died_before_it_noted_its_open_takes_that_one_up(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        first = me.life(Mortal(me.purse, world.chain))
        with pytest.raises(Killed):
            await first.agreements.accept(me.offered)
        ended(first)
        second_life = me.life(Till(me.purse, world.chain))
        [held] = await second_life.payers.take_all(me.purse.session)
        await second_life.watch.resume(held)
        await second_life.agreements.accept(me.offered)
        for _ in range(2):
            world.devnet.mint()
        [output] = await me.outputs()
        assert held.facts.open_tx == output.ref.tx_id.hex()
        view = await ChannelFinder(world.chain, world.desk("x").scripts).find(
            me.session.verify_key, output.ref
        )
        assert isinstance(view, ChannelView)
        world.fund("settler", 50 * ADA)
        world.devnet.mint()
        voucher = Voucher.sign(me.session, 15 * ADA)
        payouts = {me.provider.payout: me.provider.payout_address}
        await claim(world.desk("settler"), [(view, voucher)], payouts)
        world.devnet.mint()
        assert await world.balance(me.provider.payout_address) == 15 * ADA  # once
        ended(second_life)

    run(story, block_ms=BY_HAND)


@pytest.mark.parametrize(
    "kind", ["the line is cut", pytest.param("no answer in time", marks=pytest.mark.prove)]
)
def test_a_door_that_takes_the_open_and_does_not_answer_has_opened_it(
    tmp_path: Path, kind: str
) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        with door(world.served.url) as between:
            between.keeper = lambda method, path, forward: _deaf(method, path, forward, kind)
            chain = await connect(between.url, deadline_s=DEADLINE_S)
            life = me.life(Till(me.purse, chain))
            with anyio.fail_after(120):
                while True:  # as the SDK and the daemon do: a fault of the chain is tried again
                    try:
                        held = await life.agreements.accept(me.offered)
                        break
                    except ChainFault:
                        await anyio.sleep(0.1)
            again = me.life(Till(me.purse, chain))
            ended(life)
            [held] = await again.payers.take_all(me.purse.session)
            await again.watch.resume(held)
            await again.agreements.accept(me.offered)
            ended(again)
        for _ in range(2):
            world.devnet.mint()
        [output] = await me.outputs()
        assert held.facts.open_tx == output.ref.tx_id.hex()

    run(story, block_ms=BY_HAND)


def _deaf(method: str, path: str, forward: Any, kind: str) -> Answer | None:
    answer: Answer = forward()
    if not path.endswith("/tx/submit"):
        return answer
    if kind == "no answer in time":
        time.sleep(2 * DEADLINE_S)
    return None


async def _open_again(me: Consumer, chain: ChainReader) -> OutRef:
    """What a copied home, or a program without the log, would do."""
    desk = Till(me.purse, chain).desk()
    assert desk.wallet.stake is not None
    opening = Opening(
        me.offered.amount, lambda *_: me.terms.consts(), Credential(desk.wallet.stake)
    )
    return (await open_channels(desk, [opening])).refs[0]


@pytest.mark.prove
def test_a_second_output_stops_the_payer_and_is_taken_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path, close_period_ms=60_000)
        till = Till(me.purse, world.chain)
        life = me.life(till)
        held = await life.agreements.accept(me.offered)
        heard: list[Paid] = []

        async def hear(paid: Paid) -> None:
            heard.append(paid)

        life.payers.listen(hear)
        stray = await _open_again(me, world.chain)
        world.devnet.mint()
        assert len(await me.outputs()) == 2
        await life.watch.confirm(held)  # the first look at the chain, before anything is signed
        assert held.book.stopped == "CHANNEL_TWICE" and held.end_sent
        [said] = [paid for paid in heard if paid.kind == "refused"]
        assert said.code == "CHANNEL_TWICE" and "closed by itself" in said.message
        world.devnet.mint()
        view = await till.look(me.session.verify_key, stray)
        assert isinstance(view, ChannelView) and view.closing
        world.devnet.advance(1_000_000)  # beyond its close period
        await second_output.look(till, life.payers, me.purse.channels)
        world.devnet.mint()
        home = await till.look(me.session.verify_key, stray)
        assert isinstance(home, ChannelEnded) and home.claimed == 0
        assert len(await me.outputs()) == 1
        ended(life)

    run(story, block_ms=BY_HAND)


@pytest.mark.prove
def test_a_strangers_copy_beside_the_channel_stops_nobody(tmp_path: Path) -> None:
    """The datum is public: anybody can lay an output with it, and it pays with their money."""

    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        till = Till(me.purse, world.chain)
        life = me.life(till)
        held = await life.agreements.accept(me.offered)
        world.fund("stranger", 50 * ADA)
        world.devnet.mint()
        stake = till.desk().wallet.stake
        assert stake is not None
        copy = Opening(3 * ADA, lambda *_: me.terms.consts(), Credential(stake))
        await open_channels(world.desk("stranger"), [copy])
        world.devnet.mint()
        assert len(await me.outputs()) == 2
        await life.watch.confirm(held)
        await second_output.look(till, life.payers, me.purse.channels)
        assert held.facts.state == "OPEN" and not held.book.stopped and not held.end_sent
        ended(life)

    run(story, block_ms=BY_HAND)


@pytest.mark.parametrize("fee_bps", [0, 1])
def test_a_copy_claimed_from_together_with_the_channel_is_no_second_one(
    tmp_path: Path, fee_bps: int
) -> None:
    """Both outputs go back to the one open that was paid for; the copy may have rules of its
    own.
    """

    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        till = Till(me.purse, world.chain)
        ref = await till.open(me.terms, me.offered.amount)
        world.fund("thief", 100 * ADA)
        world.devnet.mint()
        view = await till.look(me.session.verify_key, ref)
        assert isinstance(view, ChannelView)
        thief = world.desk("thief")
        consts = replace(me.terms.consts(), fee_bps=fee_bps)
        made = await pay(
            thief, [Out(view.utxo.address, 9 * ADA, datum=stage_bytes(Open(consts, 0)))]
        )
        world.devnet.mint()
        copy = next(utxo for utxo in made.made if utxo.datum)
        assert await till.find_open(me.terms) == ref
        step = plans.claim_step(Voucher.sign(me.session, 2 * ADA), 2 * ADA)
        snapshot, funds, fresh = await thief.look()
        both = Batch(
            (Move(view.utxo, step), Move(copy, step)),
            {me.provider.payout: me.provider.payout_address},
        )
        await settle_planned(thief, plans.settle(snapshot, funds, both), fresh, "both")
        world.devnet.mint()
        till.log._path.unlink()  # pyright: ignore -- the book and the log are lost
        assert await Till(me.purse, world.chain).find_open(me.terms) == ref
        outputs = (await till.outputs())[me.session.verify_key]
        assert len(outputs) == 2
        assert await till.strays(me.session.verify_key, outputs, ref) == []

    run(story, block_ms=BY_HAND)
