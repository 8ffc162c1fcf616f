"""What an account spent, in three ways that agree; and keys that spend so much a month."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import Gang, Price
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import MonthSpent, TooLarge
from marketplace.market.base.months import month_of, next_month_ms
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ApiKey, Job, Lease, ReceiptRecord
from marketplace.market.context import Market
from marketplace.market.money import spend
from marketplace.market.money.spend import DAY_MS
from marketplace.store.database import Database
from marketplace.store.migrate import migrate
from tests.fakes import FakeClock, FakeIds, seed, spec
from tests.integration.market.test_access import FAR, open_market
from tests.integration.market.test_spine import body, quoted
from tests.unit.support.golden import filled
from tests.unit.support.pinned import GIVEN

TODAY = 20_000
NOON = TODAY * DAY_MS + DAY_MS // 2


def _on_market(tmp_path: Path, run: Callable[[Market], Awaitable[None]]) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    migrate(url)

    async def main() -> None:
        clock = FakeClock(NOON)
        database = Database(url, "p1", clock, FakeIds())
        try:
            await run(Market(database, clock, FakeIds(), "p1"))
        finally:
            database.close()

    anyio.run(main)


def _job(name: str, key: str = "") -> Job:
    job = filled(Job, {**GIVEN, "id": name})
    return job.but(account="me", name=f"name of {name}", api_key=key, state=JobState.ENDED)


def _lease(name: str, job: str, begun: int, over: int, owed: int) -> Lease:
    """From day *begun* to day *over*, at noon; 0: it runs."""
    at, end = begun * DAY_MS + DAY_MS // 2, over * DAY_MS + DAY_MS // 2 if over else 0
    return filled(Lease, {**GIVEN, "id": name}).but(
        job=job, account="me", state=LeaseState.ENDED if over else LeaseState.ACTIVE,
        created_ms=at, started_ms=at, finished_ms=end, ended_ms=end, owed=owed if over else 0,
        session_vk=name.encode().ljust(32),
    )  # fmt: skip


def _receipt(lease: Lease, tick: int, at_ms: int, owed: int) -> ReceiptRecord:
    return filled(ReceiptRecord, GIVEN).but(
        session_vk=lease.session_vk, seq=tick, lease=lease.id, tick=tick, at_ms=at_ms,
        lease_owed=owed,
    )  # fmt: skip


def test_days_jobs_and_keys_add_up_to_the_same(tmp_path: Path) -> None:
    async def run(market: Market) -> None:
        key = filled(ApiKey, {**GIVEN, "id": "k"}).but(account="me", name="ci")
        short = _lease("l1", "j1", TODAY - 3, TODAY - 3, 70)
        # Over three nights, a receipt an hour, 10 lovelace each; it still runs.
        long = _lease("l2", "j2", TODAY - 3, 0, 0)
        hourly = [
            _receipt(long, n + 1, long.started_ms + n * 3_600_000, (n + 1) * 10) for n in range(72)
        ]
        foreign = _lease("l3", "j3", TODAY - 1, TODAY - 1, 999).but(account="other")
        jobs = [_job("j1"), _job("j2", "k"), _job("j3").but(account="other")]
        await market.store.apply(Change(puts=[key, *jobs, short, long, foreign, *hourly]))

        async def rows(by: str, first: int = TODAY - 9) -> list[tuple[str, int]]:
            found = await spend.rows(market, "me", by, first, TODAY)
            return [(row["name"] or str(row["from_ms"] // DAY_MS), row["owed"]) for row in found]

        assert await rows("day") == [
            (str(TODAY), 120), (str(TODAY - 1), 240), (str(TODAY - 2), 240), (str(TODAY - 3), 190),
        ]  # fmt: skip
        assert await rows("job") == [("name of j2", 720), ("name of j1", 70)]
        assert await rows("key") == [("signed in", 70), ("ci", 720)]
        # A window counts what fell due in it alone.
        assert await rows("day", TODAY - 1) == [(str(TODAY), 120), (str(TODAY - 1), 240)]
        assert await rows("key", TODAY - 1) == [("ci", 360)]

    _on_market(tmp_path, run)


def test_too_many_leases_are_refused_and_not_cut(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(spend, "MOST_LEASES", 2)

    async def run(market: Market) -> None:
        some = [_lease(f"l{n}", "j1", TODAY, TODAY, 1) for n in range(3)]
        await market.store.apply(Change(puts=[_job("j1"), *some]))
        with pytest.raises(TooLarge):
            await spend.rows(market, "me", "day", TODAY, TODAY)

    _on_market(tmp_path, run)


def test_months_are_the_calendars() -> None:
    last = 1_796_083_199_999  # 30 November 2026, 23:59:59.999 UTC
    assert (month_of(last), month_of(last + 1), next_month_ms(last)) == (202611, 202612, last + 1)
    december = last + 31 * DAY_MS
    assert (month_of(december), month_of(next_month_ms(december))) == (202612, 202701)


def test_a_new_month_begins_at_nothing() -> None:
    last = 1_796_083_199_999
    key = filled(ApiKey, {**GIVEN, "id": "k"}).but(budget=100, committed=0, month_cap=10)
    key = key.but(month=month_of(last), month_committed=8)
    who = Caller("me", frozenset({"jobs"}), key)
    with pytest.raises(MonthSpent) as refused:
        who.commit(3, last)
    assert refused.value.fields == {"left": 2, "resets_at_ms": last + 1}
    assert who.commit(2, last).month_committed == 10
    assert who.commit(10, last + 1).month_committed == 10


def test_a_months_cap_holds_against_two_posts_at_once_and_keys_of_the_key(tmp_path: Path) -> None:
    async def run() -> None:
        # No proposal lapses on a slow machine: what it frees would be counted here.
        async with open_market(tmp_path, propose_ttl_ms=120_000) as (client, inside, _):
            asked = {"name": "ci", "verbs": ["read", "jobs", "keys"], "expires_at_ms": FAR}
            made = await client.post(
                "/v1/keys", json={**asked, "budget": 10**9, "month_cap": 12_000_000}
            )
            assert (made.status_code, made.json()["month_cap"]) == (201, 12_000_000)
            bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
            async with httpx.AsyncClient(base_url=client.base_url, headers=bearer) as worker:

                async def post(into: list[httpx.Response], **more: object) -> None:
                    job = spec(price=Price(budget=5_000_000), **more)
                    sent = body(job, Signer(os.urandom(32)), seed("consumer"))
                    into.append(await worker.post("/v1/jobs", json=sent, timeout=30))

                answers: list[httpx.Response] = []
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):  # each sees a cap that only two of them fit into
                        tasks.start_soon(post, answers)
                good = [one.json() for one in answers if one.status_code == 201]
                bad = [one.json() for one in answers if one.status_code == 422]
                assert len(good) == 2 and {one["code"] for one in bad} == {"MONTH_SPENT"}
                assert len(bad) == 2
                assert bad[0]["fields"] == {
                    "left": 2_000_000, "resets_at_ms": next_month_ms(inside.market.now),
                }  # fmt: skip
                assert "next month" in bad[0]["remedy"]
                # A gang is as dear as its members together, and no other key widens the cap.
                many = spec(gang=Gang(2, spread=False), price=Price(budget=3_000_000))
                keys = [Signer(os.urandom(32)).verify_key.hex() for _ in range(2)]
                refused = await worker.post(
                    "/v1/gangs",
                    json={"spec": many.to_wire(), "session_vks": keys,
                          "consumer_vkh": seed("consumer").key_hash.hex()},
                )  # fmt: skip
                assert refused.json()["code"] == "MONTH_SPENT", refused.text
                child = await worker.post("/v1/keys", json={**asked, "budget": 1})
                assert child.status_code == 403 and "monthly cap" in child.json()["detail"]
                # What a job did not spend is free again, in the month that it was posted in.
                await quoted(client, good[0]["id"])
                await worker.post(f"/v1/jobs/{good[0]['id']}/stop")
                (shown,) = (await client.get("/v1/keys")).json()["items"]
                assert shown["month_committed"] == shown["committed"] == 5_000_000
                later = await inside.market.store.get(ApiKey, shown["id"])
                assert later is not None
                other = later.but(month=202001, month_committed=5_000_000)
                await inside.market.store.apply(Change(sets=[other]))
                await worker.post(f"/v1/jobs/{good[1]['id']}/stop")
                now = await inside.market.store.get(ApiKey, shown["id"])
                assert now is not None
                assert (now.committed, now.month_committed) == (0, 5_000_000)

    anyio.run(run)


def test_pages_and_the_spreadsheet_hold_every_row_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            me, now = seed("consumer").key_hash.hex(), inside.market.now
            day = now // DAY_MS
            jobs = [_job(f"j{n}").but(account=me, name=f"=cmd|{n}") for n in range(5)]
            leases = [
                _lease(f"l{n}", f"j{n}", day - n - 1, day - n - 1, 10 + n).but(account=me)
                for n in range(5)
            ]
            await inside.market.store.apply(Change(puts=[*jobs, *leases]))
            for by in ("day", "job", "key"):
                found: list[dict[str, object]] = []
                cursor = ""
                while True:
                    query = {"by": by, "limit": 2, "cursor": cursor}
                    page = (await client.get("/v1/spend", params=query)).json()
                    found += page["items"]
                    assert page["owed"] == 60
                    cursor = page["next"]
                    if not cursor:
                        break
                assert sum(int(str(row["owed"])) for row in found) == 60
                sheet = await client.get("/v1/spend.csv", params={"by": by})
                assert sheet.headers["content-type"].startswith("text/csv")
                rows = list(csv.DictReader(io.StringIO(sheet.text)))
                assert [int(row["lovelace"]) for row in rows] == [row["owed"] for row in found]
                assert not any(row["name"].startswith("=") for row in rows)
            assert (await client.get("/v1/spend?by=year")).status_code == 422
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as stranger:
                assert (await stranger.get("/v1/spend")).status_code == 401
                assert (await stranger.get("/v1/spend.csv")).status_code == 401

    anyio.run(run)
