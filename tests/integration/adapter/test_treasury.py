"""The adapter's own eye and hand on a real ledger: sees, checks, finishes, survives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.events import ChannelUnfit, Event, Settled, Sighted
from adapter.core.state import Channel, Rules
from adapter.journal.journal import Journal
from adapter.money.channel_agent import ChannelAgent
from marketplace.chain.actions.session import claim, close_channel
from marketplace.chain.encoding import address as addresses
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import Voucher
from tests.integration.support.chain import ADA, DAY_MS, Live, Provider, World, run
from tests.unit.support.adapter import core_job, offer, terms_for


class Desk:
    """A treasury with one channel, and what it reported."""

    def __init__(
        self, world: World, live: Live, provider: Provider, journal: Journal, fee_bps: int = 0
    ) -> None:
        supply = offer(
            adapter_vkh=provider.adapter.key_hash,
            payout=provider.payout,
            close_period_ms=live.consts.close_period_ms,
            fee_bps=fee_bps,
        )
        self.terms: Terms = terms_for(
            supply, core_job(), session=live.session, consumer_vkh=live.consts.consumer_vkh
        )
        self.channel = Channel(live.session.verify_key, self.terms.encode(), live.ref.tx_id.hex())
        self.events: list[Event] = []
        self.alarms: list[str] = []
        self.make: Callable[[ChainReader], ChannelAgent] = lambda chain: ChannelAgent(
            chain, provider.adapter, provider.fee, addresses.to_text(provider.payout_address), journal,
            self.handle, lambda _vk: self.channel, lambda code, _text: self.alarms.append(code),
            rules=Rules(watch_s=1),
        )  # fmt: skip
        self.treasury = self.make(world.chain)
        self.treasury.watch(self.channel.session_vk)

    async def handle(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Sighted):
            self.channel = replace(
                self.channel, stage=event.stage, claimed=event.claimed,
                capacity=event.capacity, limit=event.limit,
            )  # fmt: skip
        elif isinstance(event, Settled):
            self.channel = replace(self.channel, stage=ChannelStage.ENDED)

    def last(self) -> Event:
        return self.events[-1]


def signed(channel: Channel, voucher: Voucher, delivered: int | None = None) -> Channel:
    """*channel* with a voucher, and the receipt that it answers (or one that owes less)."""
    owed = voucher.cumulative if delivered is None else delivered
    receipt = Receipt(
        channel.session_vk, "lease_1", 1, 0, 1000, 0, bytes(32), "gpu", 1000, owed, owed, (),
        bytes(32), bytes(32), True,
    )  # fmt: skip
    return replace(channel, voucher=voucher, last=receipt)


async def opened(world: World, folder: Path, amount: int = 20 * ADA) -> tuple[Desk, Live, Provider]:
    """A channel of *amount* to a funded provider."""
    provider = Provider("p")
    world.fund("consumer", 200 * ADA)
    for _ in range(2):
        world.devnet.faucet(addresses.to_text(provider.fee_address), 10 * ADA)  # pyright: ignore[reportUnknownMemberType]
    live = (await world.open("consumer", provider, [amount], close_period_ms=DAY_MS))[0]
    journal = Journal(folder / "journal.db")
    return Desk(world, live, provider, journal), live, provider


def story(body: Callable[[World], Awaitable[None]]) -> None:
    run(body)


def test_it_sees_checks_and_finishes(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        seen = desk.last()
        assert isinstance(seen, Sighted) and seen.stage is ChannelStage.OPEN
        assert 0 < seen.limit < seen.capacity < 20 * ADA  # one block deep: three ADA at most
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        await desk.treasury.look()
        done = desk.last()
        assert isinstance(done, Settled)
        ended = await world.ended(live)
        assert (ended.claimed, ended.finished_by.hex()) == (5 * ADA, done.tx)
        assert await world.balance(provider.payout_address) == 5 * ADA

    story(body)


def test_what_was_signed_ahead_goes_home_with_the_rest(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        desk.channel = signed(desk.channel, live.voucher(7 * ADA), delivered=5 * ADA)
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        await desk.treasury.look()
        assert isinstance(desk.last(), Settled)
        assert (await world.ended(live)).claimed == 5 * ADA
        assert await world.balance(provider.payout_address) == 5 * ADA

    story(body)


def test_a_channel_with_other_constants_is_unfit(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, _live, _provider = await opened(world, tmp_path)
        other = replace(desk.terms, close_period_ms=60_000)
        desk.channel = replace(desk.channel, terms=other.encode())
        await desk.treasury.look()
        assert isinstance(desk.last(), ChannelUnfit)

    story(body)


def test_it_sees_a_close_and_finishes_before_the_period_is_over(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        await desk.treasury.look()
        await close_channel(world.desk("consumer"), await world.view(live))
        desk.channel = signed(desk.channel, live.voucher(2 * ADA))
        await desk.treasury.look()
        seen = desk.last()
        assert isinstance(seen, Sighted) and seen.stage is ChannelStage.CLOSING
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        await desk.treasury.look()
        assert isinstance(desk.last(), Settled)
        assert await world.balance(provider.payout_address) == 2 * ADA

    story(body)


class DeadDoor:
    """A chain that takes no transaction: the kill between the log and the node."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain

    def __getattr__(self, name: str) -> object:
        if name == "submit":
            return self._submit
        return getattr(self._chain, name)

    async def _submit(self, tx: bytes) -> bytes:
        raise ChainFault("the line was cut")


def test_the_same_bytes_are_sent_again_after_a_kill(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        cut = desk.make(DeadDoor(world.chain))  # pyright: ignore[reportArgumentType]  same methods
        desk.channel = signed(desk.channel, live.voucher(3 * ADA))
        cut.settle(desk.channel.session_vk)
        await cut.look()
        assert not any(isinstance(e, Settled) for e in desk.events)
        again = desk.make(world.chain)
        again.settle(desk.channel.session_vk)
        await again.look()
        await again.look()
        assert isinstance(desk.last(), Settled)
        assert await world.balance(provider.payout_address) == 3 * ADA

    story(body)


def test_without_money_for_the_fee_it_says_where_to_send_some(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        provider = Provider("poor")
        world.fund("consumer", 100 * ADA)
        live = (await world.open("consumer", provider, [20 * ADA]))[0]
        desk = Desk(world, live, provider, Journal(tmp_path / "journal.db"))
        desk.channel = signed(desk.channel, live.voucher(3 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        assert "FUNDS_SHORT" in desk.alarms

    story(body)


@pytest.mark.parametrize("cumulative", [0, 1])
def test_a_voucher_of_next_to_nothing_still_sends_the_rest_home(
    tmp_path: Path, cumulative: int
) -> None:
    async def body(world: World) -> None:
        desk, live, _provider = await opened(world, tmp_path)
        desk.channel = signed(desk.channel, Voucher.sign(live.session, cumulative))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        await desk.treasury.look()
        assert isinstance(desk.last(), Settled)
        assert (await world.ended(live)).claimed == cumulative

    story(body)


def test_a_finish_that_a_rollback_undid_and_a_claim_overtook_is_made_again(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider = await opened(world, tmp_path)
        world.fund("rival", 50 * ADA)
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        await desk.treasury.look()
        ended = desk.last()
        assert isinstance(ended, Settled) and not ended.final
        world.devnet.rollback(1, drop=True)
        payouts = {provider.payout: provider.payout_address}
        world = replace(world)  # an observer who remembers nothing
        await claim(world.desk("rival"), [(await world.view(live), live.voucher(2 * ADA))], payouts)
        for _ in range(4):
            await desk.treasury.look()
        again = desk.last()
        assert isinstance(again, Settled) and again.tx != ended.tx and again.claimed == 5 * ADA
        assert await world.balance(provider.payout_address) == 5 * ADA
        world.devnet.mint(15)
        await desk.treasury.look()
        deep = desk.last()
        assert isinstance(deep, Settled) and deep.final

    story(body)
