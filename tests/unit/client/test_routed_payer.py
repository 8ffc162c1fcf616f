"""A consumer's payer over a router: what it signs, what lies on its disk before that, and what a router
that withholds, forges, repeats or forgets gets out of it. Names as in the design's table of threats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio

from marketplace.client.jobs.hops import Hops
from marketplace.client.payer.hop_payer import HopPayer
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.client.payer.routed_payer import RoutedPayer
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Earning
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.payer import Bought
from marketplace.domain.money.route.statement import StatementRefused
from marketplace.domain.money.route.terms import SignedRoutedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import payment_of
from tests.unit.support.payer import ADAPTER, CONSUMER, Paper
from tests.unit.support.routed import BPS, HOP_IN, LEASE_1, OFFER, ROUTER, Journey, journey

TICK = 2_001
CAPACITY = 50_000_000


@dataclass
class Line:
    """The payer's link, cut where nothing is to arrive: what it sent, as the router took it."""

    earning: Earning = field(default_factory=lambda: Earning(HOP_IN.verify_key, CAPACITY))
    sent: list[wire.Message] = field(default_factory=list)
    deaf: bool = False
    refused: int = 0

    async def send(self, message: wire.Message) -> None:
        self.sent.append(message)
        if isinstance(message, wire.HopPaid) and not self.deaf:
            try:
                self.earning = self.earning.take(payment_of(message, self.earning.last))
            except StatementRefused:
                self.refused += 1

    async def watch(self, _session: object) -> None: ...

    def unwatch(self, _session_vk: bytes) -> None: ...


class Silent:
    async def between(self, job: str, first: int, last: int) -> list[SignedReceipt]:
        return []


@dataclass
class World:
    """One hop, one routed lease, and the provider's receipts."""

    folder: Path
    line: Line = field(default_factory=Line)
    way: Journey = field(default_factory=lambda: journey("lease_1", LEASE_1))
    paper: Paper = field(default_factory=Paper)

    async def begin(self) -> World:
        """The hop is open, both signed the terms."""
        self.payers = self._payers()
        body = OFFER.encode()
        offer = (body.hex(), ROUTER.sign(body).hex(), CONSUMER.key_hash.hex())
        facts = ChannelFacts(
            HOP_IN.verify_key, "http://market", 42, OFFER.router_vk.hex(), "", CAPACITY,
            open_tx="aa" * 32, keep_ms=1, router=offer,
        )  # fmt: skip
        await self.payers.create(facts, HOP_IN)
        own = ChannelFacts(
            LEASE_1.verify_key, "http://market", 42, ADAPTER.verify_key.hex(), "", 0,
            hop=HOP_IN.verify_key.hex(), route_bps=BPS,
        )  # fmt: skip
        await self.payers.create(own, LEASE_1)
        terms = self.way.routed.encode()
        await self.lease.agree(SignedRoutedTerms(terms, ADAPTER.sign(terms)), 10_000_000)
        bought = Bought("lease_1", LEASE_1.verify_key, ADAPTER.verify_key, BPS, TICK, 10_000_000)
        await self.hop.expect(self.way.routed.hash, bought)
        await self.hop.begin(self.way.routed.hash)
        await self.payers.handle(wire.LeaseProgress("lease_1", "STARTED", 0, {}))
        return self

    def _payers(self) -> Payers:
        payers = Payers(self.folder, "http://market", 42, Silent())
        payers.link = self.line  # pyright: ignore[reportAttributeAccessIssue]
        return payers

    async def again(self) -> World:
        """The process died; another one takes both books up and the connection stands."""
        for held in self.payers.all:
            await held.let_go()
        self.payers = self._payers()
        await self.payers.take(HOP_IN.verify_key, HOP_IN)
        await self.payers.take(LEASE_1.verify_key, LEASE_1)
        await self.payers.opened()
        return self

    @property
    def hop(self) -> HopPayer:
        held = self.payers.held(HOP_IN.verify_key)
        assert isinstance(held, HopPayer)
        return held

    @property
    def lease(self) -> RoutedPayer:
        held = self.payers.held(LEASE_1.verify_key)
        assert isinstance(held, RoutedPayer)
        return held

    async def tick(self, ms: int = 1000, *, final: bool = False) -> int:
        """A receipt comes; what it says is owed. The own clock is far ahead of it."""
        held = self.lease.book.leases["lease_1"]
        if held.since_ms is not None:
            early = replace(held, since_ms=held.since_ms - 100_000)
            self.lease.book = self.lease.book.with_lease(early)
        signed = self.paper.tick(self.way.terms, ms, final=final)
        await self.payers.handle(wire.ReceiptSent("lease_1", signed))
        return signed.receipt.lease_owed

    async def paid(self, amount: int, key: Any = ADAPTER) -> None:
        """The provider's word comes."""
        said = Paid.sign(key, LEASE_1.verify_key, "lease_1", amount)
        await self.payers.handle(wire.PaidSent("lease_1", amount, said.signature))

    ended: bool = False

    @property
    def hops(self) -> Hops:
        """At a market that says of each lease whether it has ended, and a chain that is silent."""

        async def get(_path: str) -> dict[str, str]:
            return {"state": "ENDED" if self.ended else "ACTIVE", "reason": ""}

        async def confirm(_held: object) -> bool:
            return False

        keys = {one.verify_key: one for one in (HOP_IN, LEASE_1)}
        given: Any = (
            SimpleNamespace(get=get), SimpleNamespace(session=keys.__getitem__), None, self.payers,
            SimpleNamespace(confirm=confirm),
        )  # fmt: skip
        return Hops(*given)

    @property
    def signed(self) -> int:
        """For the lease, as the router has it."""
        return self.line.earning.amount(self.way.routed.hash)


def story(test: Callable[[World], Awaitable[None]]) -> Callable[[Path], None]:
    """Runs *test* in a world that has begun."""

    def run(tmp_path: Path) -> None:
        async def told() -> None:
            world = await World(tmp_path).begin()
            try:
                await test(world)
            finally:
                for held in world.payers.all:
                    await held.let_go()

        anyio.run(told)

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@story
async def test_a_first_payment_holds_the_routers_fee_for_the_hop_and_nothing_for_the_lease(
    world: World,
) -> None:
    assert world.line.earning.total == OFFER.hop_fee
    assert world.line.earning.last is not None
    assert [leaf.amount for leaf in world.line.earning.last.leaves] == [OFFER.hop_fee, 0]


@story
async def test_withhold_no_more_than_a_tick_is_signed_beyond_the_providers_word(
    world: World,
) -> None:
    """Threat 1 and 16: the router passes nothing on, or nothing back."""
    owed = [await world.tick() for _ in range(5)]
    assert world.signed == with_fee(TICK, BPS) and owed[-1] > 4 * (TICK - 1)
    await world.paid(owed[0])
    assert world.signed == with_fee(owed[0] + TICK, BPS)
    await world.paid(owed[-1])
    assert world.signed == with_fee(owed[-1], BPS), "all that is owed, and no more"


@story
async def test_a_paid_that_another_signed_or_beyond_what_is_owed_moves_nothing(
    world: World,
) -> None:
    """Threat 1: the router forges the provider's word."""
    owed = await world.tick()
    await world.tick()
    before = world.signed
    await world.paid(owed, ROUTER)
    await world.paid(10**9)
    assert world.signed == before


@story
async def test_a_receipt_that_comes_twice_is_signed_once(world: World) -> None:
    """Threat 2: the router shows a receipt again."""
    owed = await world.tick()
    total = world.line.earning.total
    await world.payers.handle(wire.ReceiptSent("lease_1", world.paper.sent[-1]))
    assert (world.line.earning.total, world.signed) == (total, with_fee(owed, BPS))


@story
async def test_what_a_dead_process_signed_is_said_again_and_never_otherwise(world: World) -> None:
    """Threat 15 and 24, the consumer's: its book is read again, the same bytes go out, and it goes on."""
    owed = await world.tick()
    last = world.line.earning.last
    await world.again()
    assert world.line.earning.last == last
    await world.paid(owed)
    await world.tick()
    assert world.signed > with_fee(owed, BPS)


@story
async def test_a_payment_that_was_journalled_and_never_left_leaves_with_the_next_process(
    world: World,
) -> None:
    world.line.deaf = True
    owed = await world.tick()
    world.line.deaf = False
    assert world.signed == 0
    await world.again()
    assert world.signed == with_fee(owed, BPS)


@story
async def test_a_router_that_forgot_gets_all_leaves_once(world: World) -> None:
    """Threat 15, the router's: it says that it lacks something, and is not answered for ever."""
    world.line.earning = Earning(HOP_IN.verify_key, CAPACITY)
    owed = await world.tick()
    assert (world.line.refused, world.signed) == (1, 0)
    last = world.hop.hop.paying.last
    assert last is not None
    refused = wire.HopRefused(HOP_IN.verify_key, last.signed.statement.n, "STATEMENT_REFUSED", "")
    await world.payers.handle(refused)
    assert world.signed == with_fee(owed, BPS)
    count = len(world.line.sent)
    for _ in range(3):
        await world.payers.handle(refused)
    assert len(world.line.sent) == count


@story
async def test_at_its_end_a_lease_frees_what_it_did_not_use(world: World) -> None:
    assert world.hop.busy
    owed = await world.tick()
    await world.paid(owed)
    last = await world.tick(300, final=True)
    await world.paid(last)
    assert world.signed == with_fee(last, BPS) and not world.hop.busy
    assert world.hop.free(CAPACITY) == CAPACITY - world.line.earning.total
    assert not [one for one in world.line.sent if isinstance(one, wire.VoucherSent | wire.EndSent)]


@story
async def test_leases_that_a_dead_process_left_free_what_they_kept(world: World) -> None:
    """Whoever takes the hop up finds them; the market says that they have ended."""
    await world.tick()
    for held in world.payers.all:
        await held.let_go()
    world.payers = world._payers()
    keys = {one.verify_key: one for one in (HOP_IN, LEASE_1)}
    (hop,) = await world.payers.take_kept(keys.__getitem__)
    assert isinstance(hop, HopPayer) and hop.busy
    world.ended = False
    await world.hops.take_up(hop)
    assert hop.busy and world.lease.terms, "one that runs is paid for by this process"
    await world.payers.release(LEASE_1.verify_key)
    world.ended = True
    await world.hops.take_up(hop)
    assert not hop.busy and world.payers.held(LEASE_1.verify_key) is None
    assert await world.payers.take_routed(hop, keys.__getitem__) == []


@story
async def test_stopped_a_provider_that_breaks_the_rules_is_paid_nothing_more(world: World) -> None:
    owed = await world.tick()
    await world.paid(owed)
    lie = world.paper.tick(world.way.terms, 1000, unit_ms_total=10**9)
    await world.payers.handle(wire.ReceiptSent("lease_1", lie))
    assert world.signed == with_fee(owed, BPS) and world.lease.book.stopped == "RECEIPT_WRONG"
