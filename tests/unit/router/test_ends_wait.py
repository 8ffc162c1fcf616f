"""Ends of hops in wait for others, so that none costs the router more than it brings; a consumer's
money comes home in a stated time whoever else comes, and nobody can make another's end wait longer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio

from marketplace.chain.settlement.next_step import LOSS_WAITS
from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import End
from marketplace.router import claims
from marketplace.router.limits import ADA
from marketplace.router.sights import Sight
from marketplace.router.state import Seen
from tests.fakes import seed
from tests.unit.router.test_threats import begun
from tests.unit.support.router import HOP, LIMITS, TICK, Table, deep

ALONE = 225_000
MINUTE_MS = 60_000


def story(tmp_path: Path, told: Callable[[Table], Awaitable[None]]) -> None:
    async def main() -> None:
        table = Table(tmp_path, replace(LIMITS, end_together=5))
        await table.hops()
        await told(table)
        table.stop()

    anyio.run(main)


def ends(table: Table) -> set[bytes]:
    now = table.clock.now_ms()
    found = claims.wanted(table.desk.state, table.limits, now, ALONE)
    return {one.session_vk for one in found if one.end}


async def ask(table: Table, hop: Signer = HOP) -> None:
    await table.desk.end(End.sign(hop, 0))


def test_an_end_that_brings_little_waits_three_times_as_long(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        await ask(table)
        for _ in range(15 * LOSS_WAITS):
            assert ends(table) == set()
            table.clock.ms += MINUTE_MS
        assert ends(table) == {HOP.verify_key}

    story(tmp_path, told)


def test_one_that_brings_more_than_it_costs_waits_a_quarter_of_an_hour(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        trips, trip = await begun(table)
        trips.tick_lovelace = TICK
        for _ in range(3):
            await trips.tick(trip)
            await trips.pay()
            await trips.carry()
        await table.desk.owes(trip.name, 3 * TICK, True)
        due = table.desk.state.book.due(HOP.verify_key)
        await ask(table)
        table.clock.ms += 15 * MINUTE_MS
        now = table.clock.now_ms()
        assert not claims.wanted(table.desk.state, table.limits, now, due)
        (one,) = claims.wanted(table.desk.state, table.limits, now, due - 1)
        assert one.end and one.owed == due

    story(tmp_path, told)


def test_whoever_asks_again_waits_no_longer_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        await ask(table)
        for minute in range(45):
            table.clock.ms += MINUTE_MS
            await ask(table)
            if minute % 20 == 7:
                table.restart()
        assert ends(table) == {HOP.verify_key}

    story(tmp_path, told)


def test_enough_of_them_go_at_once_and_the_late_one_takes_all_along(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        others = [seed(f"hop {n}") for n in range(4)]
        for number, hop in enumerate(others):
            await table.announce(hop, f"{number:064x}")
        await ask(table)
        for hop in others[:3]:
            table.clock.ms += MINUTE_MS
            await ask(table, hop)
            assert ends(table) == set()
        before = table.clock.ms
        await ask(table, others[3])
        assert len(ends(table)) == table.limits.end_together == 5
        late = replace(table.limits, end_together=6)
        assert not claims.wanted(table.desk.state, late, before, ALONE)
        first = table.desk.state.hops_in[HOP.verify_key].ending_ms
        found = claims.wanted(table.desk.state, late, first + 45 * MINUTE_MS, ALONE)
        assert len(found) == 5 and all(one.end for one in found)

    story(tmp_path, told)


def test_a_claim_that_goes_anyway_takes_them_along(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        trips, trip = await begun(table)
        await trips.tick(trip)
        await trips.pay()
        await trips.carry()
        other = seed("other")
        await table.announce(other, "cc" * 32)
        await ask(table, other)
        assert ends(table) == set()
        await table.look_in(Sight(Seen.CLOSING, 10 * ADA))
        found = claims.wanted(table.desk.state, table.limits, table.clock.now_ms(), ALONE)
        assert {one.session_vk: one.end for one in found} == {
            HOP.verify_key: False, other.verify_key: True,
        }  # fmt: skip

    story(tmp_path, told)


def test_a_hop_with_a_living_lease_is_no_company(tmp_path: Path) -> None:
    """A consumer who asks for the end of hops on which leases live brings nobody's end forward, and
    holds up nobody's."""

    async def told(table: Table) -> None:
        await begun(table)
        await ask(table)
        other = seed("other")
        await table.announce(other, "cc" * 32)
        await ask(table, other)
        tight = replace(table.limits, end_together=2)
        assert not claims.wanted(table.desk.state, tight, table.clock.now_ms(), ALONE)
        table.clock.ms += 45 * MINUTE_MS
        assert ends(table) == {other.verify_key}
        await table.look_in(deep())

    story(tmp_path, told)
