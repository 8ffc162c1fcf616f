"""Ends of many adapters in one transaction: a market's socket, each adapter's own key, journal and
door to the chain, and those among them who are silent, refuse, or cheat.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from adapter.core.events import Event, Settled, Sighted
from adapter.core.state import Channel, Rules
from adapter.daemon.link import Link
from adapter.journal.journal import Journal
from adapter.money.channel_agent import ChannelAgent
from marketplace.chain.actions.session import finish_channels
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import txbytes
from marketplace.chain.market_ledger import ChainLedger
from marketplace.chain.node.submit import CONSENT, MemoryLog
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.conversation import Client, Numbering
from marketplace.domain.site import origin_of
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel as Known
from marketplace.market.base.records import Setting
from marketplace.market.money.ends import SPENT, Ends
from marketplace.process.main import Running
from tests.fakes import until
from tests.integration.adapter.test_treasury import signed
from tests.integration.support.chain import ADA, Live, Provider, World, key, run
from tests.integration.support.market import fast, market
from tests.unit.support.adapter import core_job, offer, terms_for

WAIT_MS = 600_000
PAID = 3 * ADA
EVER = 2**62


class Adapter:
    """One adapter: its key, its channel, its eye on the chain, its line to the market."""

    def __init__(self, world: World, folder: Path, name: str, live: Live) -> None:
        self.world, self.live, self.provider = world, live, Provider(name)
        supply = offer(
            adapter_vkh=self.provider.adapter.key_hash, payout=self.provider.payout,
            close_period_ms=live.consts.close_period_ms, fee_bps=0,
        )  # fmt: skip
        self.terms = terms_for(
            supply, core_job(), session=live.session, consumer_vkh=live.consts.consumer_vkh
        )
        self.vk = live.session.verify_key
        opened = Channel(self.vk, self.terms.encode(), live.ref.tx_id.hex())
        self.channel = signed(opened, live.voucher(PAID))
        self.signer = key(f"node {name}")
        self.events: list[Event] = []
        self.proposed: list[wire.EndsProposed] = []
        self.journal = Journal(folder / f"{name}.db")
        self.link: Link
        self.agent: ChannelAgent

    @property
    def id(self) -> str:
        return self.signer.verify_key.hex()

    def dial(self, url: str) -> None:
        numbering, at = Numbering(os.urandom(16)), origin_of(url)
        client = Client("adapter", self.signer, 42, "test", numbering, at)
        self.link = Link(url, client, self)
        self.agent = ChannelAgent(
            self.world.chain, self.provider.adapter, self.provider.fee,
            addresses.to_text(self.provider.payout_address), self.journal, self.handle, lambda _vk: self.channel, lambda _code, _text: None,
            rules=Rules(watch_s=1, batch_wait_ms=WAIT_MS), market=self.link,
        )  # fmt: skip

    def record(self) -> Known:
        payout = addresses.to_text(self.provider.payout_address)
        return Known(
            self.vk, "a", self.id, self.terms.encode(), payout, 1, self.live.ref.tx_id.hex(),
            ChannelStage.OPEN,
        )  # fmt: skip

    async def handle(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Sighted):
            self.channel = replace(
                self.channel, stage=event.stage, claimed=event.claimed,
                capacity=event.capacity, limit=event.limit,
            )  # fmt: skip
        elif isinstance(event, Settled):
            self.channel = replace(self.channel, stage=ChannelStage.ENDED)

    async def connected(self) -> None:
        return

    async def disconnected(self) -> None:
        return

    async def acknowledged(self, numbers: list[int]) -> None:
        return

    async def heard(self, message: wire.Message) -> None:
        if isinstance(message, wire.EndsProposed):
            self.proposed.append(message)
        if isinstance(message, (wire.EndsProposed, wire.EndDeclined)):
            self.agent.heard(message)

    def consents(self) -> list[bytes]:
        return [row.id for row in self.journal.transactions() if row.purpose == CONSENT]

    async def ended_by(self) -> str:
        return (await self.world.ended(self.live)).finished_by.hex()


class Silent(Adapter):
    """Offers, and never answers."""

    async def heard(self, message: wire.Message) -> None:
        if isinstance(message, wire.EndsProposed):
            self.proposed.append(message)


class Refusing(Adapter):
    """By the time it is asked, more is due to it."""

    async def heard(self, message: wire.Message) -> None:
        self.channel = signed(self.channel, self.live.voucher(PAID + ADA))
        await super().heard(message)


class Conflicting(Adapter):
    """Ends its channel alone first, and then signs whatever it is asked to."""

    async def heard(self, message: wire.Message) -> None:
        if not isinstance(message, wire.EndsProposed):
            return
        self.proposed.append(message)
        me, live = self.provider, self.live
        if len(self.proposed) == 1:
            await finish_channels(
                self.world.desk("thief"), [(await self.world.view(live), live.voucher(PAID))],
                {me.payout: me.payout_address}, me.adapter,
            )  # fmt: skip
        tx_id = blake2b_256(txbytes.split(message.tx).body)
        self.link.send(
            wire.EndsSigned(message.round, me.adapter.verify_key, me.adapter.sign(tx_id))
        )


@asynccontextmanager
async def scene(world: World, folder: Path, kinds: Sequence[type[Adapter]], **rules: Any):
    """A market with a purse, and an adapter of each of *kinds* whose channel is to be ended."""
    for name in ("consumer", "operator", "thief"):
        world.fund(name, 500 * ADA)
        world.fund(name, 5 * ADA)
    adapters: list[Adapter] = []
    for n, kind in enumerate(kinds):
        (live,) = await world.open("consumer", Provider(f"p{n}"), [20 * ADA])
        adapters.append(kind(world, folder, f"p{n}", live))
        fees = adapters[n].provider.fee_address
        for _ in range(2):
            world.devnet.faucet(addresses.to_text(fees), 10 * ADA)
    ledger = ChainLedger(world.chain, world.desk("operator", MemoryLog()))
    settings = fast(settle_every_ms=10**8, **{"end_share": 150_000, **rules})
    db = f"sqlite:///{folder}/market.db"
    async with market(db, folder, settings, ledger=ledger) as (url, running):
        await running.market.store.apply(Change(puts=[one.record() for one in adapters]))
        async with anyio.create_task_group() as group:
            for one in adapters:
                one.dial(url)
                group.start_soon(one.link.run)
            await until(lambda: all(one.link.up for one in adapters))
            for one in adapters:
                start(group, one)
            yield adapters, running
            group.cancel_scope.cancel()


def start(group: TaskGroup, one: Adapter) -> None:
    one.agent.watch(one.vk)
    one.agent.settle(one.vk)
    group.start_soon(one.agent.run)


def ends(running: Running) -> Any:
    return running.parts.hub.ends


class InTurn:
    """The market's adapters: whoever is *silent* is given up once *others* have answered, however
    long those take on a busy machine.
    """

    def __init__(self, real: Any, silent: str, others: int) -> None:
        self._real, self._silent, self._others = real, silent, others
        self._answered = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def ask(self, provider: str, name: str, message: wire.Message, _seconds: float) -> Any:
        if provider == self._silent:
            await self._answered.wait()
            return await self._real.ask(provider, name, message, 0.1)
        answer = await self._real.ask(provider, name, message, 120.0)
        self._others -= 1
        if not self._others:
            self._answered.set()
        return answer


def test_the_rest_is_ended_though_one_is_silent_one_refuses_and_one_cheats(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        kinds = [Adapter, Silent, Adapter, Refusing, Conflicting, Adapter]
        async with scene(world, tmp_path, kinds) as (adapters, running):
            book = ends(running)
            others = len(kinds) - 1
            context: Any = running.market  # its port for adapters, as this test hears them
            context.providers = InTurn(context.providers, adapters[1].id, others)
            await until(lambda: len(book.offers) == len(kinds))
            before = await world.balance(world.wallet("operator").address)
            tx = await book.round()
            honest = [one for one in adapters if type(one) is Adapter]
            assert tx and [await one.ended_by() for one in honest] == [tx] * 3
            for one in honest:
                assert await world.balance(one.provider.payout_address) == PAID
                assert bytes.fromhex(tx) in one.consents()  # in its journal before it was given
                await until(lambda one=one: one.channel.stage is ChannelStage.ENDED)
            left = {adapters[1].id, adapters[3].id}
            assert {o.provider for o in book.offers.values()} == left == book.out.keys()
            await world.view(adapters[1].live)
            await world.view(adapters[3].live)
            assert await adapters[4].ended_by() != tx
            spent = before - await world.balance(world.wallet("operator").address)
            kept = await running.market.store.get(Setting, SPENT)
            assert kept is not None and kept.value.endswith(f" {spent}")
            assert 0 < spent < 3 * 150_000  # the fee, and nothing else

    run(story)


def test_who_signs_and_then_ends_alone_holds_up_nobody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        kinds = [Adapter, Adapter, Conflicting, Adapter]
        async with scene(world, tmp_path, kinds) as (adapters, running):
            await until(lambda: len(ends(running).offers) == len(kinds))
            tx = await ends(running).round()
            for one in adapters:
                assert len(one.proposed) == (1 if type(one) is Conflicting else 2)
                assert (await one.ended_by() == tx) is (type(one) is Adapter)
            first = {one.consents()[0] for one in adapters if type(one) is Adapter}
            assert len(first) == 1 and bytes.fromhex(tx) not in first
            assert not ends(running).out and not ends(running).offers

    run(story)


class Lying(Adapter):
    """Offers what is not its own, and dust that somebody else is to make an output of."""

    def __init__(self, world: World, folder: Path, name: str, live: Live) -> None:
        super().__init__(world, folder, name, live)
        self.declined: list[str] = []

    def offers(self, vk: bytes, live: Live, cumulative: int) -> None:
        ref, voucher = live.ref, self.live.voucher(cumulative)
        self.link.send(
            wire.EndOffered(
                vk, ref.tx_id, ref.index, cumulative, cumulative, voucher.signature, EVER
            )
        )

    async def heard(self, message: wire.Message) -> None:
        if isinstance(message, wire.EndDeclined):
            self.declined.append(message.code)


def test_an_adapter_offers_its_own_channels_and_no_gift_is_made_of_dust(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        kinds = [Adapter, Lying]
        async with scene(world, tmp_path, kinds, end_share=2_000_000) as (adapters, running):
            honest, liar = adapters
            book = ends(running)
            await until(lambda: len(book.offers) == 2)
            assert isinstance(liar, Lying)
            liar.offers(honest.vk, honest.live, PAID)
            await until(lambda: liar.declined == ["UNKNOWN"])
            mine = (liar.id, liar.vk)
            for live, cumulative, fit in (
                (honest.live, PAID, False),
                (liar.live, 500_000, True),  # it waits for more of its payout, and gets no gift
            ):
                liar.offers(liar.vk, live, cumulative)
                await until(
                    lambda: mine in book.offers and book.offers[mine].offered.until_ms == EVER
                )
                book.offers.pop((honest.id, honest.vk), None)
                assert await book.round() == "" and (mine in book.offers) is fit
            await until(lambda: liar.declined == ["UNKNOWN", "UNFIT"])
            liar.link.send(wire.EndsSigned("of nobody", bytes(32), bytes(64)))  # asked by nobody

    run(story)


def test_what_a_day_has_cost_is_known_over_a_restart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        budget = 300_000  # for one end alone
        rules = {"end_share": budget, "end_budget": budget}
        async with scene(world, tmp_path, [Adapter, Adapter], **rules) as (_, running):
            book = ends(running)
            await until(lambda: len(book.offers) == 2)
            assert await book.round()
            ((provider, _), left) = next(iter(book.offers.items()))
            again = Ends(running.market)  # as a process that starts has it
            await again.offered(provider, left.offered)
            assert not again.offers and await again.round() == ""

    run(story)


def test_what_is_too_dear_for_the_operator_is_proposed_to_nobody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with scene(world, tmp_path, [Adapter, Adapter], end_share=60_000) as (them, running):
            book = ends(running)
            await until(lambda: len(book.offers) == 2)
            assert await book.round() == "" and len(book.offers) == 2
            assert not any(one.proposed for one in them)

    run(story)


def test_a_market_that_pays_for_none_says_so_and_each_ends_alone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with scene(world, tmp_path, [Adapter, Adapter], end_budget=0) as (them, running):
            for one in them:
                await until(lambda one=one: one.channel.stage is ChannelStage.ENDED)
                assert not one.consents() and not ends(running).offers
            assert await them[0].ended_by() != await them[1].ended_by()

    run(story)
