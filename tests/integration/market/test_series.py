"""Series that are kept: what was in use, who was there, and what is shown of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.domain import canonical
from marketplace.domain.supply.offer import OfferState
from marketplace.market.base.ports import Change
from marketplace.market.base.records import InUseHour, Lock, OfferRecord, PresenceDay
from marketplace.market.context import MATCHER, Market
from marketplace.market.upkeep import series
from marketplace.store.database import Database
from marketplace.store.migrate import migrate
from tests.fakes import FakeAdapter, FakeClock, FakeIds, gpu, offer, seed, until, working
from tests.integration.support.market import market, sign_in

HOUR, DAY = series.HOUR_MS, 24 * series.HOUR_MS


def _on_market(tmp_path: Path, body: Callable[[Market, FakeClock], Awaitable[None]]) -> None:
    """*body* with a market that matches, over a real store, at midnight."""
    url = f"sqlite:///{tmp_path}/s.db"
    migrate(url)

    async def main() -> None:
        clock = FakeClock(20_000 * DAY)
        database = Database(url, "p1", clock, FakeIds())
        try:
            await database.apply(Change(puts=[Lock(MATCHER, "p1", 1, 0)]))
            at = Market(database, clock, FakeIds(), "p1", epoch=1)
            await body(at, clock)
        finally:
            database.close()

    anyio.run(main)


def _listed(name: str, state: OfferState = OfferState.LISTED, away_ms: int = 0) -> OfferRecord:
    one = offer(seed(name), (gpu(0),), labels={"name": name})
    process = "" if away_ms else "p1"
    body = canonical.encode(one.to_wire())
    return OfferRecord(one.id, one.provider, state, body, 1, 1, process, away_ms)


def test_looks_are_summed_by_hour_and_shown_as_means(tmp_path: Path) -> None:
    async def body(at: Market, clock: FakeClock) -> None:
        record = _listed("lab")
        at.directory.set_offer(record)
        await at.store.apply(Change(puts=[record]))
        for _ in range(3):
            await series.look(at)
            clock.ms += 60_000
        clock.ms += HOUR
        at.directory.set_offer(replace(record, state=OfferState.WITHDRAWN))
        await series.look(at)
        hours = await series.utilisation(at, 1, HOUR)
        assert [(h["looks"], h["offers_milli"], h["gpu_milli"]) for h in hours] == [
            (3, 1000, 1000), (1, 0, 0),
        ]  # fmt: skip
        (day,) = await series.utilisation(at, 1, DAY)
        cores = record.offer.host.cpu.milli
        assert (day["looks"], day["offers_milli"], day["gpu_milli"]) == (4, 750, 750)
        assert (day["core_milli"], day["core_milli_held"]) == (cores * 3 // 4, 0)

    _on_market(tmp_path, body)


def test_who_withdrew_or_is_long_gone_is_not_missed(tmp_path: Path) -> None:
    async def body(at: Market, clock: FakeClock) -> None:
        names = ("there", "away", "withdrawn", "gone")
        gone = clock.ms - series.GONE_MS - 1
        records = [
            _listed("there"), _listed("away", OfferState.AWAY, clock.ms),
            _listed("withdrawn", OfferState.WITHDRAWN, clock.ms), _listed("gone",
            OfferState.AWAY, gone),
        ]  # fmt: skip
        await at.store.apply(Change(puts=[*records]))
        for _ in range(4):
            await series.look(at)
            clock.ms += 60_000
        ups = {n: await at.reputes.of(r.provider, clock.ms)
               for n, r in zip(names, records, strict=True)}  # fmt: skip
        assert {n: up.uptime_milli for n, up in ups.items()} == {
            "there": 1000, "away": 0, "withdrawn": None, "gone": None,
        }  # fmt: skip
        back = await at.store.find(OfferRecord, id=records[1].id)
        await at.store.apply(
            Change(sets=[replace(back[0], state=OfferState.LISTED, process="p1", away_ms=0)])
        )
        clock.ms += DAY
        await series.look(at)
        days = await series.presence(at, records[1].provider)
        assert [(d["looks"], d["uptime_milli"]) for d in days] == [(4, 0), (1, 1000)]
        assert (await at.reputes.of(records[1].provider, clock.ms)).uptime_milli == 200

    _on_market(tmp_path, body)


def test_only_the_matcher_looks_and_a_lost_lock_writes_nothing(tmp_path: Path) -> None:
    async def body(at: Market, clock: FakeClock) -> None:
        at.epoch = 0
        await series.look(at)
        assert not await at.store.count(InUseHour)
        at.epoch = 7  # it held the lock once, and does not know yet that it lost it
        await series.look(at)
        assert not await at.store.count(InUseHour)
        at.epoch = 1
        await series.look(at)
        assert await at.store.count(InUseHour) == 1

    _on_market(tmp_path, body)


def test_what_is_old_is_dropped(tmp_path: Path) -> None:
    async def body(at: Market, clock: FakeClock) -> None:
        record = _listed("lab")
        await at.store.apply(Change(puts=[record]))
        await series.look(at)
        clock.ms += (series.KEPT_DAYS + 1) * DAY
        await series.look(at)
        assert await at.store.count(InUseHour) == await at.store.count(PresenceDay) == 1
        assert len(await series.utilisation(at, series.KEPT_DAYS, DAY)) == 1

    _on_market(tmp_path, body)


def test_the_api_shows_name_uptime_and_use(tmp_path: Path) -> None:
    async def run() -> None:
        provider = seed("provider")
        labels = {"name": "Lab Berlin", "rack": "b"}
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, inside):
            adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),), labels=labels))
            async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
                await sign_in(client, seed("consumer"))

                async def listed() -> object:
                    return (await client.get("/v1/offers")).json()["items"]

                await until(listed)
                await until(lambda: inside.market.epoch)
                inside.market.reputes = type(inside.market.reputes)(inside.market.store)
                await series.look(inside.market)
                (shown,) = (await client.get("/v1/offers")).json()["items"]
                (row,) = (await client.get("/v1/providers")).json()["items"]
                one = (await client.get(f"/v1/providers/{row['id']}")).json()
                for view in (shown, row, one):
                    assert (view["name"], view["lost"]) == ("Lab Berlin", 0)
                    assert view["uptime_milli"] == 1000
                assert one["uptime"][-1]["uptime_milli"] == 1000
                use = (await client.get("/v1/utilisation", params={"by": "hour"})).json()["items"]
                assert 0 < use[-1]["gpu_milli"] <= 1000 and not use[-1]["gpu_milli_held"]
                assert (await client.get("/v1/utilisation?days=91")).status_code == 422
                assert (await client.get("/v1/stats")).json()["core_milli"] > 0

    anyio.run(run)


@pytest.mark.parametrize("labels", [{}, {"name": "x" * 200}])
def test_a_name_is_a_label(labels: dict[str, str]) -> None:
    assert offer(seed("p"), (gpu(0),), labels=labels).name == labels.get("name", "")
