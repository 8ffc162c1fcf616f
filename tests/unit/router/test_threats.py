"""Rows of routing's table of threats that are the router's, by their names: who gains nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.domain.money.channel_refusals import ChannelUnfit
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Paying
from marketplace.domain.money.route.messages import HeadroomShort, LeaseUnknown
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of
from marketplace.router import claims, supply
from marketplace.router.desk import TooManyHops
from marketplace.router.limits import ADA
from marketplace.router.sights import Sight
from marketplace.router.state import Seen
from tests.fakes import seed
from tests.unit.support.router import (
    ACCOUNT,
    CONSUMER,
    HOP,
    OUT,
    TICK,
    Ends,
    Table,
    Trip,
    deep,
    opened_under,
    with_depth,
)


def story(
    tmp_path: Path, told: Callable[[Table], Awaitable[None]], table: Table | None = None
) -> None:
    async def main() -> None:
        place = table or Table(tmp_path)
        await place.hops()
        await told(place)
        place.stop()

    anyio.run(main)


async def begun(table: Table, name: str = "lease_1") -> tuple[Ends, Trip]:
    trip = await (await Trip(table, name).make()).admit()
    ends = Ends(table)
    ends.begin(trip)
    await ends.pay()
    await ends.carry()
    return ends, trip


def out_of(table: Table, trip: Trip) -> int:
    return table.desk.state.book.hops_out[OUT.verify_key].amount(trip.routed.hash)


def test_bounty_above_fee(tmp_path: Path) -> None:
    """Row 3. The eye says that what stands there is another channel: it is not written down."""

    async def told(table: Table) -> None:
        table.sight = Sight(Seen.UNFIT)
        with pytest.raises(ChannelUnfit):
            await table.announce(seed("other"))
        assert seed("other").verify_key not in table.desk.state.hops_in
        assert opened_under(table.limits).verify().consts(b"", b"").fee_bps == 0

    story(tmp_path, told)


def test_young_cash_out(tmp_path: Path) -> None:
    """Row 4. Nothing rests on a hop that no block has, and 3 ADA on what one transaction put into
    young ones, however many hops it made."""

    async def told(table: Table) -> None:
        await table.look_in(Sight(Seen.AWAITED))
        with pytest.raises(HeadroomShort):
            await Trip(table, "none").make()
        young = with_depth(deep(90 * ADA), 1)
        await table.look_out(1000 * ADA)
        await table.look_in(young)
        table.sight = young
        others = [seed(f"hop {n}") for n in range(4)]
        for hop in others:
            await table.announce(hop, "ab" * 32)
        made = 0
        for n, hop in enumerate([HOP, *others]):
            try:
                await Trip(table, f"lease {n}", hop=hop, reserve=2 * ADA).make()
                made += 1
            except HeadroomShort:
                pass
        assert made == 1

    story(tmp_path, told)


def test_sybil_unpaid(tmp_path: Path) -> None:
    """Row 5. Each account is new and has a transaction of its own: what rests on young blocks is
    held to the router's caps, and what rests on final ones to what the hops hold, however many
    accounts ask.
    """

    async def told(table: Table) -> None:
        await table.look_out(1000 * ADA)
        young = with_depth(deep(90 * ADA), 1)
        accounts = [seed(f"sybil {n}") for n in range(40)]
        kept = 0
        for n, consumer in enumerate(accounts):
            hop, name = seed(f"hop of {n}"), consumer.key_hash.hex()
            funds = tuple(replace(one, tx=bytes([n]) * 32) for one in young.funds)
            table.sight = replace(young, funds=funds)
            await table.desk.announce(name, hop.verify_key, consumer.key_hash, f"{n:064x}", 0)
            for lease in range(3):
                try:
                    await Trip(table, f"{n} {lease}", hop, 2 * ADA, account=name).make()
                    kept += with_fee(2 * ADA, table.limits.route_bps)
                except HeadroomShort:
                    pass
        assert table.limits.young - 4 * ADA < kept <= table.limits.young
        state = table.desk.state
        held = state.held(table.clock.now_ms())
        rests = (
            sum(held.spoken_for(key) for key in state.hops_in)
            - len(state.hops_in) * table.limits.hop_fee
        )
        assert rests == kept

    story(tmp_path, told)


def test_pay_twice(tmp_path: Path) -> None:
    """Row 7. A lease is paid over its own hop: a leaf of it on another one is refused."""

    async def told(table: Table) -> None:
        _, trip = await begun(table)
        other = seed("second hop")
        await table.announce(other, "cc" * 32)
        first = table.desk.state.book.begins(other.verify_key)
        bent = Paying(other.verify_key).pay(
            {first.terms: first.amount, trip.routed.hash: 5000}, other
        )
        assert bent.last is not None
        assert await table.desk.hop_paid(frame_of(bent.last, None)) == []
        told_ = table.to_payer[-1]
        assert isinstance(told_, wire.HopRefused) and told_.code == "STATEMENT_REFUSED"
        assert table.desk.state.book.hops_in[other.verify_key].last is None

    story(tmp_path, told)


def test_close_in(tmp_path: Path) -> None:
    """Row 8. From the block on nothing more is passed on, and what is due is claimed at once."""

    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        await ends.tick(trip)
        await ends.pay()
        await ends.carry()
        before = out_of(table, trip)
        assert before == TICK
        assert not claims.wanted(table.desk.state, table.limits, table.clock.now_ms())
        await table.look_in(Sight(Seen.CLOSING, 10 * ADA))
        await ends.tick(trip)
        await ends.pay()
        await ends.carry()
        assert out_of(table, trip) == before
        with pytest.raises((LeaseUnknown, HeadroomShort)):
            await Trip(table, "lease_2").make()
        (want,) = claims.wanted(table.desk.state, table.limits, table.clock.now_ms())
        assert want.drain and not want.end
        assert want.owed == with_fee(2 * TICK, table.limits.route_bps) + table.limits.hop_fee
        assert want.voucher is not None and want.voucher.cumulative == want.owed

    story(tmp_path, told, Table(tmp_path))


def test_starve_in(tmp_path: Path) -> None:
    """Row 9. Claims that never land: what is passed on ends with the cap; it goes on with them."""

    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        for _ in range(6):
            await table.look_in(table.sight)
            await ends.tick(trip)
            await ends.pay()
            await ends.carry()
        due = table.desk.state.book.due(HOP.verify_key)
        rests = table.limits.hop_fee + with_fee(out_of(table, trip), table.limits.route_bps)
        assert rests <= table.limits.hop_cap + with_fee(TICK, table.limits.route_bps)
        assert out_of(table, trip) < 5 * TICK
        await table.look_in(replace(table.sight, claimed=due))
        await ends.carry()
        await ends.tick(trip)
        for _ in range(2):  # the consumer signs a tick beyond what it hears was paid
            await ends.pay()
            await ends.carry()
        owed = ends.provider.leases[trip.routed.hash].owed
        assert out_of(table, trip) == owed > 4 * TICK

    limits = replace(Table(tmp_path / "x").limits, hop_cap=25_000 + 3 * TICK)
    story(tmp_path, told, Table(tmp_path / "y", limits))


@pytest.mark.parametrize(
    ("limit", "late"), [("claim_hop", 0), ("claim_all", 0), ("claim_age_ms", 1000)]
)
def test_key_end(tmp_path: Path, limit: str, late: int) -> None:
    """Row 11. A stolen end key costs what is unclaimed: claimed by amount, by sum and by age."""

    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        await ends.tick(trip)
        await ends.pay()
        await ends.carry()
        await table.look_in(table.sight)
        assert not claims.wanted(table.desk.state, Table.limits, table.clock.now_ms())
        low = replace(Table.limits, **{limit: late or TICK})
        table.clock.ms += late
        (want,) = claims.wanted(table.desk.state, low, table.clock.now_ms())
        assert not want.end and want.owed == table.desk.state.book.due(HOP.verify_key)

    story(tmp_path, told)


def test_key_out(tmp_path: Path) -> None:
    """Row 12. A stolen key of a hop out costs what is in it: topped up to the set sum, no more."""

    async def told(table: Table) -> None:
        hop = table.desk.state.hops_out[OUT.verify_key]
        for room in (0, ADA, 24 * ADA, 25 * ADA, 40 * ADA, 50 * ADA, 90 * ADA):
            await table.look_out(room)
            more = supply.short(table.desk.state, hop, table.limits)
            assert more == (table.limits.hop_out - room if room < 25 * ADA else 0)
        ended = supply.ended(table.desk.state, hop, 1).hops_out[OUT.verify_key]
        await table.look_out(0)
        assert supply.short(table.desk.state, ended, table.limits) == 0

    story(tmp_path, told)


def test_rollback_in(tmp_path: Path) -> None:
    """Row 24. The hop is in no block any more: its vouchers are kept, nothing rests on them; once a
    block has it again, what came in meanwhile is passed on."""

    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        await table.look_in(Sight(Seen.AWAITED))
        await ends.tick(trip)
        await ends.pay()
        await ends.carry()
        assert out_of(table, trip) == 0
        assert table.desk.state.book.hops_in[HOP.verify_key].amount(trip.routed.hash) > 0
        await table.look_in(deep(depth=1))
        await ends.carry()
        assert out_of(table, trip) == TICK

    story(tmp_path, told)


def test_dust(tmp_path: Path) -> None:
    """Row 30. Hops that cannot pay a lease carry none; hops that never come are counted."""

    async def told(table: Table) -> None:
        await table.look_in(deep(25_000))
        with pytest.raises(HeadroomShort):
            await Trip(table, reserve=1).make()
        table.sight = Sight(Seen.AWAITED)
        for n in range(table.limits.hops_in_new):
            await table.announce(seed(f"dust {n}"), f"{n:064x}")
        with pytest.raises(TooManyHops):
            await table.announce(seed("one more"), "ee" * 32)

    story(tmp_path, told)


def test_a_hop_is_its_consumers(tmp_path: Path) -> None:
    """Who announces another's channel, or uses another's hop, gets nothing."""

    async def told(table: Table) -> None:
        other = seed("mallory").key_hash
        with pytest.raises(LeaseUnknown):
            await table.desk.announce(
                other.hex(), seed("x").verify_key, CONSUMER.key_hash, "aa" * 32, 0
            )
        with pytest.raises(LeaseUnknown):
            table.desk.hop(other.hex(), HOP.verify_key)
        with pytest.raises(LeaseUnknown):
            await Trip(table, account=other.hex()).make()
        with pytest.raises(LeaseUnknown):
            await table.desk.announce(ACCOUNT, OUT.verify_key, CONSUMER.key_hash, "aa" * 32, 0)

    story(tmp_path, told)


def test_a_fork_stops_the_hop_and_is_kept(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        await ends.tick(trip)
        honest = ends.consumer.paying
        await ends.pay()
        before = table.desk.state.book.hops_in[HOP.verify_key]
        assert honest.last is not None and before.last is not None
        known = ends.consumer.paying.last
        assert known is not None
        forked = Paying(HOP.verify_key, None, known.signed.statement.n - 1).pay(
            {leaf.terms: leaf.amount + 7 for leaf in known.leaves}, HOP
        )
        assert forked.last is not None
        assert forked.last.signed.statement.n == known.signed.statement.n
        assert await table.desk.hop_paid(frame_of(forked.last, None)) == []
        assert HOP.verify_key in table.desk.state.book.forked
        assert table.desk.state.book.hops_in[HOP.verify_key] == before
        hop = table.desk.state.hops_in[HOP.verify_key]
        assert hop.fork.startswith(forked.last.signed.body.hex())
        table.restart()
        assert table.desk.state.hops_in[HOP.verify_key].fork == hop.fork
        table.desk.sights[HOP.verify_key] = table.sight
        with pytest.raises(LeaseUnknown):
            await Trip(table, "lease_2").make()

    story(tmp_path, told)


def test_a_lost_frame_is_mended_once(tmp_path: Path) -> None:
    """A provider that did not get a payment refuses the next; it gets all leaves, once a number."""

    async def told(table: Table) -> None:
        ends, trip = await begun(table)
        await ends.tick(trip)
        await ends.pay()
        table.to_provider.clear()  # lost
        other = await (await Trip(table, "lease_2").make()).admit()
        assert other.name
        last = table.desk.state.book.hops_out[OUT.verify_key].last
        assert last is not None
        table.to_provider.clear()
        no = wire.HopRefused(OUT.verify_key, last.signed.statement.n, "STATEMENT_REFUSED", "?")
        for _ in range(3):
            await table.desk.hop_refused(table.supply.provider, no)
        assert table.to_provider == [frame_of(last, None)]
        with pytest.raises(LeaseUnknown):
            await table.desk.hop_refused("00" * 32, no)

    story(tmp_path, told)


def test_many_words_of_a_moment_are_one_statement(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        ends, first = await begun(table)
        trips = [first]
        for n in range(2, 6):
            trip = await (await Trip(table, f"lease_{n}").make()).admit()
            ends.begin(trip)
            trips.append(trip)
        await ends.pay()
        await ends.carry()
        for trip in trips:
            ends.owes(trip, TICK)
        await ends.pay()  # ahead of the receipts
        last = table.desk.state.book.hops_out[OUT.verify_key].last
        assert last is not None
        async with anyio.create_task_group() as group:
            for trip in trips:
                group.start_soon(table.desk.owes, trip.name, TICK, False)
        after = table.desk.state.book.hops_out[OUT.verify_key].last
        assert after is not None
        assert after.voucher.cumulative == 5 * TICK
        assert after.signed.statement.n <= last.signed.statement.n + 2

    story(tmp_path, told)


def test_whoever_asks_what_it_carries_learns_nothing_of_a_providers_trade(tmp_path: Path) -> None:
    """Row 29: what is free of a hop out is what its provider earns. Only a hop that there is, which
    the chain shows anybody, and the limits that the router's offer states change the answer.
    """

    async def told(table: Table) -> None:
        desk, most = table.desk, table.limits.lease_cap
        other = replace(table.supply, provider="77" * 32)

        def says(amount: int) -> tuple[bool, ...]:
            ways = ((table.supply, amount, TICK), (other, amount, TICK), (table.supply, amount, 9))
            return tuple(desk.carries(*way) for way in ways)

        empty = [says(amount) for amount in (1, most, most + 1)]
        assert empty == [(True, False, False), (True, False, False), (False, False, False)]
        await begun(table)
        await table.look_out(0)  # and all that was in it is taken
        with pytest.raises(HeadroomShort):
            await Trip(table, "lease_2").make()
        assert [says(amount) for amount in (1, most, most + 1)] == empty
        dearer = replace(table.supply, close_period_ms=table.supply.close_period_ms + 1)
        assert not desk.carries(dearer, 1, TICK), "the hop is no channel as its offer now asks"

    story(tmp_path, told)
