"""The adapter's books against the ledger, to the lovelace: whatever settled its channels."""

from __future__ import annotations

from pathlib import Path

from adapter.journal.journal import Journal
from adapter.journal.payments import Payments
from adapter.money.accounts import OTHERS
from marketplace.chain.actions.session import claim, finish_channels
from marketplace.chain.encoding import address as addresses
from tests.integration.adapter.test_treasury import Desk, signed
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run

FUNDED = 20 * ADA
BPS = 33


async def _held(world: World, provider: Provider) -> int:
    """What the provider has more than it was given."""
    both = (provider.payout_address, provider.fee_address)
    return sum([await world.balance(at) for at in both]) - FUNDED


async def _opened(world: World, folder: Path, amount: int) -> tuple[Desk, Live, Provider, Journal]:
    provider = Provider("books")
    for name in ("consumer", "market"):
        world.fund(name, 200 * ADA)
    for _ in range(2):
        world.devnet.faucet(addresses.to_text(provider.fee_address), FUNDED // 2)
    world.devnet.mint()
    [live] = await world.open("consumer", provider, [amount], fee_bps=BPS)
    world.devnet.mint()
    journal = Journal(folder / "journal.db")
    return Desk(world, live, provider, journal, BPS), live, provider, journal


async def _looked(world: World, desk: Desk) -> None:
    await desk.treasury.look()
    world.devnet.mint()
    await desk.treasury.look()


def test_a_claim_of_anybodys_and_an_end_of_our_own_add_up(tmp_path: Path) -> None:
    """Two claims by the market between two looks, a bounty each, rounded each by itself."""

    async def body(world: World) -> None:
        desk, live, provider, journal = await _opened(world, tmp_path, 20 * ADA)
        await _looked(world, desk)
        for upto in (3_333_333, 7_777_777):
            view = await world.view(live)
            payouts = {provider.payout: provider.payout_address}
            await claim(world.desk("market"), [(view, live.voucher(upto))], payouts)
            world.devnet.mint()
        await _looked(world, desk)
        rows = Payments(journal).rows()
        assert [one.claimed for one in rows] == [3_333_333, 4_444_444]
        assert {one.purpose for one in rows} == {OTHERS} and not any(one.fee for one in rows)
        assert sum(one.net for one in rows) == await _held(world, provider)
        desk.channel = signed(desk.channel, live.voucher(9 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await _looked(world, desk)
        rows = Payments(journal).rows()
        assert [one.purpose for one in rows] == [OTHERS, OTHERS, "finish"] and rows[-1].fee
        total = Payments(journal).total
        assert total.claimed == 9 * ADA and total.net == await _held(world, provider)
        assert total.moved == 0

    run(body, block_ms=BY_HAND)


def test_an_end_that_costs_more_than_it_brings_is_shown_as_the_loss_that_it_is(
    tmp_path: Path,
) -> None:
    """A job of 0.006 ADA: earned is not gained, and what the fee key adds to the payout is ours."""

    async def body(world: World) -> None:
        desk, live, provider, journal = await _opened(world, tmp_path, 20 * ADA)
        desk.channel = signed(desk.channel, live.voucher(6_790))
        desk.treasury.settle(desk.channel.session_vk)
        await _looked(world, desk)
        total = Payments(journal).total
        assert total.claimed == 6_790 and total.net == await _held(world, provider) < 0
        assert total.net == 6_790 - total.fees
        payout = await world.balance(provider.payout_address)
        assert total.moved == payout - 6_790  # its bounty came home with the change

    run(body, block_ms=BY_HAND)


def test_an_end_that_takes_nothing_is_its_channels_cost(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider, journal = await _opened(world, tmp_path, 20 * ADA)
        desk.treasury.settle(desk.channel.session_vk)
        await _looked(world, desk)
        [row] = Payments(journal).rows()
        assert row.channels == {live.session.verify_key: 0}
        assert row.net == -row.fee == await _held(world, provider)

    run(body, block_ms=BY_HAND)


def test_what_was_sent_before_a_crash_is_booked_after_it_and_once(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider, journal = await _opened(world, tmp_path, 20 * ADA)
        await desk.treasury.look()
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()  # sent, and the adapter dies
        world.devnet.mint()
        for _ in range(2):
            desk.treasury = desk.make(world.chain)
            desk.treasury.watch(desk.channel.session_vk)
            await _looked(world, desk)
        total = Payments(journal).total
        assert (total.transactions, total.claimed) == (1, 5 * ADA)
        assert total.net == await _held(world, provider)

    run(body, block_ms=BY_HAND)


def test_an_end_that_a_rollback_gives_to_another_is_booked_as_that_ones(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider, journal = await _opened(world, tmp_path, 20 * ADA)
        await desk.treasury.look()
        view = await world.view(live)
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await _looked(world, desk)
        [mine] = Payments(journal).rows()
        world.devnet.rollback(1, drop=True)
        await finish_channels(
            world.desk("market"), [(view, live.voucher(5 * ADA))],
            {provider.payout: provider.payout_address}, provider.adapter,
        )  # fmt: skip
        world.devnet.mint()
        for _ in range(3):
            await _looked(world, desk)
        [other] = Payments(journal).rows()
        assert other.tx != mine.tx and other.purpose == OTHERS and not other.fee
        assert other.net == await _held(world, provider)

    run(body, block_ms=BY_HAND)
