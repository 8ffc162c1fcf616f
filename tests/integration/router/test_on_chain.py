"""A router on a devnet, with real transactions: it opens a hop out, a consumer's hop in is looked at
and carries a lease, both are ended, and what the router keeps is its fee, to the lovelace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from marketplace.chain.actions.session import close_channel, finish_channels, open_channels
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.node.answers import Moves
from marketplace.client.wallet.purse import stake_hash
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.route.fee import fee
from marketplace.domain.money.route.hop import Earning
from marketplace.domain.money.route.messages import HeadroomShort, LeaseUnknown
from marketplace.domain.money.route.payee import PayeeBook
from marketplace.domain.money.transaction import FINAL_DEPTH
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Offer
from marketplace.router.desk import RouterDesk
from marketplace.router.eye import Eye
from marketplace.router.limits import Limits
from marketplace.router.running import Place, RouterRun, assemble
from marketplace.router.state import HopIn, Seen
from marketplace.router.supply import KEPT, Candidate
from marketplace.system import SystemClock
from tests.fakes import FakeIds
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, key, run
from tests.unit.support.adapter import offer
from tests.unit.support.router import HOP, RESERVE, TICK, Ends, Trip

pytestmark = pytest.mark.timeout(600)
CONSUMER = "consumer"
TICKS = 5


@dataclass
class Road:
    """A router that runs on a devnet; what it says to others lies in lists."""

    world: World
    running: RouterRun
    provider: Provider
    to_provider: list[wire.Message] = field(default_factory=list[wire.Message])
    to_payer: list[wire.Message] = field(default_factory=list[wire.Message])

    def __post_init__(self) -> None:
        self.desk.heard_by(
            lambda _p, message: not self.to_provider.append(message),
            lambda _h, message: not self.to_payer.append(message),
        )

    @property
    def desk(self) -> RouterDesk:
        return self.running.desk

    @property
    def limits(self) -> Limits:
        return self.desk.limits

    @property
    def supply(self) -> Offer:
        address = addresses.to_text(self.provider.payout_address)
        return offer(
            adapter_vkh=self.provider.adapter.key_hash, payout=self.provider.payout,
            payout_address=address, fee_bps=0, close_period_ms=600_000,
        )  # fmt: skip

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def trip(self, lease: str, reserve: int = RESERVE) -> Trip:
        account = key(CONSUMER).key_hash.hex()
        return Trip(self, lease, reserve=reserve, account=account)

    def mint(self, blocks: int) -> None:
        for _ in range(blocks):
            self.world.devnet.mint()

    async def out(self) -> bytes:
        """A hop out that a block holds; its key."""
        await self.running.outgoing.turn([Candidate(self.supply, 0)])
        self.mint(1)
        await self.running.outgoing.turn([Candidate(self.supply, 0)])
        (hop,) = self.desk.state.hops_out.values()
        assert hop.seen is Seen.OPEN
        return hop.session_vk

    async def opened(self, lovelace: int, bounty: int = 0) -> OutRef:
        """The consumer opens a channel to the router; no block has it yet."""
        wallet = self.world.wallet(CONSUMER)
        asked = self.desk.terms.consts(HOP.verify_key, wallet.signer.key_hash)
        consts = replace(asked, fee_bps=bounty)
        assert wallet.stake is not None
        opening = Opening(lovelace, lambda _f, _i: consts, Credential(wallet.stake))
        (ref,) = (await open_channels(self.world.desk(CONSUMER), [opening])).refs
        return ref

    async def hop_in(self, lovelace: int, blocks: int = FINAL_DEPTH, bounty: int = 0) -> OutRef:
        """A hop of the consumer's to the router; announced, and so deep."""
        ref = await self.opened(lovelace, bounty)
        self.mint(blocks)
        who = key(CONSUMER).key_hash
        await self.desk.announce(who.hex(), HOP.verify_key, who, ref.tx_id.hex(), ref.index)
        await self.running.incoming.turn()
        return ref


def on_the_road(
    folder: Path,
    story: Callable[[Road], Awaitable[None]],
    limits: str = "",
    cold: bool = False,
    block_ms: int = 0,
) -> None:
    folder.mkdir(exist_ok=True)
    if limits:
        (folder / "limits.toml").write_text(limits)

    async def main(world: World) -> None:
        payout = addresses.to_text(world.wallet("cold").address) if cold else ""
        place = Place.of(folder, payout=payout)
        made = await assemble(place, world.chain, SystemClock(), FakeIds(), "a passphrase")
        world.devnet.faucet(made.till.address, 500 * ADA)
        world.fund(CONSUMER, 200 * ADA)
        provider = Provider("p")
        world.devnet.faucet(addresses.to_text(provider.fee_address), 50 * ADA)
        world.devnet.mint()
        try:
            await story(Road(world, made, provider))
        finally:
            made.close()

    run(main, block_ms=block_ms)


async def carried(road: Road, out: bytes, tick: int = TICK) -> tuple[Ends, Trip]:
    """A lease of some ticks, each *tick* lovelace, to its final receipt."""
    trip = road.trip("lease_1", 20 * tick)
    await trip.make()
    await trip.admit()
    room = road.desk.state.book.room[out]
    ends = Ends(road, provider=PayeeBook(Earning(out, room)), tick_lovelace=tick)
    ends.begin(trip)
    await ends.pay()
    await ends.carry()
    for _ in range(TICKS):
        assert await ends.tick(trip)
        await ends.pay()
        await ends.carry()
    await road.desk.owes(trip.name, ends.provider.leases[trip.routed.hash].owed, True)
    return ends, trip


async def money_of_the_end_key(road: Road) -> list[Utxo]:
    """Row 11: what a thief of the key that ends hops in would find, at any address of it."""
    end = road.desk.terms.adapter_vkh
    stakes = (None, stake_hash(road.running.till.purse.signer))
    at = [addresses.key_address(end, stake, False) for stake in stakes]
    return [one for address in at for one in await road.world.chain.utxos(address)]


def test_what_the_router_keeps_is_its_fee(tmp_path: Path) -> None:
    async def story(road: Road) -> None:
        out = await road.out()
        opened = [m for m in road.to_provider if isinstance(m, wire.HopOpened)]
        assert [one.session_vk for one in opened] == [out]
        await road.hop_in(30 * ADA)
        ends, trip = await carried(road, out)
        owed = ends.provider.leases[trip.routed.hash].owed

        last = ends.consumer.paying.last
        assert last is not None
        await road.desk.end(End.sign(HOP, last.voucher.cumulative))
        await road.running.incoming.turn()
        road.mint(1)
        await road.running.incoming.turn()
        hop = road.desk.state.hops_in[HOP.verify_key]
        assert hop.seen is Seen.ENDED

        view = await Eye(road.world.chain).find(road.desk.state.hops_out[out])
        assert isinstance(view, ChannelView)
        paid = ends.provider.earning.last
        assert paid is not None
        desk = road.world.desk("provider")
        wallet = road.world.fund("provider", 50 * ADA)
        assert wallet
        road.mint(1)
        await finish_channels(
            desk, [(view, paid.voucher)], {road.provider.payout: road.provider.payout_address},
            road.provider.adapter,
        )  # fmt: skip
        road.mint(1)
        await road.running.outgoing.turn([])
        gone = road.desk.state.hops_out[out]
        assert gone.seen is Seen.ENDED
        assert gone.claimed == owed
        fees = fee(owed, road.limits.route_bps) + road.limits.hop_fee
        assert hop.claimed - gone.claimed == fees
        assert not await money_of_the_end_key(road)

    on_the_road(tmp_path / "route", story)


class BlockBetween:
    """A chain that gets a block once it was asked for a transaction."""

    def __init__(self, road: Road) -> None:
        self._road = road

    def __getattr__(self, name: str) -> Any:
        return getattr(self._road.world.chain, name)

    async def moves(self, tx_id: bytes) -> Moves | None:
        answer = await self._road.world.chain.moves(tx_id)
        self._road.mint(1)
        return answer


def test_a_block_that_comes_while_a_hop_is_looked_at_makes_it_no_unfit_one(tmp_path: Path) -> None:
    async def story(road: Road) -> None:
        ref = await road.opened(20 * ADA)
        who = key(CONSUMER).key_hash
        hop = HopIn(
            HOP.verify_key, who.hex(), who, ref.tx_id.hex(), ref.index, road.desk.offer, ""
        )  # fmt: skip
        chain: Any = BlockBetween(road)
        assert await road.world.chain.moves(ref.tx_id) is None
        assert [(await Eye(chain).look(hop)).seen for _ in range(2)] == [Seen.AWAITED, Seen.OPEN]
        other = replace(hop, index=ref.index + 1)  # its change
        assert (await Eye(road.world.chain).look(other)).seen is Seen.UNFIT

    on_the_road(tmp_path, story, block_ms=BY_HAND)


def test_bounty_above_fee(tmp_path: Path) -> None:
    """Row 3: a hop in with a bounty would pay its consumer's friends; it is refused when it is
    announced, and nothing is known of it.
    """

    async def story(road: Road) -> None:
        with pytest.raises(ChannelUnfit):
            await road.hop_in(20 * ADA, bounty=100)
        assert HOP.verify_key not in road.desk.state.hops_in

    on_the_road(tmp_path / "route", story)


def test_young_money_is_relied_on_up_to_the_caps(tmp_path: Path) -> None:
    async def story(road: Road) -> None:
        await road.out()
        await road.hop_in(30 * ADA, blocks=1)
        await road.trip("lease_1", 2 * ADA).make()
        with pytest.raises(HeadroomShort):
            await road.trip("lease_2", 2 * ADA).make()
        road.mint(FINAL_DEPTH)
        await road.running.incoming.turn()
        await road.trip("lease_2", 2 * ADA).make()

    on_the_road(tmp_path / "route", story)


def test_a_hop_in_is_claimed_by_amount_and_goes_on(tmp_path: Path) -> None:
    async def story(road: Road) -> None:
        out = await road.out()
        await road.hop_in(30 * ADA)
        await carried(road, out, ADA // 2)
        due, owed = road.desk.state.book.due(HOP.verify_key), TICKS * ADA // 2
        assert due == road.limits.hop_fee + owed + fee(owed, road.limits.route_bps)
        await road.running.incoming.turn()
        road.mint(1)
        await road.running.incoming.turn()
        hop = road.desk.state.hops_in[HOP.verify_key]
        assert (hop.seen, hop.claimed) == (Seen.OPEN, due)
        again = await Eye(road.world.chain).find(hop)
        assert not isinstance(again, ChannelEnded)

    on_the_road(tmp_path / "route", story, limits='claim_hop = "2 ADA"')


def test_an_idle_hop_out_is_ended_and_its_rest_comes_home(tmp_path: Path) -> None:
    """Its provider is asked; one that is silent is closed, after its close period."""

    async def story(road: Road) -> None:
        out = await road.out()
        await road.running.outgoing.turn([])
        asked = [m for m in road.to_provider if isinstance(m, wire.EndSent)]
        assert [one.end.session_vk for one in asked] == [out]
        asked[0].end.verify()
        for _ in range(4):
            await road.running.outgoing.turn([])
            road.mint(1)
        assert road.desk.state.hops_out[out].seen is Seen.CLOSING
        road.world.devnet.advance(1_000_000)
        for _ in range(4):
            road.mint(1)
            await road.running.outgoing.turn([])
        assert road.desk.state.hops_out[out].seen is Seen.ENDED
        held = await road.running.till.balance()
        assert held > 498 * ADA  # all but the network's fees

    on_the_road(tmp_path / "route", story, limits="idle_ms = 1\nclose_after_ms = 0")


def test_close_in(tmp_path: Path) -> None:
    """Row 8: a consumer who closes in mid-lease pays what is due: the claim lands within the close
    period, and nothing more is passed on from the block on.
    """

    async def story(road: Road) -> None:
        out = await road.out()
        await road.hop_in(30 * ADA)
        ends, trip = await carried(road, out, ADA // 10)
        due, passed = road.desk.state.book.due(HOP.verify_key), ends.provider.earning.total
        view = await Eye(road.world.chain).find(road.desk.state.hops_in[HOP.verify_key])
        assert isinstance(view, ChannelView)
        await close_channel(road.world.desk(CONSUMER), view)
        road.mint(1)
        await road.running.incoming.turn()  # sees it, and claims
        road.mint(1)
        await road.running.incoming.turn()
        hop = road.desk.state.hops_in[HOP.verify_key]
        assert (hop.seen, hop.claimed) == (Seen.CLOSING, due)
        assert due == passed + fee(passed, road.limits.route_bps) + road.limits.hop_fee
        with pytest.raises((HeadroomShort, LeaseUnknown)):
            await road.trip("lease_2").make()
        assert trip.name in road.desk.state.routes

    on_the_road(tmp_path / "route", story)


def test_key_cold(tmp_path: Path) -> None:
    """Row 13: what comes back from a hop out goes on to the cold address once its end is deep, once:
    a stolen purse finds what was put in for fees.
    """

    async def story(road: Road) -> None:
        out, turn = await road.out(), road.running.outgoing.turn
        cold = road.world.wallet("cold").address
        view = await Eye(road.world.chain).find(road.desk.state.hops_out[out])
        assert isinstance(view, ChannelView)
        road.world.fund("provider", 50 * ADA)
        road.mint(1)
        await finish_channels(
            road.world.desk("provider"), [(view, None)],
            {road.provider.payout: road.provider.payout_address}, road.provider.adapter,
        )  # fmt: skip
        road.mint(2)
        await turn([])
        assert road.desk.state.hops_out[out].seen is Seen.ENDED
        assert await road.world.balance(cold) == 0  # a rollback may still take it back
        road.mint(FINAL_DEPTH)
        held = await road.running.till.balance()
        for _ in range(4):
            await turn([])
            road.mint(FINAL_DEPTH)
        home = await road.world.balance(cold)
        assert home == view.utxo.lovelace - KEPT
        assert held - home - ADA < await road.running.till.balance() < held - home
        road.running.outgoing._settled.clear()  # pyright: ignore[reportPrivateUsage] (as after a restart)
        await turn([])
        road.mint(1)
        assert await road.world.balance(cold) == home

    on_the_road(tmp_path / "route", story, cold=True)
