"""An adapter whose fee key cannot pay for a Finish takes no new lease, says so, and takes them
again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cbor2
import pytest

from adapter.core.events import Purse
from adapter.core.state import Channel, Rules
from adapter.journal.journal import Journal, StoredTx
from adapter.money.channel_agent import ChannelAgent
from adapter.money.fee_key import movable
from adapter.money.withdraw import ChannelsOpen, desk_of, withdraw
from marketplace.chain.actions.unsigned_tx import items_of
from marketplace.chain.build import plans
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import Assets, OutRef, Utxo
from marketplace.chain.errors import FundsShort
from marketplace.domain.money.channel_stage import ChannelStage
from tests.integration.adapter.test_treasury import Desk, signed
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run


def test_it_says_so_and_takes_it_back_once_it_is_funded(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        provider = Provider("poor")
        world.fund("consumer", 100 * ADA)
        world.devnet.mint()
        live = (await world.open("consumer", provider, [20 * ADA]))[0]
        world.devnet.mint()
        desk = Desk(world, live, provider, Journal(tmp_path / "journal.db"))
        fees = addresses.to_text(provider.fee_address)

        def said() -> list[bool]:
            return [bool(e.short) for e in desk.events if isinstance(e, Purse)]

        await desk.treasury.look()
        await desk.treasury.look()
        assert said() == [True] and set(desk.alarms) == {"FEES_SHORT"}
        assert fees in next(e.short for e in desk.events if isinstance(e, Purse))
        world.devnet.faucet(fees, 3 * ADA)
        world.devnet.mint()
        await desk.treasury.look()
        assert said()[-1]  # not enough for the collateral
        world.devnet.faucet(fees, 7 * ADA)
        await desk.treasury.look()
        assert said()[-1]  # in no block yet
        world.devnet.mint()
        await desk.treasury.look()
        assert not said()[-1]
        before = len(desk.alarms)
        await desk.treasury.look()
        assert len(desk.alarms) == before and not said()[-1]

    run(body, block_ms=BY_HAND)


@pytest.mark.prove
def test_what_the_rehearsal_finds_enough_pays_for_the_dearest_finish(tmp_path: Path) -> None:
    """The least money with which leases are taken, found by trying, finishes a channel of a
    lovelace.
    """

    async def body(world: World) -> None:
        provider = Provider("frugal")
        world.fund("consumer", 100 * ADA)
        world.devnet.mint()
        live = (await world.open("consumer", provider, [20 * ADA]))[0]
        world.devnet.mint()
        desk = Desk(world, live, provider, Journal(tmp_path / "journal.db"))
        fees = addresses.to_text(provider.fee_address)
        world.devnet.faucet(fees, 5 * ADA)
        for _ in range(30):
            await desk.treasury.look()
            if "FEES_SHORT" not in desk.alarms:
                break
            desk.alarms.clear()
            world.devnet.faucet(fees, ADA)
            world.devnet.mint()
        held = await world.balance(addresses.from_text(fees))
        print(f"leases are taken from {held / ADA} ADA on")
        assert held <= 10 * ADA
        desk.channel = signed(desk.channel, live.voucher(1))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.mint()
        assert (await world.ended(live)).claimed == 1

    run(body, block_ms=BY_HAND)


def _bare(provider: Provider) -> bytes:
    """Where money lay while one key ended channels and paid for it."""
    return addresses.key_address(provider.adapter.key_hash, None, False)


def _moves(journal: Journal) -> list[StoredTx]:
    return [row for row in journal.transactions() if row.purpose == "move"]


def test_money_of_before_moves_to_the_fee_key_by_one_transaction(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, _live, provider, journal = await _old(world, tmp_path)
        await desk.treasury.look()
        await desk.treasury.look()
        [moved] = _moves(journal)
        assert "FEES_SHORT" not in desk.alarms  # what is on its way counts
        world.devnet.mint()
        fee = 15 * ADA - await world.balance(provider.fee_address)
        assert await world.balance(_bare(provider)) == 0 and 150_000 < fee < 200_000
        again = Desk(world, _live, provider, journal).treasury  # the adapter starts anew
        await again.look()
        assert _moves(journal)[0].id == moved.id and len(_moves(journal)) == 1

    run(body, block_ms=BY_HAND)


def test_what_costs_more_to_move_than_it_is_stays_and_keeps_nothing_from_working(
    tmp_path: Path,
) -> None:
    """Anybody may send there: it costs the adapter nothing, and its fee key pays for none of it."""

    async def body(world: World) -> None:
        desk, live, provider, journal = await _old(world, tmp_path, lovelace=0)
        for _ in range(2):
            world.devnet.faucet(addresses.to_text(provider.fee_address), 10 * ADA)
        world.devnet.faucet(addresses.to_text(_bare(provider)), 1_000_000)
        world.devnet.mint()
        await desk.treasury.look()
        assert not _moves(journal) and not desk.alarms
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.mint()
        assert (await world.ended(live)).claimed == 5 * ADA
        assert await world.balance(_bare(provider)) == 1_000_000

    run(body, block_ms=BY_HAND)


def test_an_end_alone_is_paid_by_the_fee_key_and_signed_by_both(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        desk, live, provider, journal = await _old(world, tmp_path, lovelace=0)
        for _ in range(2):
            world.devnet.faucet(addresses.to_text(provider.fee_address), 10 * ADA)
        world.devnet.mint()
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        [sent] = [row for row in journal.transactions() if row.purpose == "finish"]
        signers = {bytes(row[0]) for row in items_of(cbor2.loads(sent.body)[1][0])}
        assert signers == {provider.adapter.verify_key, provider.fee.verify_key}
        world.devnet.mint()
        paid = 20 * ADA - await world.balance(provider.fee_address)
        assert 220_000 < paid < 230_000  # docs/costs.md: finish, one channel
        assert await world.balance(_bare(provider)) == 0

    run(body, block_ms=BY_HAND)


def test_a_channel_that_pays_the_key_of_before_still_ends_and_its_money_follows(
    tmp_path: Path,
) -> None:
    """On a devnet an adapter without a payout was paid at the key that ended channels."""

    class Before(Provider):
        @property
        def payout_address(self) -> bytes:
            return _bare(self)

    async def body(world: World) -> None:
        desk, live, provider, _ = await _old(world, tmp_path, provider=Before("devnet"))
        desk.treasury = ChannelAgent(
            world.chain, provider.adapter, provider.fee, addresses.to_text(provider.fee_address),
            Journal(tmp_path / "after.db"), desk.handle, lambda _vk: desk.channel,
            lambda code, _text: desk.alarms.append(code), rules=Rules(watch_s=1),
        )  # fmt: skip
        desk.treasury.watch(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.mint()
        desk.channel = signed(desk.channel, live.voucher(5 * ADA))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.mint()
        assert (await world.ended(live)).claimed == 5 * ADA
        assert await world.balance(_bare(provider)) == 5 * ADA
        await desk.treasury.look()  # its money was spent: it looks again at once
        world.devnet.mint()
        assert await world.balance(_bare(provider)) == 0

    run(body, block_ms=BY_HAND)


async def _old(
    world: World, folder: Path, lovelace: int = 15 * ADA, provider: Provider | None = None
) -> tuple[Desk, Live, Provider, Journal]:
    """An adapter whose money lies at the key that ends channels, and a channel to it."""
    whose = provider or Provider("old")
    world.fund("consumer", 100 * ADA)
    if lovelace:
        for part in (lovelace - 5 * ADA, 5 * ADA):  # as one key kept it: change and collateral
            world.devnet.faucet(addresses.to_text(_bare(whose)), part)
    world.devnet.mint()
    [live] = await world.open("consumer", whose, [20 * ADA])
    world.devnet.mint()
    journal = Journal(folder / "journal.db")
    return Desk(world, live, whose, journal), live, whose, journal


def test_an_owner_who_stops_takes_the_fees_home_but_not_from_under_open_channels(
    tmp_path: Path,
) -> None:
    async def body(world: World) -> None:
        provider, home = Provider("leaver"), world.wallet("home").address
        for _ in range(2):
            world.devnet.faucet(addresses.to_text(provider.fee_address), 5 * ADA)
        world.devnet.mint()
        desk = desk_of(world.chain, provider.fee, Journal(tmp_path / "journal.db"))
        standing = Channel(bytes(32), b"", "", stage=ChannelStage.OPEN)
        ended = replace(standing, stage=ChannelStage.ENDED)  # a rollback can undo it: pay it again
        for channel in (standing, ended):
            with pytest.raises(ChannelsOpen):
                await withdraw(desk, home, [channel])
        assert await world.balance(provider.fee_address) == 10 * ADA
        over = [replace(ended, final=True)]
        sent, arrives = await withdraw(desk, home, over)
        with pytest.raises(FundsShort):
            await withdraw(desk, home, over)  # all of it is on its way
        world.devnet.mint()
        assert await world.balance(provider.fee_address) == 0
        assert await world.balance(home) == arrives == 10 * ADA - sent.fee

    run(body, block_ms=BY_HAND)


def test_dust_and_foreign_tokens_keep_no_money_at_the_fee_key(tmp_path: Path) -> None:
    """Whoever sends an adapter's fee key many small outputs, or many tokens, locks nothing in."""

    async def body(world: World) -> None:
        provider = Provider("dusty")
        desk = desk_of(world.chain, provider.fee, Journal(tmp_path / "journal.db"))
        own = desk.wallet.address

        def at(n: int, lovelace: int, assets: Assets = ()) -> Utxo:
            return Utxo(OutRef(n.to_bytes(32, "big"), 0), own, lovelace, assets)

        tokens = tuple((bytes(28) + n.to_bytes(32, "big"), 1) for n in range(200))
        dust = [at(n, ADA) for n in range(10, 460)]
        funds = Funds.of(own, [at(1, 20 * ADA), at(2, 5 * ADA), at(3, 40 * ADA, tokens), *dust])
        goes = movable(funds, desk.unit)
        assert [u.ref.tx_id[-1] for u in goes][:2] == [1, 2]  # the collateral too
        assert not any(u.assets for u in goes)
        snapshot = await world.chain.snapshot(desk.scripts)
        made = plans.sweep(snapshot, goes, world.wallet("home").address).finish()
        assert made.fee < ADA

    run(body, block_ms=BY_HAND)
