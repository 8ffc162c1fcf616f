"""Row 26: whoever has the router open hops out again and again, a provider that ends them or a
consumer for whom they go idle, costs it one open a day at most, and earns each of them anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.domain.money.route.messages import Outcome
from marketplace.router import supply
from marketplace.router.limits import ADA, DAY_MS, Limits
from marketplace.router.making import HopRests
from marketplace.router.sights import Sight, sighted_out
from marketplace.router.state import Seen
from marketplace.router.supply import Candidate
from tests.fakes import seed
from tests.unit.support.router import LIMITS, OUT, PURSE, Table, Trip

HOUR_MS = 3_600_000


class Greedy:
    """A provider at a table that ends each hop as soon as it has it; it *had* so much of leases at
    this market, and takes *take* of each hop.
    """

    def __init__(self, table: Table, had: int = 10 * ADA, take: int = 0) -> None:
        self.table, self.had, self.take = table, had, take
        self.opens: list[int] = []

    @property
    def wanted(self) -> list[Candidate]:
        asked = [Candidate(self.table.supply, self.had)]
        now = self.table.clock.now_ms()
        return supply.to_open(self.table.desk.state, asked, self.table.limits, now)

    async def hour(self) -> None:
        """What a router does in an hour in which this one is connected; it finishes at once."""
        now = self.table.clock.now_ms()
        for one in self.wanted:
            self.opens.append(now)
            session = seed(f"churned {len(self.opens)}").verify_key
            hop = supply.new_hop(one, session, PURSE.key_hash, 42, now)
            await self.table.desk.writer.change(
                lambda s, h=hop, c=one.claims: Outcome(supply.planned(s, h, c))
            )
            for seen in (Seen.OPEN, Seen.ENDED):
                sight = Sight(seen, self.take, self.take)
                await self.table.desk.writer.change(
                    lambda s, v=session, g=sight: Outcome(sighted_out(s, v, g, now))
                )
        self.table.clock.ms += HOUR_MS


def story(
    told: Callable[[Table], Awaitable[None]], tmp_path: Path, limits: Limits = LIMITS
) -> None:
    async def main() -> None:
        table = Table(tmp_path, limits)
        await told(table)
        table.stop()

    anyio.run(main)


def test_churn_an_open_is_earned_anew(tmp_path: Path) -> None:
    """It never gets a second one for the claims that paid for the first; each 10 ADA more is one."""

    async def told(table: Table) -> None:
        provider = Greedy(table)
        for _ in range(24 * 5):
            await provider.hour()
        assert len(provider.opens) == 1
        provider.had += 10 * ADA - 1
        await provider.hour()
        assert len(provider.opens) == 1
        provider.had += 1
        for _ in range(24 * 3):
            await provider.hour()
        assert len(provider.opens) == 2

    story(told, tmp_path)


def test_churn_an_open_a_day_whatever_it_earns(tmp_path: Path) -> None:
    """Rich or not, over a restart or not: a day lies between an end and the next open."""

    async def told(table: Table) -> None:
        provider = Greedy(table)
        for hour in range(24 * 5):
            provider.had += 100 * ADA
            await provider.hour()
            if hour % 7 == 3:
                table.restart()
        assert len(provider.opens) == 5
        gaps = [b - a for a, b in zip(provider.opens, provider.opens[1:], strict=False)]
        assert min(gaps) >= DAY_MS

    story(told, tmp_path)


def test_what_came_over_the_hop_itself_earns_the_next(tmp_path: Path) -> None:
    """A provider that serves over the router alone has what it claimed of the hop to show."""

    async def told(table: Table) -> None:
        provider = Greedy(table, take=10 * ADA)
        for _ in range(24 * 3):
            await provider.hour()
        assert len(provider.opens) == 3

    story(told, tmp_path)


def test_churn_a_new_name_earns_as_the_first_did(tmp_path: Path) -> None:
    """A key is free, claims at this market are not: a name without them gets no hop, however many
    hops another name of the same owner wore out.
    """

    async def told(table: Table) -> None:
        provider = Greedy(table)
        await provider.hour()
        now = table.clock.now_ms()
        names = [
            Candidate(
                replace(table.supply, provider=seed(f"name {n}").verify_key.hex()), 10 * ADA - 1
            )
            for n in range(50)
        ]
        assert supply.to_open(table.desk.state, names, table.limits, now) == []

    story(told, tmp_path)


def test_churn_a_hop_that_is_to_end_is_waited_for(tmp_path: Path) -> None:
    """The router asked for the end of an idle hop: while that stands no second one is opened, and
    after it the same rules hold.
    """

    async def told(table: Table) -> None:
        await table.hops()
        provider = Greedy(table, had=1000 * ADA)
        out = table.desk.state.hops_out[OUT.verify_key]
        now = table.clock.now_ms()
        await table.desk.writer.change(lambda s: Outcome(supply.ended(s, out, now)))
        assert provider.wanted == []
        gone = Sight(Seen.ENDED)
        await table.desk.writer.change(
            lambda s: Outcome(sighted_out(s, OUT.verify_key, gone, table.clock.now_ms()))
        )
        assert provider.wanted == []
        table.clock.ms += table.limits.reopen_ms
        assert [one.claims for one in provider.wanted] == [1000 * ADA]

    story(told, tmp_path)


def test_a_rollback_of_an_end_is_no_second_one(tmp_path: Path) -> None:
    async def told(table: Table) -> None:
        await table.hops()
        provider = Greedy(table, had=1000 * ADA)
        for seen in (Seen.ENDED, Seen.OPEN, Seen.ENDED):
            sight = Sight(seen, 5 * ADA, 5 * ADA)
            await table.desk.writer.change(
                lambda s, g=sight: Outcome(sighted_out(s, OUT.verify_key, g, table.clock.now_ms()))
            )
            assert provider.wanted == []
            table.clock.ms += HOUR_MS
        rest = table.desk.state.rests[table.supply.provider]
        assert (rest.over, rest.ended_ms) == (5 * ADA, table.clock.now_ms() - HOUR_MS)

    story(told, tmp_path)


def test_who_asks_for_a_route_there_is_told_why(tmp_path: Path) -> None:
    """A stable code, so that the market quotes a direct channel and can say so."""

    async def told(table: Table) -> None:
        await table.hops()
        await table.desk.writer.change(
            lambda s: Outcome(
                sighted_out(s, OUT.verify_key, Sight(Seen.ENDED), table.clock.now_ms())
            )
        )
        with pytest.raises(HopRests) as told_:
            await Trip(table).make()
        assert told_.value.code == "ROUTER_HOP_RESTS"
        assert told_.value.fields["until_ms"] == table.clock.now_ms() + table.limits.reopen_ms
        assert not table.desk.state.routes

    story(told, tmp_path)
