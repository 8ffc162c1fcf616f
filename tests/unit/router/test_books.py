"""A lease over the router: what is written down before anything leaves, whatever breaks when."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from marketplace.disk import DiskFault
from marketplace.domain.money.route.fee import with_fee
from marketplace.router.journal import BooksForked, Journal, RouterHeld, peek
from marketplace.router.state import SKIPPED
from tests.unit.support.disk import KINDS, BadDisk
from tests.unit.support.router import HOP, OUT, TICK, Ends, PowerCut, Table, Trip

TICKS = 4


async def ride(table: Table, ends: Ends, trip: Trip, ticks: int = TICKS) -> None:
    """Some ticks of a lease, each paid before the next."""
    for _ in range(ticks):
        await ends.tick(trip)
        await ends.pay()
        await ends.carry()


async def begun(table: Table, name: str = "lease_1", ends: Ends | None = None) -> tuple[Ends, Trip]:
    await table.hops()
    trip = await (await Trip(table, name).make()).admit()
    ends = ends or Ends(table)
    ends.begin(trip)
    await ends.pay()
    await ends.carry()
    return ends, trip


def square(table: Table, ends: Ends, trip: Trip, ticks: int) -> None:
    """The provider has what it served, the consumer signed that and the fee, to the lovelace."""
    terms = trip.routed.hash
    owed = ends.provider.leases[terms].owed
    assert owed == ticks * TICK
    assert ends.provider.earning.amount(terms) == owed
    assert ends.consumer.paying.amount(terms) == with_fee(owed, table.limits.route_bps)
    book = table.desk.state.book
    into, out = book.hops_in[HOP.verify_key], book.hops_out[OUT.verify_key]
    fees = with_fee(owed, table.limits.route_bps) - owed + table.limits.hop_fee
    assert into.total - out.total == fees


def test_a_lease_is_carried_and_a_restart_knows_all_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        await ride(table, ends, trip)
        square(table, ends, trip, TICKS)
        before = table.desk.state
        table.restart()
        assert not table.opened.restored
        assert table.desk.state == before
        assert table.books[0].read_bytes() == table.books[1].read_bytes()
        await ends.reconnect()
        await ends.carry()
        await ride(table, ends, trip)
        square(table, ends, trip, 2 * TICKS)

    anyio.run(story)


def test_two_processes_never_write_one_book(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with pytest.raises(RouterHeld):
        Table(tmp_path)
    table.stop()
    Table(tmp_path).stop()


async def _whole(table: Table, ends: list[Ends], trips: list[Trip]) -> None:
    """A whole lease up to its final receipt, remembering its parties for what comes after a cut."""
    await table.hops()
    trip = Trip(table)
    await trip.make()
    trips.append(trip)
    await trip.admit()
    mine = Ends(table)
    ends.append(mine)
    mine.begin(trip)
    await mine.pay()
    await mine.carry()
    await ride(table, mine, trip)
    await table.desk.owes(trip.name, TICKS * TICK, True)


async def _after(table: Table, ends: list[Ends], trips: list[Trip]) -> None:
    """The machine is on again: whatever was done is known, and the lease goes to its end."""
    table.files = BadDisk()
    table.cut = -1
    table.to_provider.clear()
    table.to_payer.clear()
    table.restart()
    await table.hops()
    if not trips:
        return
    trip = trips[0]
    if trip.name not in table.desk.carried():
        if not ends:  # nobody has signed: the market asks for another
            trip = await Trip(table, "lease_2").make()
    if not ends:
        await trip.admit()
        ends.append(Ends(table))
        ends[0].begin(trip)
    mine = ends[0]
    await mine.reconnect()
    await mine.carry()
    served = mine.provider.leases[trip.routed.hash].owed // TICK
    await ride(table, mine, trip, TICKS - served)
    await mine.pay()
    await mine.carry()
    square(table, mine, trip, TICKS)


def _cut(tmp_path: Path, cut: Callable[[Table], None]) -> bool:
    """Whether the cut came before the end; the lease ended square in any case."""
    ends: list[Ends] = []
    trips: list[Trip] = []
    table = Table(tmp_path)
    cut(table)

    async def story() -> bool:
        try:
            await _whole(table, ends, trips)
            came = False
        except (PowerCut, DiskFault):
            came = True
        await _after(table, ends, trips)
        return came

    try:
        return anyio.run(story)
    finally:
        table.stop()
        shutil.rmtree(tmp_path)


def test_the_power_goes_between_any_two_effects(tmp_path: Path) -> None:
    def after(frames: int) -> Callable[[Table], None]:
        return lambda table: setattr(table, "cut", frames)

    cuts = 0
    while _cut(tmp_path / str(cuts), after(cuts)):
        cuts += 1
    assert cuts > 2 * TICKS  # a payment and a Paid for each tick at least


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_disk_fails_at_any_call(tmp_path: Path, kind: str, step: int) -> None:
    def broken(at: int) -> Callable[[Table], None]:
        def cut(table: Table) -> None:
            table.stop()
            table.files = BadDisk(at, kind)
            table.start()

        return cut

    calls = 5  # those before are the opening's, and refuse the start
    while _cut(tmp_path / str(calls), broken(calls)):
        calls += step
    assert calls > 40  # two places, a write and a sync each, for every row


# --- an old backup (row 15) ------------------------------------------------------------------------


def test_old_backup(tmp_path: Path) -> None:
    """What the second place knows is taken from there; nothing is signed before the provider has
    spoken, and then no number of before is used again.
    """

    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        await ride(table, ends, trip)
        old = table.books[0].read_bytes()
        await ride(table, ends, trip)
        greatest = table.desk.state.book.hops_out[OUT.verify_key].last
        assert greatest is not None
        table.stop()
        table.books[0].write_bytes(old)
        table.start()
        assert table.opened.restored
        assert table.desk.state.book.hops_out[OUT.verify_key].last == greatest
        await table.hops()
        await ends.tick(trip)
        await ends.pay(everything=True)  # paid for, and not passed on yet
        assert not table.to_provider
        table.to_provider += table.desk.welcome(table.supply.provider)
        await ends.carry()  # the same bytes as before; the provider has them
        assert table.desk.state.hops_out[OUT.verify_key].unsure
        await ends.reconnect()  # and says so
        await ends.carry()
        assert not table.desk.state.hops_out[OUT.verify_key].unsure
        await ride(table, ends, trip, 2)
        square(table, ends, trip, 2 * TICKS + 3)
        last = table.desk.state.book.hops_out[OUT.verify_key].last
        assert last is not None
        n = greatest.signed.statement.n
        assert last.signed.statement.n > n + SKIPPED
        assert not [one for one in ends.signed if n < one <= n + SKIPPED]

    anyio.run(story)


def test_a_crash_while_it_recovers_forgets_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        old = table.books[0].read_bytes()
        await ride(table, ends, trip)
        table.stop()
        table.books[0].write_bytes(old)
        table.start()
        table.restart()
        assert not table.opened.restored  # both places say by now that it was
        assert table.desk.state.hops_out[OUT.verify_key].unsure
        assert table.desk.state.book.hops_out[OUT.verify_key].skip == SKIPPED

    anyio.run(story)


def test_a_lost_second_place_is_made_anew(tmp_path: Path) -> None:
    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        await ride(table, ends, trip)
        table.stop()
        table.books[1].unlink()
        table.start()
        assert not table.opened.restored
        assert table.books[0].read_bytes() == table.books[1].read_bytes()
        await ends.reconnect()
        await ride(table, ends, trip)
        square(table, ends, trip, 2 * TICKS)

    anyio.run(story)


def test_two_copies_that_went_on_apart_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        apart = table.books[1].read_bytes()
        await ride(table, ends, trip, 1)
        one = table.books[0].read_bytes()
        table.stop()
        for book in table.books:
            book.write_bytes(apart)
        table.start()
        table.clock.ms += 5_000
        await table.desk.over(trip.name)
        table.stop()
        table.books[0].write_bytes(one)
        with pytest.raises(BooksForked):
            table.start()

    anyio.run(story)


# --- made short ------------------------------------------------------------------------------------


def _shorten(table: Table) -> None:
    """The next start finds them too long."""
    table.stop()
    Journal.hold(*table.books, compact_bytes=0)[0].close()
    table.start()


def test_short_books_say_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        table = Table(tmp_path)
        ends, trip = await begun(table)
        await ride(table, ends, trip)
        before, long = table.desk.state, table.books[0].read_bytes()
        _shorten(table)
        assert table.desk.state == before
        assert len(table.books[0].read_bytes()) < len(long)
        table.stop()
        table.books[1].write_bytes(long)  # the crash came between the two
        table.start()
        assert not table.opened.restored and table.desk.state == before
        table.stop()
        table.books[0].write_bytes(long)
        table.books[1].write_bytes(long)
        table.start()
        await ends.reconnect()
        await ride(table, ends, trip)
        square(table, ends, trip, 2 * TICKS)
        table.stop()
        assert peek(table.books[0]) == table.desk.state

    anyio.run(story)
