"""Channels are a purse's, not a process's: the next command takes up what an earlier one kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.client.payer import journal as books
from marketplace.client.payer import payers
from marketplace.client.payer.journal import Journal
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.units import show_ada
from marketplace.domain.work.parts import Policy
from tests.integration.client.test_cli import Shell
from tests.integration.support.client import ADA, World, spec, story, until

LONG = Policy(max_duration_ms=600_000)  # its ceiling leaves room for those that follow
COUNT = 5


def command(world: World, purse: Purse, keep: str = "10m") -> Market:
    """A market as a command of its own opens it: what it knows of the purse lies on the disk."""
    return Market(world.url, wallet=purse, chain_url=world.served.url, keep=keep)


async def ran(world: World, market: Market, number: int, ticks: int = 2) -> str:
    """The *number*-th job (from 1), run to its last receipt; its lease."""
    await market.run(spec(name=f"job-{number}", policy=LONG if number == 1 else Policy()))
    lease = await world.provider.lease(number)
    await world.provider.start(lease)
    await world.provider.ticks(lease, ticks)
    await world.provider.adapter.finish(lease)
    await until(lambda: any(lease in held.final for held in market.payers.all))
    return lease


def opened(purse: Purse) -> list[bytes]:
    return books.channels_in(purse.channels)


def test_one_channel_serves_a_purses_commands_one_after_the_other(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, used = world.purse(), set[bytes]()
        for number in range(1, COUNT + 1):
            async with command(world, purse) as market:
                if number == 1:
                    await world.provider.keeps(market)
                await ran(world, market, number)
                (held,) = market.payers.all
                used.add(held.session_vk)
        (channel,) = used
        assert opened(purse) == [channel]
        book = books.peek(purse.channels, channel)
        assert len(book.terms) == COUNT and book.book.signed == 2 * COUNT and not book.end_sent
        orders = world.provider.adapter.keeps
        assert {order.keep_ms for order in orders} == {600_000} and len(orders) >= COUNT

    story(tmp_path, tell)


def test_what_another_process_does_not_hand_on_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process signs for one channel at a time. One that is stopped, or from before, hands
    nothing on: the second command opens its own.
    """
    monkeypatch.setattr(payers, "OBTAIN_S", 1.0)

    async def tell(world: World) -> None:
        purse = world.purse()
        async with command(world, purse) as market:
            await world.provider.keeps(market)
            await ran(world, market, 1)
        (channel,) = opened(purse)
        journal, _ = Journal.hold(purse.channels, channel)  # as another process does
        try:
            async with command(world, purse) as market:
                await ran(world, market, 2)
        finally:
            journal.close()
        assert len(opened(purse)) == 2

    story(tmp_path, tell)


def test_a_channel_that_its_provider_ended_is_known_as_ended(tmp_path: Path) -> None:
    """The order was carried out while no process of the consumer's ran."""

    async def tell(world: World) -> None:
        purse = world.purse()
        async with command(world, purse) as market:
            await world.provider.keeps(market)
            lease = await ran(world, market, 1)
            (held,) = market.payers.all
        await world.provider.settle(held.session_vk, held.facts.open_tx, lease)
        async with command(world, purse) as market:
            await ran(world, market, 2)
        first, second = (books.peek(purse.channels, vk).facts for vk in (
            held.session_vk, next(vk for vk in opened(purse) if vk != held.session_vk)
        ))  # fmt: skip
        assert first is not None and first.state is ChannelStage.ENDED and first.settled_tx
        assert second is not None and second.state is ChannelStage.OPEN

    story(tmp_path, tell)


def test_a_command_that_keeps_nothing_ends_what_it_took_up(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        async with command(world, purse) as market:
            await world.provider.keeps(market)
            await ran(world, market, 1)
        async with command(world, purse, keep="0s") as market:
            await ran(world, market, 2)
            (held,) = market.payers.all
            await until(lambda: held.end_sent)
        assert opened(purse) == [held.session_vk]
        await until(lambda: world.provider.adapter.ends)

    story(tmp_path, tell)


def test_where_a_provider_keeps_none_a_channel_ends_with_its_job(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with command(world, world.purse()) as market:
            await ran(world, market, 1)
            (held,) = market.payers.all
            assert held.facts.keep_ms == 0
            await until(lambda: held.end_sent and not world.provider.adapter.keeps)

    story(tmp_path, tell)


def test_a_job_is_over_before_its_channels_first_block_and_the_channel_is_known_as_open(
    tmp_path: Path,
) -> None:
    """Nobody follows that job any more when the block comes, and the channel is kept."""

    async def tell(world: World) -> None:
        adapter = world.provider.adapter
        adapter.offer = replace(adapter.offer, allowance=5 * ADA)
        async with command(world, world.purse()) as market:
            await world.provider.keeps(market)
            world.served.devnet.mint()
            world.served.devnet.set_lag(1)  # of blocks: the index does not show the open
            job = await market.run(spec(policy=LONG))
            lease = await world.provider.lease()
            await world.provider.start(lease)
            await adapter.finish(lease)
            await job.wait()
            (held,) = market.payers.all
            assert held.facts.state is ChannelStage.OPENING and held.book.capacity is None
            assert not held.end_sent
            world.served.devnet.set_lag(0)
            await until(lambda: held.facts.state is ChannelStage.OPEN)
            await until(lambda: held.book.capacity)  # each is written by itself

    story(tmp_path, tell)


JOB = """\
version: 1
name: said
image: "sha256:%s"
command: ["echo", "hello"]
resources: {cpu: 1, memory: 256MB}
price: {max_per_core_second: 50 lovelace, budget: 5 ADA}
policy: {max_duration: 1m}
""" % ("ab" * 32)


def test_a_command_that_says_nothing_keeps_for_ten_minutes_and_says_what_comes_home(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        purse = world.purse()
        shell, file = Shell(world), tmp_path / "said.yaml"
        file.write_text(JOB)
        async with command(world, purse) as market:
            await world.provider.keeps(market)

        async def provide() -> None:
            lease = await world.provider.lease()
            await world.provider.start(lease)
            await world.provider.ticks(lease, 3)
            await world.provider.adapter.finish(lease)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provide)
            done = await shell.tally("job", "run", str(file), "--yes")
            assert done.returncode == 0, done.stderr
            (channel,) = opened(purse)
            book = books.peek(purse.channels, channel)
            assert book.facts is not None and book.facts.keep_ms == 600_000 and not book.end_sent
            home = show_ada(book.facts.amount - book.book.signed)
            last = done.stdout.splitlines()[-1]
            assert last.endswith(f"; channel stays open for 10m, {home} come home then"), last

    story(tmp_path, tell)
